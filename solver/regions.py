"""The cells of a problem with their costs and bounds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from meshplan.constraints.layout import Value
from meshplan.constraints.problem import Problem
from meshplan.constraints.rule import Rule
from meshplan.solver.axes import Array, Axes, Index, Mask
from meshplan.solver.bounds import (
    NEVER,
    coarse_host,
    coarse_memory,
    coarse_step,
    mesh_column,
)
from meshplan.solver.cells import UNLIMITED, Refined, Region
from meshplan.solver.costs import (
    CellCosts,
    MemoryCosts,
    cell_costs,
    memory_costs,
    offloaded_costs,
    time_costs,
)
from meshplan.solver.meshes import MESH
from meshplan.solver.refiner import Refiner
from meshplan.solver.space import build_axes, vpp_choices

#: Cells are looked up one by one where fewer than one in so many are left.
_SPARSE = 10
#: Pipeline stages that any layout has, at most.
MOST_STAGES = 1 << 12
#: Cells whose coarse bounds are computed in one go.
_CELLS_AT_ONCE = 200_000


def _worthwhile_graphs(costs: CellCosts) -> Mask:
    """Where the captured scopes make some layer faster than no graphs do.

    Graphs change nothing but host time and the memory of their pools, so where the GPU is the
    bottleneck anyway they only cost memory.  The first entry of the axis captures the least.
    """
    worthwhile: Mask = np.zeros((1,) * 6, dtype=bool)
    for layer_us in costs.layer_us.values():
        worthwhile = worthwhile | (layer_us < layer_us[:, :, :1])
    worthwhile[:, :, 0] = True
    return worthwhile


@dataclass(frozen=True, eq=False)
class Rows:
    """Legal mesh rows of one pipeline degree, and which virtual degrees the rules allow with each.

    ``vpp_allowed`` is [mesh row, vpp].
    """

    axes: Axes
    vpp_allowed: Mask

    def some(self, chosen: Index) -> Rows:
        """Some of the rows."""
        return Rows(self.axes.some_rows(chosen), self.vpp_allowed[chosen])


class Space(Refiner):
    """All cells that rules and pins allow.

    Parameters
    ----------
    rules, pins
        What holds; pins replace the candidates of a decision.
    capacity
        Memory of one GPU that a plan may use, in quanta.
    deadline
        ``time.monotonic()`` after which :class:`~meshplan.solver.program.LimitReached` is raised.
    """

    def __init__(
        self,
        problem: Problem,
        rules: Sequence[Rule],
        pins: dict[str, tuple[Value, ...]],
        capacity: int,
        deadline: float | None = None,
    ) -> None:
        largest_batch = max(int(v) for v in pins.get("gbs", problem.candidates["gbs"]))
        super().__init__(problem, capacity, largest_batch, deadline)
        self.rules, self.pins = rules, pins
        #: Least memory per GPU, averaged over the stages, of any legal layout seen so far.
        self.least_mean_memory: int | None = None
        #: Scaled step time beyond which no cell is wanted.
        self.most = UNLIMITED

    def regions(self) -> list[Region]:
        """Cells of every pipeline degree that has legal rows."""
        return list(self.each_region())

    def each_region(self) -> Iterator[Region]:
        """One pipeline degree after the other."""
        for rows in self.each_rows():
            region = self.region(rows)
            if region is not None:
                yield region

    def each_rows(self) -> Iterator[Rows]:
        """The legal mesh rows of one pipeline degree after the other."""
        for pp in self.pins.get("pp", self.problem.candidates["pp"]):
            self._check_time()
            vpp = vpp_choices(self.problem, int(pp), self.pins)
            if not vpp:
                continue
            axes = build_axes(self.problem, int(pp), self.rules, self.pins, vpp)
            if 0 in axes.shape:
                continue
            self.statistics.cells += math.prod(axes.shape)
            yield Rows(axes, self._vpp_allowed(axes))

    def least_step(self, rows: Rows) -> Array:
        """Lower bound of the scaled step time of each row, whatever the options are.

        Without the transfers between slots, which have a value for each virtual degree.
        """
        axes = rows.axes.rows_cheapest()
        step = coarse_step(
            self.problem,
            axes.pp,
            time_costs(axes, offloaded_costs(axes), between_slots=False),
            mesh_column(axes, "ga"),
        )
        least = np.broadcast_to(
            self.scaled(step, mesh_column(axes, "gbs")), (len(axes.mesh), *step.shape[1:])
        )
        return least.reshape(-1)

    def region(self, rows: Rows) -> Region | None:
        """Cells of some rows whose memory may suffice; None if there are none."""
        axes, vpp_allowed = self._roomy_rows(rows.axes, rows.vpp_allowed)
        if not len(axes.mesh):
            return None
        memory = memory_costs(axes)
        allowed = axes.allowed(rule for rule in self._option_rules if "vpp" not in rule.scope)
        costs: CellCosts | None = None
        found: list[tuple[Array, ...]] = []
        for some in self._row_chunks(axes):
            chosen, least = self._roomy(axes, memory, some, vpp_allowed, allowed)
            if not len(least):
                continue
            if costs is None:
                costs = cell_costs(axes, memory)
            found.append(self._bounded_cells(axes, costs, some, chosen, least))
        if costs is None:
            return None
        joined = [np.concatenate(columns) for columns in zip(*found, strict=True)]
        return Region(
            axes.pp,
            axes,
            costs,
            tuple(joined[:5]),
            joined[5],
            joined[6],
            vpp_allowed,
            axes.column("ga"),
            axes.column("gbs"),
            np.zeros(len(joined[5]), dtype=bool),
            Refined(self.capacity, len(joined[5])),
        )

    def _roomy_rows(self, axes: Axes, vpp_allowed: Mask) -> tuple[Axes, Mask]:
        """The mesh rows that some vpp allows and whose thriftiest options may fit in memory.

        If there are none, the row that needs the least stays, for the message that says so.
        """
        costs = memory_costs(axes.rows_cheapest())
        memory = coarse_memory(self.problem, axes.pp, costs).reshape(-1)
        memory = np.where(vpp_allowed.any(axis=1), memory, NEVER)
        chosen = np.flatnonzero(memory <= axes.pp * self.capacity)
        if not len(chosen):
            chosen = np.flatnonzero(memory == memory.min())
        return axes.some_rows(chosen), vpp_allowed[chosen]

    def _row_chunks(self, axes: Axes) -> Iterator[slice]:
        """Mesh rows, so many at a time that their cells are not too many at once."""
        step = max(1, _CELLS_AT_ONCE // math.prod(axes.shape[1:5]))
        for start in range(0, len(axes.mesh), step):
            self._check_time()
            yield slice(start, min(start + step, len(axes.mesh)))

    def _bounded_cells(
        self,
        axes: Axes,
        costs: CellCosts,
        rows: slice,
        chosen: tuple[Array, ...],
        memory: Array,
    ) -> tuple[Array, ...]:
        """Indices, scaled bounds and memory of the chosen cells of some mesh rows."""
        part = costs.any_vpp().rows(rows.start, rows.stop)
        ga, gbs = mesh_column(axes, "ga")[rows], mesh_column(axes, "gbs")[rows]
        full = (rows.stop - rows.start, *axes.shape[1:5], 1)
        if len(memory) * _SPARSE < math.prod(full):
            part = part.at((*chosen, np.zeros_like(chosen[0])))
            step = coarse_step(self.problem, axes.pp, part, ga[chosen[0], 0, 0, 0, 0, 0])
            keep = np.ones(len(memory), dtype=bool)
        else:
            all_ = coarse_step(self.problem, axes.pp, part, ga)
            step = np.broadcast_to(all_, full)[(*chosen, np.zeros_like(chosen[0]))]
            worthwhile = np.broadcast_to(_worthwhile_graphs(part), full)
            keep = worthwhile[(*chosen, np.zeros_like(chosen[0]))]
        scaled = self.scaled(step, gbs[chosen[0], 0, 0, 0, 0, 0])
        keep &= scaled <= self.most
        # Indices are small and cells many, so they are kept in 32 bits.
        offset = (rows.start, 0, 0, 0, 0)
        small: list[Any] = [
            (index + first)[keep].astype(np.int32)
            for index, first in zip(chosen, offset, strict=True)
        ]
        return (*small, scaled[keep], memory[keep])

    @cached_property
    def _option_rules(self) -> list[Rule]:
        """Rules that read more than degrees of the mesh."""
        return [rule for rule in self.rules if not set(rule.scope) <= {"pp", *MESH}]

    def _vpp_allowed(self, axes: Axes) -> Mask:
        """What the rules allow: [mesh row, vpp]."""
        allowed = np.ones((len(axes.mesh), axes.shape[5]), dtype=bool)
        for mask in axes.allowed(rule for rule in self._option_rules if "vpp" in rule.scope):
            allowed = allowed & mask[:, 0, 0, 0, 0, :]
        return allowed

    def _roomy(
        self,
        axes: Axes,
        costs: MemoryCosts,
        rows: slice,
        vpp_allowed: Mask,
        allowed: Sequence[Mask],
    ) -> tuple[tuple[Array, ...], Array]:
        """Legal cells of some rows whose memory may suffice, and what their stages need together.

        Positions along the mesh axis count from the first of the rows.
        """
        part = costs.rows(rows.start, rows.stop)
        legal: Mask = vpp_allowed[rows].any(axis=1).reshape(-1, 1, 1, 1, 1, 1)
        for mask in allowed:
            legal = legal & (mask[rows] if len(mask) > 1 else mask)
        memory = np.where(legal, coarse_memory(self.problem, axes.pp, part), NEVER)
        if self.problem.uses_host_memory:
            host = coarse_host(self.problem, part)
            memory = np.where(host <= axes.pp * self.problem.host_capacity, memory, NEVER)
        memory = np.broadcast_to(memory, (rows.stop - rows.start, *axes.shape[1:5], 1))
        self._note_memory(int(memory.min()) // axes.pp)
        chosen = np.nonzero(memory <= axes.pp * self.capacity)
        return chosen[:5], memory[chosen]

    def _note_memory(self, mean: int) -> None:
        if mean < NEVER // MOST_STAGES and (
            self.least_mean_memory is None or mean < self.least_mean_memory
        ):
            self.least_mean_memory = mean
