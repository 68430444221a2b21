"""A plan that ``solve --json`` wrote, read back and held to what this version makes of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meshplan.constraints.layout import Layout
from meshplan.constraints.problem import Problem
from meshplan.scenarios.errors import InputError
from meshplan.solver.compare.stored import Stored, stored

#: What a plan decides, by its keys in the JSON; what stands below these beside is its cost.
_DECISIONS = (
    "layout", "pipeline", "recompute", "optimizer_offload", "activation_offload", "dispatcher",
    "cuda_graphs",
)  # fmt: skip
_OF_PIPELINE = ("layout", "slots")
#: What its layout costs; other figures than these mean another model behind them.
_FIGURES = (("memory", "peak_gib"), ("time", "step_s"))
_AGAIN = "solve the scenario again with this version: meshplan solve FILE --json PLAN.json."


@dataclass(frozen=True)
class StoredPlan:
    """A legal plan that fits, and its JSON."""

    problem: Problem
    layout: Layout
    data: Mapping[str, Any]


def read_plan(path: str | Path) -> StoredPlan:
    """The plan in a file.

    Raises
    ------
    InputError
        If the file cannot be read, has no plan or one that is illegal or does not fit, was edited,
        or holds figures that this version does not get.
    """
    found = stored(path)
    report = found.report
    if report.violations:
        one = report.violations[0]
        raise InputError(
            f"the plan breaks {one.rule}: {one.text}", advice=_advice(found), file=str(path)
        )
    again = report.to_json()
    for difference in _differences(found.data, again):
        raise InputError(difference, advice=_AGAIN, file=str(path))
    if report.status != "ok":
        raise InputError(
            f"the plan does not fit: {again['memory']['peak_gib']} of "
            f"{again['memory']['capacity_gib']} GiB",
            advice="export one that solve found.",
            file=str(path),
        )
    return StoredPlan(report.problem, report.layout, found.data)


def _advice(found: Stored) -> str:
    status = found.data["status"]
    return "export a layout that check finds ok." if status == "illegal" else _AGAIN


def _differences(data: Mapping[str, Any], again: Mapping[str, Any]) -> Iterator[str]:
    """What the file says otherwise than the judgement of its own layout, in sentences."""
    for key in _DECISIONS:
        keys = _OF_PIPELINE if key == "pipeline" else None
        for name, was, now in _unlike(key, data[key], again[key], keys):
            yield f"{name} is {was!r}, but the rest of the plan makes it {now!r}: it was edited"
    for part, figure in _FIGURES:
        was, now = (one[part] and one[part][figure] for one in (data, again))
        if was != now:
            yield (
                f"{part}.{figure} is {was}, but this version gets {now}: the plan was edited, or "
                "is of another version or calibration"
            )


def _unlike(
    name: str, was: Any, now: Any, keys: tuple[str, ...] | None
) -> Iterator[tuple[str, Any, Any]]:
    """What differs, with both values: those of ``keys``, or of all if that is None."""
    if not (isinstance(was, dict) and isinstance(now, dict)):
        if was != now:
            yield name, was, now
        return
    for key in keys or sorted({*was, *now}):
        if was.get(key) != now.get(key):
            yield f"{name}.{key}", was.get(key), now.get(key)


__all__ = ["StoredPlan", "read_plan"]
