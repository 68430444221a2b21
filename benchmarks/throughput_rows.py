"""Rows of published training runs with their throughput, and which of them may be compared.

The columns are those of ``data/published_runs.csv``.  Layout and settings are read as for the
memory comparison (:mod:`benchmarks.memory_rows`); this adds the measured figures, and what the
columns ``flags``, ``approx``, ``notes`` and ``status`` say against a row.  Each reason is decided
by fixed words in these columns, never by how far off the model is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.memory_rows import Run, read_runs
from meshplan.scenarios.errors import InputError
from meshplan.scenarios.tables import read_table

_COLUMNS = (
    "model_tflops_per_gpu", "tflops_unrounded", "tokens_per_s_per_gpu", "step_time_ms", "approx",
    "flags", "recipe_match", "recipe_match_diff", "rcp_fsdp", "rcp_tp_comm_overlap", "status",
)  # fmt: skip
#: What sets a row apart: predicted and printed, but neither fitted nor counted.  Words of
#: the columns flags, notes and status; a row shows the first that applies.
_APART = (
    ("status", r"withdrawn|unverified", "withdrawn or unverified figure"),
    ("notes", r"vision-language run", "vision tower"),
    ("notes", r"functional / support run", "functional run, not tuned for speed"),
    ("notes", r"known performance regression", "known performance regression of the container"),
    ("flags", r"probably stale", "layout columns probably stale"),
    ("flags", r"does not divide|typo", "layout columns contradict each other"),
    ("flags", r"GA \d+ stated but", "micro-batches stated contradict the batch"),
    ("flags", r"precision label is wrong", "precision label in doubt"),
    ("flags", r"packed short sequences", "packed short sequences"),
    ("flags", r"unsteady window", "mean over an unsteady window"),
)
#: Published TFLOP/s counted by another formula or vocabulary: tokens/s are compared instead.
_OTHER_FLOPS = r"older GPT-OSS FLOPs formula|FLOPs counted with"
#: What a row leaves open is taken from the other rows of its card where all of those agree.
_FAMILY = ("tp", "pp", "vpp", "ep", "etp", "recompute", "graphs", "offload")


@dataclass(frozen=True)
class Measured:
    """A row: the run, its figures (None where absent), and what the columns say of them.

    Attributes
    ----------
    by_tokens
        Whether the TFLOP/s were counted by another formula than ours.
    apart
        Why the row is not counted, or nothing.
    filled
        What was taken from other rows of the same card.
    """

    run: Run
    tflops: float | None
    tokens_per_s: float | None
    step_ms: float | None
    approximate: bool
    by_tokens: bool
    in_recipes: bool
    recipe_differs: str
    tensor_overlap: bool | None
    apart: str
    filled: tuple[str, ...] = ()


def read_measured(path: Path) -> list[Measured]:
    """All rows of a file.

    Raises
    ------
    InputError
        If the file cannot be read, or a cell is not what its column holds.
    """
    table = read_table(path)
    table.require(_COLUMNS, "benchmarks/data/published_runs.csv")
    runs = {run.line: run for run in read_runs(path)}
    found = [_measured(runs[row.line], row.cells) for row in table.rows]
    return _with_families(found)


def _number(run: Run, cells: Mapping[str, str], column: str) -> float | None:
    text = cells[column]
    if not text:
        return None
    if not re.fullmatch(r"~?\d{1,9}(\.\d+)?", text) or float(text.lstrip("~")) <= 0:
        raise InputError(
            f"{column} is {text[:60]!r}, but must be a positive number",
            advice="leave it empty if it is not known.",
            file=run.file,
            line=run.line,
        )
    return float(text.lstrip("~"))


def _measured(run: Run, cells: Mapping[str, str]) -> Measured:
    unrounded = _number(run, cells, "tflops_unrounded")
    fsdp = run.fsdp or (cells["rcp_fsdp"] == "1" and "as in the recipe") or ""
    overlap = {"true": True, "false": False}.get(cells["rcp_tp_comm_overlap"].lower())
    words = {"flags": cells["flags"], "notes": run.notes, "status": cells["status"]}
    apart = (why for column, word, why in _APART if re.search(word, words[column]))
    return Measured(
        run=replace(run, fsdp=fsdp, figures=()),
        tflops=unrounded or _number(run, cells, "model_tflops_per_gpu"),
        tokens_per_s=_number(run, cells, "tokens_per_s_per_gpu"),
        step_ms=_number(run, cells, "step_time_ms"),
        approximate=cells["approx"] == "1" and unrounded is None,
        by_tokens=re.search(_OTHER_FLOPS, cells["flags"]) is not None,
        in_recipes=bool(cells["recipe_match"]),
        recipe_differs=cells["recipe_match_diff"],
        tensor_overlap=overlap,
        apart=next(apart, ""),
    )


def _with_families(rows: Sequence[Measured]) -> list[Measured]:
    """Rows, completed by those of the same card (source, model and GPU) that state more."""
    families: dict[tuple[str, str, str], list[Measured]] = {}
    for row in rows:
        families.setdefault(_family(row), []).append(row)
    return [_completed(row, families[_family(row)]) for row in rows]


def _family(row: Measured) -> tuple[str, str, str]:
    card = re.search(r"skills/[\w-]+", row.run.source)
    return (card[0] if card else row.run.id, row.run.model, row.run.gpu)


def _completed(row: Measured, family: Iterable[Measured]) -> Measured:
    if row.run.tp is not None:
        return row
    others = [other.run for other in family if other.run.tp is not None]
    values = {}
    for name in _FAMILY:
        stated = {getattr(other, name) for other in others} - {None, ""}
        if getattr(row.run, name) in (None, "") and len(stated) == 1:
            values[name] = stated.pop()
    note = f"{', '.join(values)} as in other rows of the card"
    return replace(row, run=replace(row.run, **values), filled=(note,)) if values else row
