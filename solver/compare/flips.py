"""Each decision in which two layouts differ, changed alone."""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias

from meshplan.constraints.decisions import DEGREES, RECOMPUTE_MODULES
from meshplan.constraints.layout import Layout, Slot
from meshplan.constraints.problem import Problem
from meshplan.solver.change import with_degrees
from meshplan.solver.check import judge_layout
from meshplan.solver.compare.decisions import Difference, differences
from meshplan.solver.compare.splits import best_split, nearest_split
from meshplan.solver.complete import MAX_STAGES
from meshplan.solver.judge import violations
from meshplan.solver.layout_text import stated_by
from meshplan.solver.progress import LimitReached
from meshplan.solver.results import CheckReport

#: Where the slots of a changed layout come from: kept, the other layout's, the fastest split that
#: fits, or the nearest to even where none fits or the time was up.
Split: TypeAlias = Literal["kept", "other", "best", "near-even"]

#: Other decisions that are changed with one that is illegal alone, at most.
_MOST_TOGETHER = 2
_MODULE = "recompute "


@dataclass(frozen=True)
class Flip:
    """One decision of a layout changed to the other layout's value.

    Attributes
    ----------
    difference
        The decision with both values.
    report
        The changed layout, judged.
    split
        Where its slots come from.
    together
        Other decisions that were changed, too: the fewest without which the change is illegal.
        Empty, with an illegal layout, where not even two of them help.
    """

    difference: Difference
    report: CheckReport
    split: Split
    together: tuple[str, ...] = ()


def flips(
    problem: Problem, first: Layout, second: Layout, deadline: float | None = None
) -> Iterator[Flip]:
    """Change each decision of ``first`` to its value in ``second``, all others as they are.

    What follows from other decisions is none of its own.  A change that breaks a rule is tried
    with others beside it.  With another number of slots the layers are split anew: the fastest
    split that fits.  A layout string of the problem binds no flip.

    Parameters
    ----------
    deadline
        Of ``time.monotonic()``; after it layers are split near-evenly instead.
    """
    changes = _Changes(dataclasses.replace(problem, layout_string=None), first, second)
    for name, difference in changes.possible.items():
        together = changes.needed_with(name)
        layout, split = changes.split(changes.made({name, *together}), deadline)
        if name == "pipeline":
            split = "other"
        yield Flip(difference, judge_layout(changes.problem, layout), split, together)


@dataclass(frozen=True, eq=False)
class _Changes:
    """Changes of ``first`` towards ``second``, one by one or several together."""

    problem: Problem
    first: Layout
    second: Layout

    @cached_property
    def possible(self) -> dict[str, Difference]:
        """Decisions that can be changed, by name."""
        found: dict[str, Difference] = {}
        for one in differences(self.problem, self.first, self.second):
            if one.follows:
                continue
            by_module = not (self.first.recompute_full or self.second.recompute_full)
            if one.decision == "recompute" and by_module:
                found |= {module.decision: module for module in self._modules()}
            else:
                found[one.decision] = one
        return found

    def _modules(self) -> Iterator[Difference]:
        """Each recompute module that only one of the two has."""
        for module in RECOMPUTE_MODULES:
            has, gets = module in self.first.recompute, module in self.second.recompute
            if has != gets:
                words = ("yes" if has else "no", "yes" if gets else "no")
                yield Difference(_MODULE + module, *words)

    def made(self, names: Collection[str]) -> Layout:
        """``first`` with these decisions changed; its slots may no longer suit it."""
        degrees = {name: int(self.second.value(name)) for name in names if name in DEGREES}
        layout = with_degrees(self.problem, stated_by(self.first), self.first, degrees)
        fields: dict[str, Any] = {}
        modules = {*self.first.recompute}
        for name in names:
            if name.startswith(_MODULE):
                modules ^= {name.removeprefix(_MODULE)}
            elif name not in DEGREES:
                fields |= self._option(name)
        fields.setdefault("recompute", tuple(m for m in RECOMPUTE_MODULES if m in modules))
        return dataclasses.replace(layout, **fields)

    def _option(self, name: str) -> dict[str, Any]:
        """Fields of a layout that hold the option ``name``, with their values in ``second``."""
        fields = {
            "recompute": ("recompute", "recompute_full"),
            "graphs": ("cuda_graphs",),
            "pipeline": ("slots",),
        }.get(name, (name,))
        return {field: getattr(self.second, field) for field in fields}

    def needed_with(self, name: str) -> tuple[str, ...]:
        """The fewest other changes with which this one is legal; none where none help."""
        others = [other for other in self.possible if other not in (name, "pipeline")]
        for number in range(_MOST_TOGETHER + 1):
            for together in itertools.combinations(others, number):
                if self._is_legal(self.made({name, *together})):
                    return together
        return ()

    def _is_legal(self, layout: Layout) -> bool:
        if layout.pp * layout.vpp > MAX_STAGES:
            return False
        if (layout.pp, layout.vpp) != (self.first.pp, self.first.vpp):
            slots = nearest_split(self.problem, layout)
            layout = dataclasses.replace(layout, slots=slots)
        return not violations(self.problem, layout)

    def split(self, layout: Layout, deadline: float | None) -> tuple[Layout, Split]:
        """The layout with slots that suit its pipeline, and where they come from."""
        if (layout.pp, layout.vpp) == (self.first.pp, self.first.vpp):
            return layout, "kept"
        split, slots = _split(self.problem, layout, deadline)
        return dataclasses.replace(layout, slots=slots), split


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
