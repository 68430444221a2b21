"""All placements of the layers on the ranks of a shape, where these are few.

Within the limits of a cell, the bounds of its ranks mostly leave so few layer counts that memory
and time of all of them are a few matrix products: the exact optimum, far cheaper than by a program.
Where they leave too many, the program decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate

import numpy as np

from meshplan.constraints.layout import Slot
from meshplan.constraints.pipeline import kind_counts
from meshplan.constraints.problem import Problem
from meshplan.solver.axes import Array
from meshplan.solver.bounds import NEVER
from meshplan.solver.costs import CellCosts, StaticCosts, mtp_time_us
from meshplan.solver.known import twin
from meshplan.solver.rank_bounds import Bounds
from meshplan.solver.shapes import Shape, least_layers, mtp_slot
from meshplan.solver.space import fixed_slots
from meshplan.solver.time.step import STEP_OVERHEAD_US

#: Placements of one cell that are looked at, at most, and layer counts in one table.
MOST_PLACEMENTS = 10_000
_MOST_NUMBERS = 2_000_000


@dataclass(frozen=True, eq=False)
class Placements:
    """Layer counts of all placements.

    Attributes
    ----------
    layers
        [placement, rank]: layers of each rank.
    slot_kinds
        [placement, slot, kind]: layers of each kind in each slot.
    """

    layers: Array
    slot_kinds: Array


def _counts(layers: int, ranges: Sequence[tuple[int, int]]) -> Array:
    """All counts per rank within the ranges that add up to ``layers``, in lexical order."""
    found, left = np.zeros((1, 0), dtype=np.int64), np.array([layers])
    for rank, (low, high) in enumerate(ranges):
        later = ranges[rank + 1 :]
        first = np.maximum(low, left - sum(most for _, most in later))
        last = np.minimum(high, left - sum(least for least, _ in later))
        number = np.maximum(last - first + 1, 0)
        of = np.repeat(np.arange(len(left)), number)
        count = np.arange(len(of)) - np.repeat(np.cumsum(number) - number, number) + first[of]
        found, left = np.column_stack([found[of], count]), left[of] - count
    return found


def _number(layers: int, ranges: Sequence[tuple[int, int]]) -> int:
    """How many placements there are, by dynamic programming over the ranks."""
    ways = np.zeros(layers + 1, dtype=object)
    ways[0] = 1
    for low, high in ranges:
        following = np.zeros_like(ways)
        for n in range(low, min(high, layers) + 1):
            following[n:] += ways[: layers + 1 - n]
        ways = following
    return int(ways[layers])


def _narrowed(layers: int, ranges: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """The ranges without counts for which the other ranks cannot hold the rest."""
    least, most = sum(low for low, _ in ranges), sum(high for _, high in ranges)
    return tuple(
        (max(low, layers - (most - high)), min(high, layers - (least - low)))
        for low, high in ranges
    )


def _all_ranges(problem: Problem, shape: Shape) -> tuple[tuple[int, int], ...]:
    """Fewest and most layers that each rank of a shape can hold in some split."""
    fewest = [least_layers(shape, rank) for rank in range(shape.pp)]
    spare = problem.model.layers - sum(fewest)
    return tuple((least, least + spare) for least in fewest)


def number_of_placements(problem: Problem, shape: Shape) -> int:
    """Splits of the search space that have this shape."""
    if fixed_slots(problem, shape.pp, shape.vpp) is not None:
        return 1
    return _number(problem.model.layers, _all_ranges(problem, shape))


def every_placement(problem: Problem, shape: Shape) -> Iterator[Array]:
    """:attr:`Placements.slot_kinds` of all splits of a shape, so many at a time as are few."""
    fixed = fixed_slots(problem, shape.pp, shape.vpp)
    if fixed is not None:
        yield _given(problem, shape, fixed).slot_kinds
        return
    open_ = [_all_ranges(problem, shape)]
    while open_:
        ranges = open_.pop()
        if any(low > high for low, high in ranges):
            continue
        if _number(problem.model.layers, ranges) <= MOST_PLACEMENTS:
            yield _slot_kinds(problem, shape, _counts(problem.model.layers, ranges))
            continue
        # Fix the layers of one more rank.
        rank = next(i for i, (low, high) in enumerate(ranges) if low < high)
        low, high = ranges[rank]
        for count in range(high, low - 1, -1):
            fixed_rank = (*ranges[:rank], (count, count), *ranges[rank + 1 :])
            open_.append(_narrowed(problem.model.layers, fixed_rank))


@lru_cache(maxsize=32)
def placements(
    problem: Problem, shape: Shape, ranges: tuple[tuple[int, int], ...]
) -> Placements | None:
    """All placements with these layers on each rank; None if they are too many."""
    layers = problem.model.layers
    number = _number(layers, ranges)
    counts_each = shape.pp * shape.vpp * len(problem.kinds)
    if number > MOST_PLACEMENTS or number * counts_each > _MOST_NUMBERS:
        return None
    counts = _counts(layers, ranges)
    return Placements(counts, _slot_kinds(problem, shape, counts))


def _given(problem: Problem, shape: Shape, fixed: Sequence[Slot]) -> Placements:
    """The one placement of a split that the scenario fixes."""
    counts = [kind_counts(problem.model, slot) for slot in fixed]
    kinds = np.array([[[each[kind] for kind in problem.kinds] for each in counts]], dtype=np.int64)
    by_rank = [sum(slot.count for slot in fixed[rank :: shape.pp]) for rank in range(shape.pp)]
    return Placements(np.array([by_rank], dtype=np.int64), kinds)


def _slot_kinds(problem: Problem, shape: Shape, counts: Array) -> Array:
    """[placement, slot, kind] from [placement, rank]: where each slot begins and ends."""
    pp, vpp, most = shape.pp, shape.vpp, int(counts.max(initial=0))
    chunks = [np.array([shape.chunks(rank, n) for n in range(most + 1)]) for rank in range(pp)]
    by_rank = np.stack([chunks[rank][counts[:, rank]] for rank in range(pp)], axis=2)
    ends = np.cumsum(by_rank.reshape(len(counts), vpp * pp), axis=1)
    starts = ends - by_rank.reshape(len(counts), vpp * pp)
    layer_kinds = problem.model.layer_kinds
    result = []
    for kind in problem.kinds:
        before = np.array([0, *accumulate(int(k == kind) for k in layer_kinds)], dtype=np.int64)
        result.append(before[ends] - before[starts])
    # Counts are small and many, so they are kept in 16 bits.
    return np.stack(result, axis=2).astype(np.int16)


@dataclass(frozen=True)
class Exact:
    """Least step time, and least peak, of one cell over all placements within its limits.

    ``fastest`` and ``leanest`` are the layers of each rank of placements that have these.
    """

    step: int
    peak: int
    fastest: tuple[int, ...] = ()
    leanest: tuple[int, ...] = ()


#: No placement lies within the limits.
IMPOSSIBLE = Exact(NEVER, NEVER)


def exact_bounds(
    problem: Problem, shape: Shape, costs: CellCosts, ga: int, most_step: int, most_peak: int
) -> Exact | None:
    """Exact optima of the one cell of ``costs``; None if its placements are too many.

    :data:`IMPOSSIBLE` where no placement lies within the limits.
    """
    fixed = fixed_slots(problem, shape.pp, shape.vpp)
    if fixed is not None:
        if mtp_slot(problem, shape) != len(fixed) - 1:
            return None
        all_: Placements | None = _given(problem, shape, fixed)
    else:
        bounds = Bounds(problem, (shape,), costs, np.array([ga]))
        within_limits = bounds.rank_ranges(most_peak, most_step)
        if within_limits is None:
            return IMPOSSIBLE
        ranges = _narrowed(problem.model.layers, within_limits)
        if any(low > high for low, high in ranges):
            return IMPOSSIBLE
        all_ = placements(twin(problem), replace(shape, level=0, extra=0), ranges)
    if all_ is None:
        return None
    step = placement_steps(problem, shape, costs, ga, all_.slot_kinds)
    within = np.flatnonzero(step <= most_step)
    peak = placement_peaks(problem, shape, costs, all_.slot_kinds[within], most_peak)
    fits = peak <= most_peak
    within, peak = within[fits], peak[fits]
    if not len(within):
        return IMPOSSIBLE
    step = step[within]
    fastest = within[np.lexsort((peak, step))[0]]
    leanest = within[np.lexsort((step, peak))[0]]
    return Exact(
        int(step.min()),
        int(peak.min()),
        tuple(all_.layers[fastest].tolist()),
        tuple(all_.layers[leanest].tolist()),
    )


def _vector(problem: Problem, values: dict) -> Array:  # type: ignore[type-arg]
    return np.array([int(values[kind][0]) for kind in problem.kinds], dtype=np.int64)


def placement_steps(
    problem: Problem, shape: Shape, costs: CellCosts, ga: int, slot_kinds: Array
) -> Array:
    """Step time of every placement."""
    p2p = int(costs.p2p_us[0])
    slots = slot_kinds @ _vector(problem, costs.layer_us) + p2p
    slots[:, 0] += int(costs.first_us[0])
    slots[:, -1] += int(costs.loss_us[0]) + int(mtp_time_us(problem, costs)[0])
    by_rank = (len(slots), shape.vpp, shape.pp)
    bottleneck = slots.reshape(by_rank).max(axis=2).sum(axis=1)
    most = slot_kinds.sum(axis=2, dtype=np.int64).reshape(by_rank).sum(axis=1).max(axis=1)
    exchange = int(costs.exchange_us[0]) * most + int(costs.exchange_ends_us[0])
    exposed = np.maximum(-(-3 * exchange // 10), -(-(2 * exchange - bottleneck) // 2))
    optimizer = int(costs.optimizer_us[0]) * most + int(costs.optimizer_ends_us[0])
    total: Array = ga * bottleneck + (shape.pp - 1) * slots.max(axis=1) + exposed + optimizer
    return total + STEP_OVERHEAD_US


def placement_peaks(
    problem: Problem, shape: Shape, costs: CellCosts, slot_kinds: Array, most_peak: int
) -> Array:
    """Peak memory of every placement; :data:`NEVER` where it is more, or the hosts lack room."""
    whole = np.full(len(slot_kinds), NEVER, dtype=np.int64)
    left = np.arange(len(slot_kinds))
    peak = np.zeros(len(slot_kinds), dtype=np.int64)
    # The last rank, then the first: those that most placements fail on.
    for rank in dict.fromkeys((shape.pp - 1, *range(shape.pp))):
        chunks = slot_kinds[left, rank :: shape.pp]
        peak = np.maximum(peak, _rank_peak(problem, shape, costs, rank, chunks))
        fits = peak <= most_peak
        if problem.uses_host_memory:
            host = _rank_host(problem, shape, costs, rank, chunks)
            fits &= host <= problem.host_capacity
        left, peak = left[fits], peak[fits]
    whole[left] = peak
    return whole


def _rank_peak(problem: Problem, shape: Shape, costs: CellCosts, rank: int, chunks: Array) -> Array:
    """Peak memory of one rank, of every placement."""
    card, last = problem.model, rank == shape.pp - 1
    moments = np.array(shape.moments(rank))
    saved = chunks @ _vector(problem, costs.activation)
    transient = int(costs.working[0])
    if last:
        transient = max(transient, int(costs.loss[0]))
        if card.mtp_layers:
            saved[:, -1] += card.mtp_layers * int(costs.activation[card.mtp_kind][0])
    layers = chunks.sum(axis=1, dtype=np.int64)
    resident = _held(problem, costs.static, rank, last, layers) + int(costs.overhead[0])
    extra = (saved @ moments.T).max(axis=1) + transient
    for update in costs.updates:
        extra = np.maximum(extra, _held(problem, update, rank, last, layers))
    peak: Array = resident + extra
    return peak


def _rank_host(problem: Problem, shape: Shape, costs: CellCosts, rank: int, chunks: Array) -> Array:
    """What one rank keeps on the host, of every placement."""
    card, last = problem.model, rank == shape.pp - 1
    layers = chunks.sum(axis=1, dtype=np.int64)
    each = layers @ _vector(problem, costs.offloaded)
    if last and card.mtp_layers:
        each = each + card.mtp_layers * int(costs.offloaded[card.mtp_kind][0])
    most = max(max(vector) for vector in shape.moments(rank))
    host: Array = _held(problem, costs.host, rank, last, layers) + most * each
    return host


def _held(problem: Problem, static: StaticCosts, rank: int, last: bool, kinds: Array) -> Array:
    """A part of the parameters' memory of one rank with these layers of each kind."""
    layers = kinds @ _vector(problem, static.layer)
    whole: Array = static.of_rank(layers, first=rank == 0, last=last, mtp=last)
    return whole


__all__ = [
    "IMPOSSIBLE",
    "Exact",
    "Placements",
    "every_placement",
    "exact_bounds",
    "number_of_placements",
    "placement_peaks",
    "placement_steps",
    "placements",
]
