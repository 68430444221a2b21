"""Lower bounds of step time and peak memory of cells, valid for every split.

Two levels.  :func:`coarse_memory` and :func:`coarse_step` look at many cells at once and ignore
where layers lie.  :meth:`Bounds.least_step` takes a list of cells of one shape and respects,
rank by rank, how many layers fit in memory and in the time of the bottleneck; for models with
one kind of layer it is exact but for the heaviest slot.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from meshplan.constraints.problem import Problem
from meshplan.scenarios.model_card import LayerKind
from meshplan.solver.axes import Array, Axes, Mask
from meshplan.solver.costs import CellCosts, MemoryCosts, StaticCosts, least, mtp_time_us
from meshplan.solver.shapes import (
    RankTable,
    Shape,
    main_kind,
    most_layers,
    mtp_slot,
    rank_table,
)
from meshplan.solver.space import fixed_slots
from meshplan.solver.time.step import STEP_OVERHEAD_US

#: Larger than any step time.
NEVER = 1 << 60


def mesh_column(axes: Axes, name: str) -> Array:
    """One degree of every mesh row, along the mesh axis."""
    return axes.column(name).reshape(-1, 1, 1, 1, 1, 1)


def coarse_memory(problem: Problem, pp: int, costs: MemoryCosts) -> Array:
    """Least memory of all ranks of a cell together, over all splits.

    All ranks together hold all layers, and each layer keeps at least one micro-batch alive.
    """
    resident = _whole_model(problem, costs.static) + pp * costs.overhead
    memory: Array = resident + pp * costs.working
    for kind, count in problem.kind_counts.items():
        memory = memory + count * costs.activation[kind]
    for update in costs.updates:
        memory = np.maximum(memory, resident + _whole_model(problem, update))
    return memory


def coarse_host(problem: Problem, costs: MemoryCosts) -> Array:
    """Least host memory of all ranks of a cell together, over all splits."""
    host = _whole_model(problem, costs.host)
    for kind, count in problem.kind_counts.items():
        host = host + count * costs.offloaded[kind]
    return host


def _whole_model(problem: Problem, costs: StaticCosts) -> Array:
    """A part of the memory of all ranks together."""
    whole = costs.first + costs.output + costs.mtp
    for kind, count in problem.kind_counts.items():
        whole = whole + count * costs.layer[kind]
    return whole


def coarse_step(problem: Problem, pp: int, costs: CellCosts, ga: Array) -> Array:
    """Least step time of a cell over all splits: the mean rank, and the fullest one."""
    card = problem.model
    mtp = mtp_time_us(problem, costs)
    whole = costs.first_us + costs.loss_us + mtp
    for kind, count in problem.kind_counts.items():
        whole = whole + count * costs.layer_us[kind]
    fastest, p2p = costs.fastest_us, costs.p2p_us
    most = -(-card.layers // pp)
    bottleneck = np.maximum(-(-whole // pp), most * fastest) + p2p
    slot = np.maximum(fastest, _ends_slot(problem, costs, mtp)) + p2p
    step: Array = ga * bottleneck + (pp - 1) * slot + _once(costs, most, bottleneck)
    return step


def _ends_slot(problem: Problem, costs: CellCosts, mtp: Array) -> Array:
    """Time of the slot with the loss; MTP shares it unless a given layout says otherwise."""
    if problem.layout_string is None:
        return costs.loss_us + mtp
    return np.maximum(costs.loss_us, mtp)


def most_in_time(problem: Problem, costs: CellCosts, budget: Array) -> Array:
    """Most layers that one rank runs in ``budget`` us, the fastest kinds first, for each cell."""
    counts = np.array([problem.kind_counts[kind] for kind in problem.kinds], dtype=np.int64)
    times = np.stack([costs.layer_us[kind] for kind in problem.kinds], axis=1)
    order = np.argsort(times, axis=1)
    left, layers = np.asarray(budget).copy(), np.zeros_like(budget)
    for position in range(len(counts)):
        kind = order[:, position]
        time = np.maximum(np.take_along_axis(times, kind[:, None], axis=1)[:, 0], 1)
        taken = np.minimum(counts[kind], left // time)
        layers, left = layers + taken, left - taken * time
    return layers


def _once(costs: CellCosts, most: Array | int, bottleneck: Array) -> Array:
    """Exposed exchange, optimizer and overhead of a step."""
    exchange = most * costs.exchange_us + costs.exchange_ends_us
    exposed: Array = np.maximum(-(-3 * exchange // 10), -(-(2 * exchange - bottleneck) // 2))
    once: Array = exposed + most * costs.optimizer_us + costs.optimizer_ends_us + STEP_OVERHEAD_US
    return once


@dataclass(frozen=True, eq=False)
class Bounds:
    """Bounds of a list of cells of one shape.

    Attributes
    ----------
    costs
        Constants of the cells (arrays of the list's length).
    ga
        Micro-batches a step of each cell.
    """

    problem: Problem
    shape: Shape
    costs: CellCosts
    ga: Array

    def least_step(self, capacity: int | Array, most_step: int) -> Array:
        """Least step time of each cell; :data:`NEVER` if none up to ``most_step`` fits."""
        problem, shape, costs = self.problem, self.shape, self.costs
        limit = self._most_bottleneck(most_step)
        tables = self._tables(limit)
        room = np.asarray(capacity)
        ranks = [self._rank(rank, table, room) for rank, table in enumerate(tables)]
        mtp = mtp_time_us(problem, costs)
        whole = costs.first_us + costs.loss_us + mtp
        for kind, count in problem.kind_counts.items():
            whole = whole + count * costs.layer_us[kind]
        bottleneck = self._least_bottleneck(ranks, -(-whole // shape.pp), limit)
        done = bottleneck < NEVER
        bottleneck = np.where(done, bottleneck, 0)
        most, heaviest = self._fullest()
        fastest = costs.fastest_us
        slot = np.maximum(heaviest * fastest, _ends_slot(problem, costs, mtp))
        slot = np.maximum(slot, -(-bottleneck // self._most_chunks()))
        bottleneck = bottleneck + shape.vpp * costs.p2p_us
        step = self.ga * bottleneck + (shape.pp - 1) * (slot + costs.p2p_us)
        step = step + _once(costs, most, bottleneck)
        return np.where(done & (step <= most_step), step, NEVER)

    def least_peak(self, capacity: int, most_step: int) -> Array:
        """Least peak memory of each cell with a step of at most ``most_step``, by bisection."""
        low = np.zeros_like(self.ga)
        high = np.full_like(self.ga, capacity)
        possible = self.least_step(high, most_step) < NEVER
        while np.any(low < high):
            middle = (low + high) // 2
            fits = self.least_step(middle, most_step) < NEVER
            high = np.where(fits, middle, high)
            low = np.where(fits, low, middle + 1)
            low = np.minimum(low, high)
        return np.where(possible, high, NEVER)

    def rank_ranges(self, capacity: int, most_step: int) -> list[tuple[int, int]] | None:
        """Fewest and most layers of each rank of the first cell within memory and step time.

        None if some rank has no room for any number.
        """
        shape, costs = self.shape, self.costs
        most, heaviest = self._fullest()
        slot = np.maximum(
            heaviest * costs.fastest_us,
            _ends_slot(self.problem, costs, mtp_time_us(self.problem, costs)),
        )
        rest = (shape.pp - 1) * (slot + costs.p2p_us) + _once(
            costs, most, np.full_like(self.ga, NEVER)
        )
        limit = np.maximum((most_step - rest) // self.ga, 0)
        found = []
        for rank, table in enumerate(self._tables(limit)):
            one = self._rank(rank, table, np.asarray(capacity))
            possible = one.layers[one.time[0] + shape.vpp * costs.p2p_us[0] <= limit[0]]
            if not len(possible):
                return None
            found.append((int(possible.min()), int(possible.max())))
        return found

    # -- parts ---------------------------------------------------------------------------------

    def _most_bottleneck(self, most_step: int) -> Array:
        """Bottleneck time (without p2p) that a step of ``most_step`` leaves room for."""
        return np.maximum((most_step - STEP_OVERHEAD_US) // self.ga, 0)

    def _tables(self, limit: Array) -> list[RankTable]:
        top = self._top(limit)
        return [rank_table(self.problem, self.shape, rank, top) for rank in range(self.shape.pp)]

    def _top(self, limit: Array) -> int:
        """Most layers that any rank of any cell holds within the time, or a few more.

        Rounded up to three binary digits, so that few different tables are asked for.
        """
        reachable = int(most_in_time(self.problem, self.costs, limit).max(initial=0))
        unit = 1 << max(0, reachable.bit_length() - 3)
        return max(1, min(most_layers(self.problem, self.shape), -(-reachable // unit) * unit))

    def _most_chunks(self) -> int:
        """Chunks of a rank: its heaviest holds that share of its time at least."""
        return self.shape.vpp

    def _fullest(self) -> tuple[int, int]:
        """Fewest layers that the fullest rank, and the fullest slot, must hold."""
        problem, shape = self.problem, self.shape
        fixed = fixed_slots(problem, shape.pp, shape.vpp)
        if fixed is not None:
            per_rank = [sum(s.count for s in fixed[r :: shape.pp]) for r in range(shape.pp)]
            return max(per_rank), max(slot.count for slot in fixed)
        most = -(-problem.model.layers // shape.pp)
        return most, -(-most // self._most_chunks())

    def _rank(self, rank: int, table: RankTable, capacity: Array) -> _Rank:
        """Time by number of layers, and whether they fit, for every cell."""
        costs, room = self.costs, capacity.reshape(-1, 1)
        first, last = rank == 0, rank == self.shape.pp - 1
        mtp = rank == mtp_slot(self.problem, self.shape) % self.shape.pp
        time = self._sums(costs.layer_us, table.layers, table.count)
        live = self._sums(costs.activation, table.live, table.live_count)
        working = costs.working
        if first:
            time = time + costs.first_us[:, None]
        if last:
            time = time + costs.loss_us[:, None]
            working = np.maximum(working, costs.loss)
        if mtp:
            time = time + mtp_time_us(self.problem, costs)[:, None]
            live = np.maximum(live, self._live_with_mtp(table))

        def held(static: StaticCosts) -> Array:
            layers = self._sums(static.layer, table.layers, table.count)
            ends = static.of_rank(np.zeros_like(self.ga), first=first, last=last, mtp=mtp)
            whole: Array = layers + ends[:, None]
            return whole

        resident = held(costs.static) + costs.overhead[:, None]
        fits = resident + live + working[:, None] <= room
        for update in self._updates_that_may_bind:
            fits &= resident + held(update) <= room
        if self._uses_host_memory:
            host = held(costs.host)
            host = host + table.most_live * self._sums(costs.offloaded, table.layers, table.count)
            fits &= host <= self.problem.host_capacity
        return _Rank(table.layers, np.where(fits, time, NEVER))

    @cached_property
    def _updates_that_may_bind(self) -> tuple[StaticCosts, ...]:
        """Parts of the optimizer step that can need more than the backward pass of some cell.

        All layers of a rank keep at least one micro-batch alive at some moment, so an update that
        takes less than the activations of each layer never makes the peak.
        """
        costs = self.costs

        def binds(update: StaticCosts) -> bool:
            layers = any(np.any(update.layer[k] > costs.activation[k]) for k in update.layer)
            return layers or bool(np.any(update.first + update.output + update.mtp > costs.working))

        return tuple(update for update in costs.updates if binds(update))

    @cached_property
    def _uses_host_memory(self) -> bool:
        host = [*self.costs.host.layer.values(), *self.costs.offloaded.values()]
        return any(bool(array.any()) for array in host)

    def _sums(
        self, values: dict[LayerKind, Array], number: Array, others: dict[LayerKind, Any]
    ) -> Array:
        """Least sum over a rank's ``number`` layers, ``others`` of them not of the main kind."""
        main = main_kind(self.problem)
        total = values[main][:, None] * number[None, :]
        for kind, (low, high) in others.items():
            if high.any():  # most ranks of a model with a few odd layers have none of them
                total = total + _correction(values, kind, main, low, high)
        return total

    def _live_with_mtp(self, table: RankTable) -> Array:
        """Live activations of a rank when most of its chunk with the MTP layers is alive."""
        costs, card = self.costs, self.problem.model
        if not card.mtp_layers:
            return np.zeros((len(self.ga), 1), dtype=np.int64)
        layer = least(list(costs.activation.values()))
        mtp = card.mtp_layers * table.mtp_live * costs.activation[card.mtp_kind]
        return layer[:, None] * table.live_with_mtp[None, :] + mtp[:, None]

    def _least_bottleneck(self, ranks: list[_Rank], start: Array, limit: Array) -> Array:
        """Least time of the fullest rank so that all layers find a place, from ``start`` on."""
        layers = self.problem.model.layers
        bottleneck = start.copy()
        result = np.full_like(start, NEVER)
        open_ = np.arange(len(start))
        while len(open_):
            now = bottleneck[open_]
            placed = np.zeros_like(now)
            following = np.full_like(now, NEVER)
            unplaceable = np.zeros(len(open_), dtype=bool)
            for rank in ranks:
                time = rank.time[open_]
                within = time <= now[:, None]
                placed += np.where(within, rank.layers[None, :], 0).max(axis=1, initial=0)
                unplaceable |= ~within.any(axis=1) & (time.min(axis=1, initial=NEVER) >= NEVER)
                later = np.where(within, NEVER, time).min(axis=1, initial=NEVER)
                following = np.minimum(following, later)
                # A rank that cannot even hold its fewest layers in this time waits for them.
                first = np.where(within.any(axis=1), 0, time.min(axis=1, initial=NEVER))
                placed = np.where(first > 0, -(1 << 40), placed)
            settled = (placed >= layers) & ~unplaceable
            result[open_[settled]] = now[settled]
            goes_on = ~settled & ~unplaceable & (following <= limit[open_])
            bottleneck[open_[goes_on]] = following[goes_on]
            open_ = open_[goes_on]
        return result


@dataclass(frozen=True, eq=False)
class _Rank:
    """Times of one rank: ``time[cell, i]`` with ``layers[i]`` layers, NEVER if they do not fit."""

    layers: Array
    time: Array


def _correction(
    values: dict[LayerKind, Array], kind: LayerKind, main: LayerKind, low: Array, high: Array
) -> Array:
    """Least that ``low .. high`` layers of ``kind`` instead of the main kind change a sum."""
    gap = (values[kind] - values[main])[:, None]
    return np.where(gap >= 0, gap * low[None, :], gap * high[None, :])


__all__ = [
    "NEVER", "Bounds", "Mask", "coarse_host", "coarse_memory", "coarse_step", "mesh_column",
]  # fmt: skip
