"""The outcome of one scenario file."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from meshplan.suite.expectations import Mismatch, mismatches

if TYPE_CHECKING:
    from meshplan.scenarios import InputError, Scenario
    from meshplan.suite.answer import Answer

Outcome = Literal["pass", "FAIL", "ERROR", "open", "updated", "not run"]


@dataclass(frozen=True)
class Fault:
    """One reason why a case failed.

    Attributes
    ----------
    text
        A sentence, perhaps with more lines.
    file, line, column
        Where it stands, counted from 1; None where that is not known.
    """

    text: str
    file: str | None = None
    line: int | None = None
    column: int | None = None


@dataclass(frozen=True)
class Case:
    """Outcome of one scenario file.

    Attributes
    ----------
    outcome
        ``pass``, ``FAIL``, ``ERROR`` (there is no answer), ``open`` (it expects nothing),
        ``updated`` (it expects the answer now) or ``not run`` (the run ended before).
    seconds
        Wall time of reading and solving.
    faults
        What differs from the expectation, or the error.
    said
        The answer, or why there is none, in a few words.
    answer
        What the search said; None if it said nothing.
    mismatches
        What differs from the expectation, by its key.
    digest
        Of the text that was judged; empty if it could not be read.
    """

    file: Path
    outcome: Outcome
    seconds: float = 0.0
    faults: tuple[Fault, ...] = ()
    said: str = ""
    answer: Answer | None = None
    mismatches: tuple[Mismatch, ...] = ()
    digest: str = ""

    @property
    def failed(self) -> bool:
        """Whether it counts against the run."""
        return self.outcome in ("FAIL", "ERROR")


def run_case(file: Path, time_limit_s: float | None = None, *, debug: bool = False) -> Case:
    """Solve one file and hold the answer to what it expects.

    Parameters
    ----------
    time_limit_s
        Seconds after which the best plan so far is the answer; None for no limit.
    debug
        Whether faults of meshplan are raised; else they become part of the outcome, as bad input
        does.

    Raises
    ------
    KeyboardInterrupt
        If the user stops it.
    """
    import meshplan
    from meshplan.scenarios import loads
    from meshplan.scenarios.files import read_file
    from meshplan.suite.answer import answer_of

    started = time.perf_counter()
    try:
        text = read_file(file)
        scenario = loads(text, str(file))
        result = meshplan.solve(scenario, time_limit_s=time_limit_s)
        if getattr(result, "stopped_by", None) == "interrupt":
            raise KeyboardInterrupt
        answer = answer_of(result)
    except meshplan.InputError as error:
        return _broken(file, time.perf_counter() - started, error)
    except Exception as error:
        if debug:
            raise
        fault = Fault(f"{type(error).__name__}: {' '.join(str(error).split())[:300]}", str(file), 1)
        seconds = time.perf_counter() - started
        return Case(file, "ERROR", seconds, (fault,), "meshplan failed")
    return judged(file, text, scenario, answer, time.perf_counter() - started, time_limit_s)


def _broken(file: Path, seconds: float, error: InputError) -> Case:
    fault = Fault(str(error), error.file or str(file), error.line or 1)
    return Case(file, "ERROR", seconds, (fault,), "bad input")


def judged(
    file: Path,
    text: str,
    scenario: Scenario,
    answer: Answer,
    seconds: float,
    time_limit_s: float | None = None,
) -> Case:
    """The outcome of a file with this text that got this answer."""
    digest = digest_of(text)
    if scenario.expect is None:
        said = f"{answer} (no expectation)"
        return Case(file, "open", seconds, (), said, answer, (), digest)
    wrong = mismatches(scenario.expect, answer)
    limit = f"; stopped after {time_limit_s:g} s" if time_limit_s and not answer.final else ""
    faults = tuple(_located(file, text, one, limit) for one in wrong)
    outcome: Outcome = "FAIL" if wrong else "pass"
    return Case(file, outcome, seconds, faults, str(answer), answer, wrong, digest)


def digest_of(text: str) -> str:
    """A name of the text that no other text has."""
    return hashlib.sha256(text.encode()).hexdigest()


def _located(file: Path, text: str, wrong: Mismatch, limit: str) -> Fault:
    """A mismatch with the place of its key in the file."""
    from meshplan.scenarios.yaml_nodes import key_place

    line, column = key_place(text, ("expect", *wrong.path))
    return Fault(wrong.text + limit, str(file), line, column)


__all__ = ["Case", "Fault", "Outcome", "digest_of", "judged", "run_case"]
