"""A layout that needs little memory: what stands in the way where nothing fits, by example."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from meshplan.constraints.layout import Layout
from meshplan.constraints.memory.stage import RankMemory
from meshplan.solver.cells import UNLIMITED
from meshplan.solver.diagnosis.queries import Queries
from meshplan.solver.found import to_layout
from meshplan.solver.judge import cost

#: Sizes of the memory that are tried, as multiples of what each GPU must hold at least.
_SIZES = (1.05, 1.25, 2.0, 4.0, 16.0)
#: Cells of each pipeline degree that are looked at: those that need the least on average.
_ROOMIEST = 8
#: Cells whose best split is looked for: each is an integer program, of seconds for deep models.
_TRIES = 6


@dataclass(frozen=True)
class Leanest:
    """A layout and its fullest rank; others may need a little less."""

    layout: Layout
    rank: RankMemory


def leanest(queries: Queries, core: Iterable[str], least: int) -> Leanest | None:
    """A layout with these pins and limits that needs little memory, whatever a GPU has.

    None where the hosts have no room for any.

    Parameters
    ----------
    least
        What each GPU must hold at least on average, in quanta.

    Raises
    ------
    LimitReached
        If the deadline comes first.
    """
    kept = frozenset(core)
    for size in _SIZES:
        search = queries.search(kept, capacity=int(least * size))
        regions = search.regions()
        if search.best is None:
            continue
        pools = [
            pool
            for region in regions
            for pool in search.space.refine(
                region, np.argsort(region.memory / region.pp, kind="stable")[:_ROOMIEST], UNLIMITED
            )
        ]
        search.least_peak(pools, UNLIMITED, _TRIES)
        layout = to_layout(search.best.decisions, search.best.slots)
        ranks = cost(queries.problem, layout).ranks
        return Leanest(layout, max(ranks, key=lambda rank: rank.peak))
    return None
