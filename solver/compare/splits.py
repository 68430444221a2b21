"""The best split of the layers, every other decision of a layout as it is."""

from __future__ import annotations

from meshplan.constraints.decisions import DECISIONS
from meshplan.constraints.layout import Layout, Slot, Value
from meshplan.constraints.pipeline import balanced_slots, even_slots
from meshplan.constraints.problem import Problem


def best_split(
    problem: Problem, layout: Layout, deadline: float | None = None
) -> tuple[Slot, ...] | None:
    """Slots of the fastest split that fits, proved; None if none fits.

    Raises
    ------
    LimitReached
        If ``deadline`` (of ``time.monotonic()``) passes first.
    """
    from meshplan.solver.search import Search  # reports are made without it

    pins: dict[str, tuple[Value, ...]] = {name: (layout.value(name),) for name in DECISIONS}
    search = Search(problem, pins=pins, deadline=deadline)
    regions = search.space.regions()
    if not regions or search.fastest(regions) is None:
        return None
    assert search.best is not None
    return search.best.slots


def nearest_split(problem: Problem, layout: Layout) -> tuple[Slot, ...]:
    """The framework's even split, or the nearest to it."""
    card, pp, vpp = problem.model, layout.pp, layout.vpp
    even = even_slots(card.layers, pp, vpp, mtp=card.mtp_layers > 0)
    return even or balanced_slots(problem, pp, vpp)
