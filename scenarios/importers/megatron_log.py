"""Read the training log of Megatron-LM or Megatron-Bridge: how long each logged step took.

Formats: ``training_log`` of Megatron-LM d98e8a64 ``megatron/training/training.py`` and of
Megatron-Bridge 067f987d ``training/utils/train_utils.py``::

     [DATE TIME] iteration       20/     100 | consumed samples: ... | elapsed time per iteration
     (ms): 1234.5 | throughput per GPU (TFLOP/s/GPU): 312.3 | ... | global batch size:   512 | ...
    Step Time : 8.57s GPU utilization: 1574.0MODEL_TFLOP/s/GPU

The first stands on one line and is printed by the last rank, the second by rank 0 of
Megatron-Bridge.  Anything may stand before them, between them, and, as ranks write at the same
time, on the same line.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from meshplan.scenarios.errors import InputError
from meshplan.scenarios.files import read_file
from meshplan.scenarios.importers.bridge_config import configuration_dump
from meshplan.scenarios.importers.megatron_args import MegatronArguments, read_arguments

#: Largest log that is read, and its longest line.
MAX_LOG_BYTES = 1 << 28
_MOST_LINE = 1 << 16
_MOST_STEPS = 1_000_000
_MOST_DUMP = 5_000

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_ITERATION = re.compile(r"\biteration[ \t]+(\d{1,12})[ \t]*/[ \t]*(?:\d{1,12}|infinity)")
_NUMBER = r"[ \t]*([0-9]{1,15}(?:\.[0-9]{0,9})?)(?![0-9.]*[eE][-+]?[0-9])"
_ELAPSED = re.compile(r"elapsed time per iteration \(ms\):" + _NUMBER)
_TFLOPS = re.compile(r"throughput per GPU \(TFLOP/s/GPU\):" + _NUMBER)
_BATCH = re.compile(r"global batch size:[ \t]*([0-9]{1,9})")
_SKIPPED = re.compile(r"number of skipped iterations:[ \t]*([0-9]{1,9})")
_NAN = re.compile(r"number of nan iterations:[ \t]*([0-9]{1,9})")
_STEP_TIME = re.compile(
    r"Step Time :" + _NUMBER + r"s(?:[ \t]*GPU utilization:" + _NUMBER + r"[ \t]*(?:MODEL_)?TFLOP)?"
)
#: A number at the end of a line without a line end: a job that was killed may have cut it off.
_UNFINISHED = re.compile(r"[0-9.]+s?\s*$")
_DUMP_LINE = re.compile(r"(?:^|[\s:\]])[a-z][a-z0-9_]{1,80} \.{2,}(?: |$)")
_DUMP_START = re.compile(r"-{4,} arguments -{4,}")
_DUMP_END = re.compile(r"-{4,} end of arguments -{4,}")


@dataclass(frozen=True)
class LogStep:
    """One line of a log on the steps since the line before.

    Attributes
    ----------
    line
        1-based line of the log.
    iteration
        The last of the steps; counted by us where the log does not number them.
    step_s
        Mean seconds per step.
    tflops
        Model TFLOP/s of one GPU, if stated.
    batch
        Global batch size, if stated.
    skipped, nan
        Steps without an update, as the loss scale was too large; steps whose loss was NaN.
    part
        Which start of the training wrote it: 0 for the first.
    """

    line: int
    iteration: int
    step_s: float
    tflops: float | None = None
    batch: int | None = None
    skipped: int = 0
    nan: int = 0
    part: int = 0

    @property
    def faulty(self) -> bool:
        """Whether a step of the line had no update, or no loss."""
        return self.skipped + self.nan > 0


@dataclass(frozen=True)
class TrainingLog:
    """What a training log says.

    Attributes
    ----------
    source
        Name of the file.
    form
        ``megatron`` (lines with iteration numbers), or ``step-time`` (Bridge's rank 0 alone).
    steps
        What was logged, in order; what several ranks print counts once.
    arguments
        The arguments that Megatron-LM printed, if it did.
    configuration
        The configuration that Megatron-Bridge printed, as arguments.
    notes
        What to know about the reading, in sentences.
    """

    source: str
    form: str
    steps: tuple[LogStep, ...]
    arguments: MegatronArguments | None = None
    configuration: MegatronArguments | None = None
    notes: tuple[str, ...] = ()


def read_log_file(path: str | Path) -> TrainingLog:
    """Read the log at ``path``; ``-`` is standard input.

    Raises
    ------
    InputError
        If it cannot be read, is larger than 256 MiB, or holds no step time.
    """
    name = str(path)
    if name == "-":
        name, content = "<standard input>", sys.stdin.buffer.read(MAX_LOG_BYTES + 1)
    else:
        try:
            with open(path, "rb") as stream:
                content = stream.read(MAX_LOG_BYTES + 1)
        except (OSError, ValueError):
            read_file(path)  # words what is wrong with it
            raise
    if len(content) > MAX_LOG_BYTES:
        raise InputError(
            f"the log is larger than {MAX_LOG_BYTES >> 20} MiB",
            advice="give its lines with 'iteration' alone: grep iteration LOG > SHORT.",
            file=name,
        )
    if content.startswith((b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"BZh", b"\xfd7zXZ")):
        raise InputError("the log is compressed", advice="decompress it first.", file=name)
    return read_log(_decoded(content), name)


def read_log(text: str, name: str = "<string>") -> TrainingLog:
    """Read a log from text; ``name`` stands for the file in errors.

    Raises
    ------
    InputError
        If it holds no step time, or the arguments that it holds contradict each other.
    """
    lines = [_ESCAPES.sub("", line[:_MOST_LINE]) for line in text.split("\n")]
    lines[-1] = _UNFINISHED.sub("", lines[-1])
    steps, notes = _numbered(lines)
    form = "megatron"
    if not steps:
        steps, notes = _step_times(lines), []
        form = "step-time"
        if steps:
            notes.append(
                "the log is of rank 0 alone: its step times are rounded to 0.01 s and carry no "
                "iteration number"
            )
    if not steps:
        raise InputError(
            "there is no step time in it",
            advice="this is not the log of Megatron-LM or Megatron-Bridge, or not that of its last "
            "rank; look for 'elapsed time per iteration (ms)'.",
            file=name,
        )
    return TrainingLog(
        name, form, tuple(steps), _arguments(lines, name), _configuration(lines, name), tuple(notes)
    )


def _decoded(content: bytes) -> str:
    """Text of a log: UTF-8 with whatever else libraries print into it, or UTF-16."""
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return content.decode("utf-16", errors="replace")
    head = content[:4096]
    if len(head) >= 16 and head[1::2].count(0) > len(head) // 4:
        return content.decode("utf-16-le", errors="replace")
    return content.decode("utf-8-sig", errors="replace").replace("\0", "")


# -- lines with iteration numbers --------------------------------------------------------------


def _numbered(lines: list[str]) -> tuple[list[LogStep], list[str]]:
    steps: list[LogStep] = []
    known: dict[int, LogStep] = {}
    part = repeated = 0
    for line, iteration, record in _records(lines):
        step = _step(line, iteration, record, part)
        if step is None:
            continue
        before = known.get(iteration)
        if before is not None and math.isclose(before.step_s, step.step_s, rel_tol=0.01):
            repeated += 1  # another rank, or the same line in two files
            continue
        if known and iteration <= max(known):
            part += 1
            known = {}
            step = _step(line, iteration, record, part)
            assert step is not None
        known[iteration] = step
        steps.append(step)
        if len(steps) >= _MOST_STEPS:
            break
    notes = [f"{repeated} lines repeat an iteration, as several ranks print it"] if repeated else []
    if part:
        notes.append(f"the training was started {part + 1} times in this log")
    return steps, notes


def _records(lines: list[str]) -> Iterator[tuple[int, int, str]]:
    """Line, iteration and text of each record, up to the next on the same line.

    Where another rank's line end cuts a record off before its time, the next lines are looked at.
    """
    for index, line in enumerate(lines):
        if "iteration" not in line:
            continue
        found = list(_ITERATION.finditer(line))
        for place, match in enumerate(found):
            last = place + 1 == len(found)
            text = line[match.end() : None if last else found[place + 1].start()]
            if last and _ELAPSED.search(text) is None:
                for further in lines[index + 1 : index + 4]:
                    if _ITERATION.search(further):
                        break
                    text += further
                    if _ELAPSED.search(further):
                        break
            yield index + 1, int(match[1]), text


def _step(line: int, iteration: int, record: str, part: int) -> LogStep | None:
    elapsed = _ELAPSED.search(record)
    if elapsed is None or not 0 < float(elapsed[1]) < 1e9:
        return None
    tflops, batch = _TFLOPS.search(record), _BATCH.search(record)
    return LogStep(
        line=line,
        iteration=iteration,
        step_s=float(elapsed[1]) / 1e3,
        tflops=float(tflops[1]) if tflops and float(tflops[1]) > 0 else None,
        batch=int(batch[1]) if batch else None,
        skipped=sum(int(number) for number in _SKIPPED.findall(record)),
        nan=sum(int(number) for number in _NAN.findall(record)),
        part=part,
    )


# -- Bridge's rank 0 -----------------------------------------------------------------------------


def _step_times(lines: list[str]) -> list[LogStep]:
    found: list[LogStep] = []
    for number, line in enumerate(lines, start=1):
        for match in _STEP_TIME.finditer(line) if "Step Time" in line else ():
            if 0 < float(match[1]) < 1e6:
                tflops = float(match[2]) if match[2] and float(match[2]) > 0 else None
                found.append(LogStep(number, len(found) + 1, float(match[1]), tflops))
    return found


# -- the printed arguments -----------------------------------------------------------------------


def _arguments(lines: list[str], name: str) -> MegatronArguments | None:
    """The arguments of the last start, as Megatron-LM prints them."""
    starts = [index for index, line in enumerate(lines) if _DUMP_START.search(line)]
    if not starts:
        starts = [index for index, line in enumerate(lines) if _is_dump(line)][:1]
    if not starts:
        return None
    start = starts[-1]
    block = []
    for line in lines[start : start + _MOST_DUMP]:
        if _DUMP_END.search(line):
            break
        block.append(line.rstrip("\r") if _is_dump(line) else "")
    return _read_dump(block, start, name)


def _configuration(lines: list[str], name: str) -> MegatronArguments | None:
    """The configuration of the last start, as Megatron-Bridge prints it."""
    block = configuration_dump(lines)
    start = next((index for index, line in enumerate(block) if line), 0)
    return _read_dump(block[start : start + _MOST_DUMP], start, name)


def _read_dump(block: list[str], start: int, name: str) -> MegatronArguments | None:
    """Arguments in some lines of a log, of which the first has so many before it."""
    if sum(bool(line) for line in block) < 3:
        return None
    try:
        found = read_arguments("\n".join(block), name)
    except InputError as error:
        number = None if error.line is None else error.line + start
        raise InputError(error.message, advice=error.advice, file=name, line=number) from None
    settings = tuple(replace(one, line=one.line + start) for one in found.settings)
    return replace(found, settings=settings)


def _is_dump(line: str) -> bool:
    return ".." in line and _DUMP_LINE.search(line) is not None


__all__ = ["LogStep", "TrainingLog", "read_log", "read_log_file"]
