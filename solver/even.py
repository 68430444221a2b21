"""What the framework's even split of the layers would cost, all other decisions as they are."""

from __future__ import annotations

from dataclasses import dataclass, replace

from meshplan.constraints.layout import Layout
from meshplan.constraints.memory.verdict import has_room
from meshplan.constraints.pipeline import balanced_slots, even_splits
from meshplan.constraints.problem import Problem
from meshplan.solver.complete import MEANINGLESS
from meshplan.solver.judge import Cost, cost


@dataclass(frozen=True)
class EvenSplit:
    """The even split of a layout's layers, with what it costs.

    Attributes
    ----------
    layout
        The layout with its slots.
    exact
        Whether it is the framework's own; else the layers do not split evenly, and it is the
        nearest: one layer more or less, the ends counted in.
    cost
        Memory of each rank and step time.
    """

    layout: Layout
    exact: bool
    cost: Cost


def even_split(problem: Problem, layout: Layout) -> EvenSplit | None:
    """The best even split of a layout, or else the nearest; None without a pipeline.

    The framework has up to two even splits (the embedding or the loss may count as a layer): the
    one with room is taken, then the faster one.
    """
    pp, vpp = layout.pp, layout.vpp
    if pp * vpp == 1:
        return None
    splits = tuple(even_splits(problem.model.layers, pp, vpp, mtp=problem.model.mtp_layers > 0))
    layouts = [
        replace(layout, slots=slots) for slots in splits or (balanced_slots(problem, pp, vpp),)
    ]
    try:
        costed = [EvenSplit(one, bool(splits), cost(problem, one)) for one in layouts]
    except MEANINGLESS:
        return None
    return min(
        costed, key=lambda one: (not has_room(problem, one.cost.ranks), one.cost.time.step_us)
    )
