"""The best plans of several kinds, each proved: the fastest degree tuples, the Pareto front.

Both walk through the cells in the order of their bounds (:func:`in_order_of_bounds`) and stop
where no bound can still matter, so that nothing is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from meshplan.constraints.problem import QUANTA_PER_GIB
from meshplan.solver.cells import DISTINCT, UNLIMITED, Cell, Region, in_order
from meshplan.solver.found import Found, canonical_key
from meshplan.solver.search import Search

#: Cells that are refined first, at least; each round refines four times as many.
_FIRST_ROUND = 256
_GROWTH = 4


def degree_tuple(decisions: dict[str, int | str]) -> tuple[int, ...]:
    """What tells the plans of a ranking apart."""
    return tuple(int(decisions[name]) for name in DISTINCT)


def in_order_of_bounds(
    search: Search, regions: Sequence[Region], dp: int | None = None, last: int = UNLIMITED
) -> Iterator[tuple[int, Cell]]:
    """Cells (with this ``dp``) whose bound of the scaled step time is at most ``last``, by it."""
    rows = None if dp is None else (lambda region: region.dp == dp)
    chosen = [r.bounds if dp is None else r.bounds[r.dp[r.indices[0]] == dp] for r in regions]
    coarse = np.sort(np.concatenate(chosen)) if chosen else np.zeros(0)
    done, cells = -1, _FIRST_ROUND
    while done < last and len(coarse):
        most = min(int(coarse[cells]), last) if cells < len(coarse) else last
        if most > done:
            pools = search.space.pools(regions, most, rows)
            for bound, cell in in_order(pools, [pool.least for pool in pools]):
                if bound > done:
                    yield bound, cell
            done = most
        cells *= _GROWTH


def fastest_tuples(
    search: Search, regions: Sequence[Region], count: int, tell: Callable[[str], None]
) -> list[Found]:
    """The ``count`` fastest degree tuples, each with its fastest plan, in order: proved.

    ``tell`` is called with how far it is.
    """
    best: dict[tuple[int, ...], Found] = {}

    def step(degrees: tuple[int, ...]) -> int:
        return search.scaled_step(best[degrees])

    for bound, cell in in_order_of_bounds(search, regions):
        last = sorted(map(step, best))[count - 1] if len(best) >= count else UNLIMITED
        if bound >= last:
            break
        done = f"{min(len(best), count)} of {count} found"
        tell(f"top: {done}, none missed up to {bound / 1e6:.4g} s")
        pool, index = cell
        degrees = pool.region.degrees[int(pool.indices[0][index])]
        most = min(last, step(degrees)) - 1 if degrees in best else last - 1
        if bound > most:
            continue
        found = search.best_of(cell, most, search.capacity)
        if found is not None:
            best[degrees] = found
    ordered = sorted(
        best.values(), key=lambda one: (search.scaled_step(one), canonical_key(one.decisions))
    )
    return ordered[:count]


def pareto_front(
    search: Search, regions: Sequence[Region], most: int, tell: Callable[[str], None]
) -> list[Found]:
    """Plans of which none is better in throughput, DP and memory (whole GiB) at once: all of them.

    From the whole memory downwards, GiB by GiB: for each DP the fastest plan within that memory, if
    it is faster than that of every larger DP.  A plan stays the fastest of its DP until the
    memory is less than its peak, and bounds only rise as memory shrinks.

    Parameters
    ----------
    most
        Scaled step time up to which plans are looked at.
    tell
        Called with how far it is.

    Returns
    -------
    list of Found
        The fastest first.
    """
    degrees = sorted({int(dp) for r in regions for dp in np.unique(r.dp)}, reverse=True)
    fastest: dict[int, Found | None] = dict.fromkeys(degrees)
    excluded = dict.fromkeys(degrees, 0)  # step times below which a DP is known to have no plan
    front: list[Found] = []
    while True:
        best: list[Found] = []  # at this capacity, each faster than those before, with less DP
        below = most + 1
        for number, dp in enumerate(degrees, 1):
            tell(
                f"pareto: within {search.capacity // QUANTA_PER_GIB} GiB, dp {dp} "
                f"({number} of {len(degrees)}); {len(front) + len(best)} plans"
            )
            known = fastest[dp]
            if known is not None and known.peak > search.capacity:
                excluded[dp], known = search.scaled_step(known), None
            if known is None and excluded[dp] < below:
                known = _fastest_of(search, regions, dp, below)
                excluded[dp] = below
            fastest[dp] = known
            if known is not None and search.scaled_step(known) < below:
                below = search.scaled_step(known)
                best.append(known)
        if not best:
            return _undominated(search, front)
        front += best
        capacity = (max(_whole_gib(found) for found in best) - 1) * QUANTA_PER_GIB
        search.lower_capacity(capacity)


def _fastest_of(search: Search, regions: Sequence[Region], dp: int, below: int) -> Found | None:
    """The fastest plan with this DP whose scaled step is less than ``below``."""
    best: Found | None = None
    for bound, cell in in_order_of_bounds(search, regions, dp, below - 1):
        if bound >= below:
            break
        found = search.best_of(cell, below - 1, search.capacity)
        if found is not None:
            best, below = found, search.scaled_step(found)
    return best


def _whole_gib(found: Found) -> int:
    return -(-found.peak // QUANTA_PER_GIB)


def _undominated(search: Search, plans: Sequence[Found]) -> list[Found]:
    """Those that no other one is at least as good as in all three, the fastest first."""
    merits = {
        (search.scaled_step(one), -int(one.decisions["dp"]), _whole_gib(one)): one for one in plans
    }
    return [
        one
        for mine, one in sorted(merits.items(), key=lambda item: item[0])
        if not any(
            other != mine and all(a <= b for a, b in zip(other, mine, strict=True))
            for other in merits
        )
    ]


__all__ = ["degree_tuple", "fastest_tuples", "pareto_front"]
