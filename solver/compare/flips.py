"""Each decision in which two layouts differ, changed alone."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from meshplan.constraints.decisions import DEGREES, RECOMPUTE_MODULES
from meshplan.constraints.layout import Layout, Slot
from meshplan.constraints.problem import Problem
from meshplan.solver.change import with_degree
from meshplan.solver.check import judge_layout
from meshplan.solver.compare.decisions import Difference, differences
from meshplan.solver.compare.splits import best_split, nearest_split
from meshplan.solver.complete import MAX_STAGES
from meshplan.solver.layout_text import stated_by
from meshplan.solver.program import LimitReached
from meshplan.solver.results import CheckReport

#: Where the slots of a changed layout come from: kept, the other layout's, the fastest split that
#: fits, or the nearest to even where none fits or the time was up.
Split: TypeAlias = Literal["kept", "other", "best", "near-even"]


@dataclass(frozen=True)
class Flip:
    """One decision of a layout changed to the other layout's value, all others as they are.

    Attributes
    ----------
    difference
        The decision with both values.
    report
        The changed layout, judged.
    split
        Where its slots come from.
    """

    difference: Difference
    report: CheckReport
    split: Split


def flips(
    problem: Problem, first: Layout, second: Layout, deadline: float | None = None
) -> Iterator[Flip]:
    """Change each decision of ``first`` alone to its value in ``second``.

    What follows from other decisions is none of its own.  With another number of slots the layers
    are split anew: the fastest split that fits.  A layout string of the problem binds no flip.

    Parameters
    ----------
    deadline
        Of ``time.monotonic()``; after it layers are split near-evenly instead.
    """
    if problem.layout_string is not None:
        problem = dataclasses.replace(problem, layout_string=None)
    for difference, changed in _changes(problem, first, second):
        split: Split = "other" if difference.decision == "pipeline" else "kept"
        if difference.decision in ("pp", "vpp"):
            split, slots = _split(problem, changed, deadline)
            changed = dataclasses.replace(changed, slots=slots)
        yield Flip(difference, judge_layout(problem, changed), split)


def _changes(
    problem: Problem, first: Layout, second: Layout
) -> Iterator[tuple[Difference, Layout]]:
    for difference in differences(problem, first, second):
        name = difference.decision
        if difference.follows:
            continue
        if name == "recompute" and not (first.recompute_full or second.recompute_full):
            yield from _modules(first, second)
        elif name in DEGREES:
            value = int(difference.second)
            yield difference, with_degree(problem, stated_by(first), first, name, value)
        else:
            yield difference, dataclasses.replace(first, **_option(name, second))


def _option(name: str, second: Layout) -> dict[str, Any]:
    """Fields of a layout that hold the option ``name``, with their values in ``second``."""
    fields = {
        "recompute": ("recompute", "recompute_full"),
        "graphs": ("cuda_graphs",),
        "pipeline": ("slots",),
    }.get(name, (name,))
    return {field: getattr(second, field) for field in fields}


def _modules(first: Layout, second: Layout) -> Iterator[tuple[Difference, Layout]]:
    """Each recompute module that only one of the two has."""
    for module in RECOMPUTE_MODULES:
        has, gets = module in first.recompute, module in second.recompute
        if has == gets:
            continue
        kept = {*first.recompute, module} if gets else {*first.recompute} - {module}
        modules = tuple(name for name in RECOMPUTE_MODULES if name in kept)
        difference = Difference(
            f"recompute {module}", "yes" if has else "no", "yes" if gets else "no"
        )
        yield difference, dataclasses.replace(first, recompute=modules)


def _split(
    problem: Problem, layout: Layout, deadline: float | None
) -> tuple[Split, tuple[Slot, ...]]:
    if layout.pp * layout.vpp > MAX_STAGES:
        return "near-even", ()
    if deadline is None or time.monotonic() < deadline:
        try:
            slots = best_split(problem, layout, deadline)
        except LimitReached:
            slots = None
        if slots is not None:
            return "best", slots
    return "near-even", nearest_split(problem, layout)
