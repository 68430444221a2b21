"""All placements of the layers on the ranks of a shape, where these are few.

Short pipelines allow so few layer counts per rank that memory and time of all of them are one
matrix product: an exact bound of a cell, far cheaper than a program.  Long pipelines have too many;
there the program decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

import numpy as np

from meshplan.constraints.pipeline import chunk_counts
from meshplan.constraints.problem import Problem
from meshplan.solver.axes import Array, Mask
from meshplan.solver.bounds import NEVER, most_in_time
from meshplan.solver.costs import CellCosts, StaticCosts, mtp_time_us
from meshplan.solver.shapes import Shape, least_layers, most_layers
from meshplan.solver.space import fixed_slots
from meshplan.solver.time.step import STEP_OVERHEAD_US

#: Placements of one shape that are tabulated, at most, and numbers in one table.
MOST_PLACEMENTS = 3000
_MOST_NUMBERS = 3_000_000


@dataclass(frozen=True, eq=False)
class Placements:
    """Layer counts of all placements.

    Attributes
    ----------
    rank_kinds
        [placement, rank, kind]: layers of each kind on each rank.
    slot_kinds
        [placement, slot, kind].
    live
        By rank: [placement, moment, kind], live layer-micro-batches at the schedule's moments.
    last_chunk
        [moment]: live micro-batches of the last chunk of the last rank, where MTP lies.
    """

    rank_kinds: Array
    slot_kinds: Array
    live: tuple[Array, ...]
    last_chunk: Array


def _counts(layers: int, lowest: tuple[int, ...], highest: int) -> Iterator[tuple[int, ...]]:
    """All counts per rank between the limits that add up to ``layers``."""
    if len(lowest) == 1:
        if lowest[0] <= layers <= highest:
            yield (layers,)
        return
    rest = sum(lowest[1:])
    others = highest * (len(lowest) - 1)
    for first in range(max(lowest[0], layers - others), min(highest, layers - rest) + 1):
        for tail in _counts(layers - first, lowest[1:], highest):
            yield (first, *tail)


def _number(layers: int, lowest: tuple[int, ...], highest: int) -> int:
    """How many placements there are, by dynamic programming over the ranks."""
    ways = np.zeros(layers + 1, dtype=object)
    ways[0] = 1
    for low in lowest:
        following = np.zeros_like(ways)
        for n in range(low, min(highest, layers) + 1):
            following[n:] += ways[: layers + 1 - n]
        ways = following
    return int(ways[layers])


@lru_cache(maxsize=512)
def placements(problem: Problem, shape: Shape, most: int) -> Placements | None:
    """All placements with at most ``most`` layers on a rank; None if they are too many."""
    card, pp, vpp = problem.model, shape.pp, shape.vpp
    if fixed_slots(problem, pp, vpp) is not None:
        return None
    lowest = tuple(least_layers(shape, rank) for rank in range(pp))
    highest = min(most, most_layers(problem, shape))
    number = _number(card.layers, lowest, highest)
    moments = [np.array(shape.moments(rank)) for rank in range(pp)]
    width = max(len(m) for m in moments) + vpp
    if number > MOST_PLACEMENTS or number * pp * width * len(problem.kinds) > _MOST_NUMBERS:
        return None
    counts = np.array(list(_counts(card.layers, lowest, highest)), dtype=np.int64)
    slot_kinds = _slot_kinds(problem, shape, counts.reshape(-1, pp))
    by_rank = [slot_kinds[:, rank::pp, :] for rank in range(pp)]
    return Placements(
        rank_kinds=np.stack([chunks.sum(axis=1) for chunks in by_rank], axis=1),
        slot_kinds=slot_kinds,
        live=tuple(np.einsum("mv,pvk->pmk", moments[rank], by_rank[rank]) for rank in range(pp)),
        last_chunk=moments[-1][:, -1],
    )


def _slot_kinds(problem: Problem, shape: Shape, counts: Array) -> Array:
    """[placement, slot, kind] from [placement, rank]: where each slot begins and ends."""
    pp, vpp, most = shape.pp, shape.vpp, int(counts.max(initial=0))
    chunks = [
        np.array([chunk_counts(n, vpp, last_rank=rank == pp - 1) for n in range(most + 1)])
        for rank in range(pp)
    ]
    by_rank = np.stack([chunks[rank][counts[:, rank]] for rank in range(pp)], axis=2)
    ends = np.cumsum(by_rank.reshape(len(counts), vpp * pp), axis=1)
    starts = ends - by_rank.reshape(len(counts), vpp * pp)
    layer_kinds = problem.model.layer_kinds
    result = []
    for kind in problem.kinds:
        before = np.array([0, *accumulate(int(k == kind) for k in layer_kinds)], dtype=np.int64)
        result.append(before[ends] - before[starts])
    return np.stack(result, axis=2)


@dataclass(frozen=True)
class Exact:
    """Least step time, and least peak, of one cell over all placements within its limits."""

    step: int
    peak: int


def exact_bounds(
    problem: Problem, shape: Shape, costs: CellCosts, ga: int, most_step: int, most_peak: int
) -> Exact | None:
    """Exact optima of the one cell of ``costs``; None if its placements are too many.

    :data:`~meshplan.solver.bounds.NEVER` where no placement lies within the limits.
    """
    budget = np.array([max(0, (most_step - STEP_OVERHEAD_US) // ga)], dtype=np.int64)
    all_ = placements(problem, shape, int(most_in_time(problem, costs, budget)[0]))
    if all_ is None:
        return None
    if not len(all_.rank_kinds):
        return Exact(NEVER, NEVER)
    step = _steps(problem, shape, costs, ga, all_)
    peak = _peaks(problem, shape, costs, all_)
    within = (step <= most_step) & (peak <= most_peak)
    if problem.uses_host_memory:
        within &= _fit_on_host(problem, shape, costs, all_)
    if not within.any():
        return Exact(NEVER, NEVER)
    return Exact(int(step[within].min()), int(peak[within].min()))


def _vector(problem: Problem, values: dict) -> Array:  # type: ignore[type-arg]
    return np.array([int(values[kind][0]) for kind in problem.kinds], dtype=np.int64)


def _steps(problem: Problem, shape: Shape, costs: CellCosts, ga: int, all_: Placements) -> Array:
    """Step time of every placement."""
    layer = _vector(problem, costs.layer_us)
    p2p, first = int(costs.p2p_us[0]), int(costs.first_us[0])
    last = int(costs.loss_us[0]) + int(mtp_time_us(problem, costs)[0])
    slots = all_.slot_kinds @ layer + p2p
    slots[:, 0] += first
    slots[:, -1] += last
    ranks = all_.rank_kinds @ layer + shape.vpp * p2p
    ranks[:, 0] += first
    ranks[:, -1] += last
    bottleneck = ranks.max(axis=1)
    most = all_.rank_kinds.sum(axis=2).max(axis=1)
    exchange = int(costs.exchange_us[0]) * most + int(costs.exchange_ends_us[0])
    exposed = np.maximum(-(-3 * exchange // 10), -(-(2 * exchange - bottleneck) // 2))
    optimizer = int(costs.optimizer_us[0]) * most + int(costs.optimizer_ends_us[0])
    total: Array = ga * bottleneck + (shape.pp - 1) * slots.max(axis=1) + exposed + optimizer
    return total + STEP_OVERHEAD_US


def _peaks(problem: Problem, shape: Shape, costs: CellCosts, all_: Placements) -> Array:
    """Peak memory of every placement."""
    card, saved = problem.model, _vector(problem, costs.activation)
    peak = np.zeros(len(all_.rank_kinds), dtype=np.int64)
    for rank, live in enumerate(all_.live):
        last = rank == shape.pp - 1
        transient = int(costs.working[0])
        moments = live @ saved
        if last:
            transient = max(transient, int(costs.loss[0]))
            if card.mtp_layers:
                mtp = card.mtp_layers * int(costs.activation[card.mtp_kind][0])
                moments = moments + all_.last_chunk * mtp
        resident = _held(problem, costs.static, rank, last, all_) + int(costs.overhead[0])
        extra = moments.max(axis=1) + transient
        for update in costs.updates:
            extra = np.maximum(extra, _held(problem, update, rank, last, all_))
        peak = np.maximum(peak, resident + extra)
    return peak


def _held(problem: Problem, static: StaticCosts, rank: int, last: bool, all_: Placements) -> Array:
    """A part of the parameters' memory of one rank, of every placement."""
    layers = all_.rank_kinds[:, rank] @ _vector(problem, static.layer)
    whole: Array = static.of_rank(layers, first=rank == 0, last=last, mtp=last)
    return whole


def _fit_on_host(problem: Problem, shape: Shape, costs: CellCosts, all_: Placements) -> Mask:
    """Whether what every rank keeps on the host has room there."""
    card, offloaded = problem.model, _vector(problem, costs.offloaded)
    fits: Mask = np.ones(len(all_.rank_kinds), dtype=bool)
    for rank in range(shape.pp):
        last = rank == shape.pp - 1
        each = all_.rank_kinds[:, rank] @ offloaded
        if last and card.mtp_layers:
            each = each + card.mtp_layers * int(costs.offloaded[card.mtp_kind][0])
        most = max(max(vector) for vector in shape.moments(rank))
        host = _held(problem, costs.host, rank, last, all_) + most * each
        fits &= host <= problem.host_capacity
    return fits


__all__ = ["Exact", "Placements", "exact_bounds", "placements"]
