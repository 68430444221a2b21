"""Cells of a problem, their costs and bounds, and the order in which they are looked at."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from meshplan.constraints.layout import Value
from meshplan.constraints.problem import Problem
from meshplan.constraints.rule import Rule
from meshplan.solver.axes import Array, Axes, Mask
from meshplan.solver.bounds import (
    NEVER,
    coarse_host,
    coarse_memory,
    coarse_step,
    mesh_column,
)
from meshplan.solver.costs import CellCosts, MemoryCosts, cell_costs, memory_costs
from meshplan.solver.meshes import MESH
from meshplan.solver.progress import LimitReached
from meshplan.solver.rank_bounds import Bounds
from meshplan.solver.refuted import cost_vectors
from meshplan.solver.screen import AnyVppBounds
from meshplan.solver.shapes import Shape, free_shapes, live_class
from meshplan.solver.space import build_axes, fixed_slots, vpp_choices

#: Degrees in which alternatives differ from each other.
DISTINCT = ("tp", "cp", "pp", "ep", "etp")
#: Longest step that is looked at, us (51 days); times the largest batch it stays below 2^63.
UNLIMITED = 1 << 42
#: Cells are looked up one by one where fewer than one in so many are left.
_SPARSE = 10
#: Pipeline stages that any layout has, at most.
MOST_STAGES = 1 << 12
#: Cells whose coarse bounds, and whose refined bounds, are computed in one go.
_CELLS_AT_ONCE = 200_000
_REFINED_AT_ONCE = 16384
#: How far beyond the limit the bounds of screened cells are worked out.
_WIDER = 1.1


@dataclass(frozen=True, eq=False)
class Region:
    """Cells of one pipeline degree whose memory may suffice, with their coarse bounds.

    Attributes
    ----------
    indices
        Position of each cell along every axis but vpp.
    bounds, memory
        Least step time of each cell, scaled; least memory of all its stages together, quanta.
    screened
        Cells whose bound is that of :meth:`Space.screen` already.
    vpp_allowed
        By mesh row and vpp: whether the rules allow them together.
    ga, gbs
        By mesh row.
    """

    pp: int
    axes: Axes
    costs: CellCosts
    indices: tuple[Array, ...]
    bounds: Array
    memory: Array
    vpp_allowed: Mask
    ga: Array
    gbs: Array
    screened: Mask

    @cached_property
    def dp(self) -> Array:
        """Data parallelism of each mesh row."""
        return self.axes.column("dp")

    @cached_property
    def degrees(self) -> list[tuple[int, ...]]:
        """:data:`DISTINCT` degrees of each mesh row."""
        pp = np.full(len(self.ga), self.pp)
        columns = [pp if name == "pp" else self.axes.column(name) for name in DISTINCT]
        return list(zip(*(column.tolist() for column in columns), strict=True))

    @cached_property
    def cheapest_costs(self) -> CellCosts:
        """The costs, with the least transfer time over all virtual pipeline degrees."""
        return self.costs.any_vpp()


@dataclass(frozen=True, eq=False)
class Pool:
    """Cells of one pipeline shape with refined bounds, best first.

    ``indices`` are positions along the axes but vpp; ``least`` is the bound of the step time
    scaled to the largest batch.
    """

    region: Region
    shape: Shape
    vpp_index: int
    indices: tuple[Array, ...]
    costs: CellCosts
    ga: Array
    scale: Array
    least: Array
    step: Array

    def take(self, chosen: Array) -> Pool:
        """Some of the cells, in the given order."""
        return replace(
            self,
            indices=tuple(index[chosen] for index in self.indices),
            costs=self.costs.take(chosen),
            ga=self.ga[chosen],
            scale=self.scale[chosen],
            least=self.least[chosen],
            step=self.step[chosen],
        )

    @cached_property
    def vectors(self) -> Array:
        """All costs of each cell, one row a cell."""
        return cost_vectors(self.costs, self.ga)

    def decisions(self, cell: int) -> dict[str, Value]:
        """All decisions of one cell."""
        return self.region.axes.values(
            (*(int(index[cell]) for index in self.indices), self.vpp_index)
        )


#: One cell: a pool, and its position there.
Cell: TypeAlias = tuple[Pool, int]


@dataclass
class Statistics:
    """What the search did."""

    cells: int = 0
    screened: int = 0
    refined: int = 0
    programs: int = 0


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


class Space:
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
        self.deadline = deadline
        self.problem, self.rules, self.pins, self.capacity = problem, rules, pins, capacity
        self.statistics = Statistics()
        #: Least memory per GPU, averaged over the stages, of any legal layout seen so far.
        self.least_mean_memory: int | None = None
        self.largest_batch = max(int(v) for v in pins.get("gbs", problem.candidates["gbs"]))

    def _check_time(self) -> None:
        if self.deadline is not None and time.monotonic() >= self.deadline:
            raise LimitReached

    def regions(self) -> list[Region]:
        """Cells of every pipeline degree that has legal rows."""
        return list(self.each_region())

    def each_region(self) -> Iterator[Region]:
        """One pipeline degree after the other."""
        for pp in self.pins.get("pp", self.problem.candidates["pp"]):
            self._check_time()
            vpp = vpp_choices(self.problem, int(pp), self.pins)
            if not vpp:
                continue
            axes = build_axes(self.problem, int(pp), self.rules, self.pins, vpp)
            if 0 in axes.shape:
                continue
            region = self._region(axes)
            if region is not None:
                yield region

    def _region(self, axes: Axes) -> Region | None:
        """Cells of one pipeline degree whose memory may suffice; None if there are none."""
        self.statistics.cells += math.prod(axes.shape)
        vpp_allowed = self._vpp_allowed(axes)
        axes, vpp_allowed = self._roomy_rows(axes, vpp_allowed)
        if not len(axes.mesh):
            return None
        memory = memory_costs(axes)
        allowed = axes.allowed(rule for rule in self._option_rules if "vpp" not in rule.scope)
        costs: CellCosts | None = None
        found: list[tuple[Array, ...]] = []
        for rows in self._row_chunks(axes):
            chosen, least = self._roomy(axes, memory, rows, vpp_allowed, allowed)
            if not len(least):
                continue
            if costs is None:
                costs = cell_costs(axes, memory)
            found.append(self._bounded_cells(axes, costs, rows, chosen, least))
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

    def scaled(self, step: Array, gbs: Array) -> Array:
        """Step time scaled to the largest batch, rounded up."""
        return -(-np.minimum(step, UNLIMITED) * self.largest_batch // gbs)

    def pools(
        self,
        regions: Sequence[Region],
        most: int,
        wanted: Callable[[Region], Mask] | None = None,
    ) -> list[Pool]:
        """Cells whose refined bound of the scaled step time is at most ``most``.

        ``wanted`` says of which mesh rows; of all if it is left out.
        """
        found: list[Pool] = []
        for region in regions:
            chosen = np.flatnonzero(region.bounds <= most)
            if wanted is not None:
                chosen = chosen[wanted(region)[region.indices[0][chosen]]]
            self.screen(region, chosen, most)
            chosen = chosen[region.bounds[chosen] <= most]
            if len(chosen):
                found += self.refine(region, chosen, most)
        return found

    def screen(self, region: Region, chosen: Array, most: int) -> None:
        """Raise the bounds of some cells to what holds for every virtual pipeline degree.

        A cell is looked at once: where its bound turns out to be far beyond ``most``, only that
        is noted, and it is looked at again if it comes to that.
        """
        degrees = tuple(int(vpp) for (vpp,) in region.axes.others["vpp"])
        if len(degrees) == 1 or fixed_slots(self.problem, region.pp, 1) is not None:
            return
        wide = min(int(most * _WIDER), UNLIMITED)
        chosen = chosen[~region.screened[chosen]]
        ga = region.ga[region.indices[0][chosen]]
        levels, level_of = np.unique(
            np.minimum(ga, live_class(region.pp, 2, int(ga.max(initial=0)))), return_inverse=True
        )
        shapes = tuple(
            Shape(region.pp, 1, int(level), self.problem.extra_warmup) for level in levels
        )
        for start in range(0, len(chosen), _REFINED_AT_ONCE):
            self._check_time()
            part = slice(start, start + _REFINED_AT_ONCE)
            some = chosen[part]
            at = tuple(index[some] for index in region.indices)
            costs = region.cheapest_costs.at((*at, np.zeros_like(at[0])))
            bounds = AnyVppBounds(self.problem, shapes, costs, ga[part], level_of[part], degrees)
            gbs = region.gbs[at[0]]
            step = bounds.least_step(self.capacity, self.unscaled(wide, gbs))
            self.statistics.screened += len(some)
            known = step < NEVER
            region.bounds[some] = np.where(
                known, np.maximum(self.scaled(step, gbs), region.bounds[some]), wide + 1
            )
            region.screened[some] = known

    def refine(self, region: Region, chosen: Array, most: int) -> Iterator[Pool]:
        """Cells of a region, by shape, whose refined bound is at most ``most``."""
        cells, vpp_indices, shape_of, shapes = self._shaped(region, chosen)
        for start in range(0, len(cells), _REFINED_AT_ONCE):
            self._check_time()
            part = slice(start, start + _REFINED_AT_ONCE)
            at = tuple(index[cells[part]] for index in region.indices)
            costs = region.costs.at((*at, vpp_indices[part]))
            ga, gbs = region.ga[at[0]], region.gbs[at[0]]
            first, last = int(shape_of[start]), int(shape_of[part][-1])
            bounds = Bounds(
                self.problem, shapes[first : last + 1], costs, ga, shape_of[part] - first
            )
            step, least = self._bounded(bounds, gbs, most, self.capacity)
            for position in range(first, last + 1):
                keep = np.flatnonzero((shape_of[part] == position) & (least <= most))
                if len(keep):
                    keep = keep[np.argsort(least[keep], kind="stable")]
                    vpp_index = int(vpp_indices[part][keep[0]])
                    pool = Pool(
                        region, shapes[position], vpp_index, at, costs, ga, gbs, least, step
                    )
                    yield pool.take(keep)

    def _shaped(
        self, region: Region, chosen: Array
    ) -> tuple[Array, Array, Array, tuple[Shape, ...]]:
        """Some cells of a region once for each shape that they may have, in order of the shapes.

        Returns
        -------
        tuple
            The cells, the position of their virtual pipeline degree, that of their shape, and the
            shapes.
        """
        rows = region.indices[0][chosen]
        ga, shapes = region.ga[rows], []
        cells, vpp_indices = [chosen[:0]], [chosen[:0]]
        for vpp_index, (vpp,) in enumerate(region.axes.others["vpp"]):
            legal = region.vpp_allowed[rows, vpp_index]
            classes = np.minimum(ga, live_class(region.pp, int(vpp), int(ga.max(initial=0))))
            for level in np.unique(classes[legal]):
                part = chosen[legal & (classes == level)]
                for shape in free_shapes(self.problem, region.pp, int(vpp), int(level)):
                    shapes.append(shape)
                    cells.append(part)
                    vpp_indices.append(np.full_like(part, vpp_index))
        shape_of = np.repeat(np.arange(len(shapes)), [len(part) for part in cells[1:]])
        return np.concatenate(cells), np.concatenate(vpp_indices), shape_of, tuple(shapes)

    def bounded(self, pool: Pool, most: int, capacity: int) -> Iterator[Pool]:
        """The cells of a pool whose bound within ``capacity`` is at most ``most``, best first."""
        bounds = Bounds(self.problem, (pool.shape,), pool.costs, pool.ga)
        step, least = self._bounded(bounds, pool.scale, most, capacity)
        keep = np.nonzero(least <= most)[0]
        if len(keep):
            keep = keep[np.argsort(least[keep], kind="stable")]
            yield replace(pool, least=least, step=step).take(keep)

    def _bounded(self, bounds: Bounds, gbs: Array, most: int, capacity: int) -> tuple[Array, Array]:
        """Least step time of each cell, and the same scaled to the largest batch."""
        step = bounds.least_step(capacity, self.unscaled(most, gbs))
        self.statistics.refined += len(step)
        return step, np.where(step < NEVER, self.scaled(step, gbs), NEVER)

    def unscaled(self, most: int, gbs: Array) -> Array:
        """Most step time of a batch of ``gbs`` whose scaled time is at most ``most``."""
        return most * gbs // self.largest_batch


def in_order(pools: Sequence[Pool], keys: Sequence[Array]) -> Iterator[tuple[int, Cell]]:
    """Cells one by one in the order of their keys, ties in the order of the pools."""
    if not pools:
        return
    merged = np.concatenate(keys)
    owner = np.repeat(np.arange(len(pools)), [len(key) for key in keys])
    position = np.concatenate([np.arange(len(key)) for key in keys])
    for index in np.argsort(merged, kind="stable"):
        pool = pools[int(owner[index])]
        yield int(merged[index]), (pool, int(position[index]))
