"""Lower bounds of step time and peak memory of cells, rank by rank, valid for every split.

They respect how many layers of each rank fit in memory and in the time of the bottleneck; for
models with one kind of layer they are exact but for the heaviest slot.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from meshplan.constraints.problem import Problem
from meshplan.scenarios.model_card import LayerKind
from meshplan.solver.axes import Array
from meshplan.solver.bounds import NEVER, ends_slot, most_in_time, once_us
from meshplan.solver.costs import CellCosts, StaticCosts, least, mtp_time_us
from meshplan.solver.rank_tables import RankTables, rank_tables, stacked
from meshplan.solver.shapes import Shape, main_kind, most_layers, mtp_slot
from meshplan.solver.space import fixed_slots
from meshplan.solver.time.step import STEP_OVERHEAD_US

#: Numbers in one array by cell, rank and number of layers, about.
_AT_ONCE = 1 << 18


@dataclass(frozen=True, eq=False)
class Bounds:
    """Bounds of a list of cells of one pipeline degree.

    Attributes
    ----------
    shapes
        Their pipeline shapes.
    costs
        Constants of the cells (arrays of the list's length).
    ga
        Micro-batches a step of each cell.
    shape_of
        Position of each cell's shape in ``shapes``; left out where there is one shape.
    """

    problem: Problem
    shapes: tuple[Shape, ...]
    costs: CellCosts
    ga: Array
    shape_of: Array | None = None

    def least_step(self, capacity: int | Array, most_step: int | Array) -> Array:
        """Least step time of each cell; :data:`NEVER` if none up to ``most_step`` fits."""
        room = np.broadcast_to(capacity, self.ga.shape)
        most = np.broadcast_to(most_step, self.ga.shape)
        found = [
            part._step(part._ranks(tables), room[where], most[where])
            for where, part, tables in self._parts(most)
        ]
        return np.concatenate(found)

    def least_peak(self, capacity: int, most_step: int | Array) -> Array:
        """Least peak memory of each cell with a step of at most ``most_step``, by bisection."""
        most = np.broadcast_to(most_step, self.ga.shape)
        found = [
            part._peak(part._ranks(tables), capacity, most[where])
            for where, part, tables in self._parts(most)
        ]
        return np.concatenate(found)

    def rank_ranges(self, capacity: int, most_step: int) -> list[tuple[int, int]] | None:
        """Fewest and most layers of each rank of the first cell within memory and step time.

        None if some rank has no room for any number.
        """
        most, heaviest = self._fullest
        slot = np.maximum(heaviest * self.costs.fastest_us, self._ends)
        rest = (self._pp - 1) * (slot + self.costs.p2p_us) + once_us(
            self.costs, most, np.full_like(self.ga, NEVER)
        )
        limit = np.maximum((most_step - rest) // self.ga, 0)
        tables = self._tables(self._top(limit))
        ranks = self._ranks(tables)
        time = np.where(ranks.need[0] <= capacity, ranks.time[0], NEVER)
        within = time + self._of_cells(self._vpps)[0] * self.costs.p2p_us[0] <= limit[0]
        if not within.any(axis=1).all():
            return None
        layers = np.broadcast_to(ranks.layers[0], within.shape)
        return [
            (int(some[inside].min()), int(some[inside].max()))
            for some, inside in zip(layers, within, strict=True)
        ]

    # -- parts ---------------------------------------------------------------------------------

    @property
    def _pp(self) -> int:
        return self.shapes[0].pp

    def _parts(self, most_step: Array) -> Iterator[tuple[slice, Bounds, RankTables]]:
        """The list in parts whose arrays are not too large, each with the tables of its cells."""
        limit = np.maximum((most_step - STEP_OVERHEAD_US) // self.ga, 0)
        tables = self._tables(self._top(limit))
        each = max(1, _AT_ONCE // (self._pp * tables.layers.shape[-1]))
        for start in range(0, max(1, len(self.ga)), each):
            where = slice(start, min(start + each, len(self.ga)))
            shape_of = None if self.shape_of is None else self.shape_of[where]
            part = replace(self, costs=self.costs.take(where), ga=self.ga[where], shape_of=shape_of)
            yield where, part, tables

    def _tables(self, top: int) -> RankTables:
        """Tables of all shapes."""
        return stacked([rank_tables(self.problem, shape, top) for shape in self.shapes])

    def _top(self, limit: Array) -> int:
        """Most layers that any rank of any cell holds within the time, or a few more.

        Rounded up to three binary digits, so that few different tables are asked for.
        """
        reachable = int(most_in_time(self.problem, self.costs, limit).max(initial=0))
        unit = 1 << max(0, reachable.bit_length() - 3)
        most = max(most_layers(self.problem, shape) for shape in self.shapes)
        return max(1, min(most, -(-reachable // unit) * unit))

    def _of_cells(self, values: Any) -> Array:
        """What each cell has of an array by shape."""
        array = np.asarray(values)
        return array[:1] if self.shape_of is None else array[self.shape_of]

    @cached_property
    def _vpps(self) -> list[int]:
        return [shape.vpp for shape in self.shapes]

    def _chunks(self) -> list[int]:
        """Chunks of a rank, by shape: its heaviest holds that share of its time at least."""
        return self._vpps

    @cached_property
    def _fullest(self) -> tuple[Array, Array]:
        """Fewest layers that the fullest rank, and the fullest slot, of each cell must hold."""
        problem, pp = self.problem, self._pp
        most = -(-problem.model.layers // pp)
        found = []
        for shape, chunks in zip(self.shapes, self._chunks(), strict=True):
            fixed = fixed_slots(problem, pp, shape.vpp)
            if fixed is None:
                found.append((most, -(-most // chunks)))
            else:
                per_rank = [sum(s.count for s in fixed[r::pp]) for r in range(pp)]
                found.append((max(per_rank), max(slot.count for slot in fixed)))
        ranks, slots = zip(*found, strict=True)
        return self._of_cells(ranks), self._of_cells(slots)

    @cached_property
    def _mtp_us(self) -> Array:
        return mtp_time_us(self.problem, self.costs)

    @cached_property
    def _ends(self) -> Array:
        return ends_slot(self.problem, self.costs, self._mtp_us)

    def _ranks(self, tables: RankTables) -> _Ranks:
        """Time and memory of every rank of every cell, by its number of layers."""
        costs, problem = self.costs, self.problem
        if self.shape_of is not None:
            tables = tables.at(self.shape_of)
        mtp = mtp_slot(problem, self.shapes[0]) % self._pp
        time = self._sums(costs.layer_us, tables.layers, tables.count)
        live = self._sums(costs.activation, tables.live, tables.live_count)
        whole = (len(self.ga), self._pp, tables.layers.shape[-1])
        time, live = (np.broadcast_to(array, whole).copy() for array in (time, live))
        time[:, 0] += costs.first_us[:, None]
        time[:, -1] += costs.loss_us[:, None]
        time[:, mtp] += self._mtp_us[:, None]
        if problem.model.mtp_layers:
            live[:, mtp] = np.maximum(live[:, mtp], self._live_with_mtp(tables))
        held = self._held(costs.static, tables, mtp) + costs.overhead[:, None, None]
        need = live
        need[:, :-1] += costs.working[:, None, None]
        need[:, -1] += np.maximum(costs.working, costs.loss)[:, None]
        for update in self._updates_that_may_bind:
            np.maximum(need, self._held(update, tables, mtp), out=need)
        need += held
        fits = np.broadcast_to(tables.possible, whole)
        if self._uses_host_memory:
            offloaded = self._sums(costs.offloaded, tables.layers, tables.count)
            host = self._held(costs.host, tables, mtp) + tables.most_live[:, :, None] * offloaded
            fits = fits & (host <= problem.host_capacity)
        return _Ranks(tables.layers, np.where(fits, time, NEVER), need)

    def _held(self, static: StaticCosts, tables: RankTables, mtp: int) -> Array:
        """A part of the parameters' memory of every rank."""
        layers = self._sums(static.layer, tables.layers, tables.count)
        whole = (len(self.ga), self._pp, tables.layers.shape[-1])
        held = np.broadcast_to(layers, whole).copy()
        held[:, 0] += static.first[:, None]
        held[:, -1] += static.output[:, None]
        held[:, mtp] += static.mtp[:, None]
        return held

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
        total = values[main][:, None, None] * number
        for kind, (low, high) in others.items():
            if high.any():  # most ranks of a model with a few odd layers have none of them
                gap = (values[kind] - values[main])[:, None, None]
                total = total + np.where(gap >= 0, gap * low, gap * high)
        return total

    def _live_with_mtp(self, tables: RankTables) -> Array:
        """Live activations of a rank when most of its chunk with the MTP layers is alive."""
        costs, card = self.costs, self.problem.model
        layer = least(list(costs.activation.values()))
        mtp = card.mtp_layers * tables.mtp_live * costs.activation[card.mtp_kind]
        whole: Array = layer[:, None] * tables.live_with_mtp + mtp[:, None]
        return whole

    # -- bounds --------------------------------------------------------------------------------

    def _step(self, ranks: _Ranks, room: Array, most_step: Array) -> Array:
        """Least step time of each cell within ``room``; NEVER if it is more than ``most_step``."""
        problem, pp, costs = self.problem, self._pp, self.costs
        whole = costs.first_us + costs.loss_us + self._mtp_us
        for kind, count in problem.kind_counts.items():
            whole = whole + count * costs.layer_us[kind]
        bottleneck = ranks.bottleneck(room, problem.model.layers)
        done = bottleneck < NEVER
        bottleneck = np.where(done, np.maximum(bottleneck, -(-whole // pp)), 0)
        most, heaviest = self._fullest
        slot = np.maximum(heaviest * costs.fastest_us, self._ends)
        slot = np.maximum(slot, -(-bottleneck // self._of_cells(self._chunks())))
        bottleneck = bottleneck + self._of_cells(self._vpps) * costs.p2p_us
        step = self.ga * bottleneck + (pp - 1) * (slot + costs.p2p_us)
        step = step + once_us(costs, most, bottleneck)
        return np.where(done & (step <= most_step), step, NEVER)

    def _peak(self, ranks: _Ranks, capacity: int, most_step: Array) -> Array:
        """Least room of each cell in which some step is at most ``most_step``; NEVER if none."""
        low = np.zeros_like(self.ga)
        high = np.full_like(self.ga, capacity)
        possible = self._step(ranks, high, most_step) < NEVER
        while np.any(low < high):
            middle = (low + high) // 2
            fits = self._step(ranks, middle, most_step) < NEVER
            high = np.where(fits, middle, high)
            low = np.minimum(np.where(fits, low, middle + 1), high)
        return np.where(possible, high, NEVER)


@dataclass(frozen=True, eq=False)
class _Ranks:
    """Ranks of some cells: ``[cell, rank, i]`` is about the ``i``-th number of layers.

    Attributes
    ----------
    layers
        The numbers, consecutive; for all cells, or for all ranks, the same where there is one.
    time
        Time of a micro-batch; NEVER if the rank cannot hold so many layers.
    need
        Memory.
    """

    layers: Array
    time: Array
    need: Array

    def bottleneck(self, room: Array, layers: int) -> Array:
        """Least time of the fullest rank so that ``layers`` find a place; NEVER if they do not.

        In a time each rank holds the numbers of layers whose least time, or that of any larger
        number, is within it.  So the ranks together hold one layer less than the first number
        each, and one for each such number.
        """
        cells, pp, numbers = self.time.shape
        time = np.where(self.need <= room[:, None, None], self.time, NEVER)
        time = np.minimum.accumulate(time[:, :, ::-1], axis=2)
        all_ranks: Array = time[:, :, -1].max(axis=1)
        first = np.broadcast_to(self.layers[..., 0], (cells, pp)).sum(axis=1) - pp
        wanted = layers - first
        nth = np.clip(wanted - 1, 0, pp * numbers - 1)
        filled = np.partition(time.reshape(cells, pp * numbers), np.unique(nth), axis=1)
        filled = np.where(wanted > pp * numbers, NEVER, filled[np.arange(cells), nth])
        least_time: Array = np.maximum(all_ranks, filled)
        return least_time


__all__ = ["Bounds"]
