"""Refined bounds of cells: for any virtual pipeline degree, and for each shape."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from meshplan.constraints.problem import Problem
from meshplan.solver.axes import Array, Mask
from meshplan.solver.bounds import NEVER
from meshplan.solver.cells import UNLIMITED, Pool, Region
from meshplan.solver.costs import CellCosts
from meshplan.solver.progress import LimitReached
from meshplan.solver.rank_bounds import Bounds
from meshplan.solver.screen import AnyVppBounds
from meshplan.solver.shapes import Shape, free_shapes, live_class
from meshplan.solver.space import fixed_slots

#: Cells whose refined bounds are computed in one go.
_REFINED_AT_ONCE = 16384
#: How far beyond the limit that is asked for bounds are worked out.
_WIDER = 1.1


@dataclass
class Statistics:
    """What the search did."""

    cells: int = 0
    screened: int = 0
    refined: int = 0
    programs: int = 0


class Refiner:
    """Bounds of the cells of regions.

    Parameters
    ----------
    capacity
        Memory of one GPU that a plan may use, in quanta; it may be lowered later on.
    largest_batch
        What step times are scaled to.
    deadline
        ``time.monotonic()`` after which :class:`~meshplan.solver.program.LimitReached` is raised.
    """

    def __init__(
        self, problem: Problem, capacity: int, largest_batch: int, deadline: float | None
    ) -> None:
        self.problem, self.capacity, self.deadline = problem, capacity, deadline
        self.largest_batch = largest_batch
        self.statistics = Statistics()

    def _check_time(self) -> None:
        if self.deadline is not None and time.monotonic() >= self.deadline:
            raise LimitReached

    def scaled(self, step: Array, gbs: Array) -> Array:
        """Step time scaled to the largest batch, rounded up."""
        return -(-np.minimum(step, UNLIMITED) * self.largest_batch // gbs)

    def unscaled(self, most: int, gbs: Array) -> Array:
        """Most step time of a batch of ``gbs`` whose scaled time is at most ``most``."""
        return most * gbs // self.largest_batch

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
            if region.refined.capacity != self.capacity:
                region.refined.forget(self.capacity)
                region.screened[:] = False
            roomy = region.memory <= region.pp * self.capacity
            chosen = np.flatnonzero(roomy & (region.bounds <= most))
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
        """Cells of a region, by shape, whose refined bound is at most ``most``.

        Bounds are worked out somewhat further, and kept for the next time that a cell is asked for.
        """
        known = region.refined
        todo = chosen[known.reach[chosen] < most]
        if len(todo):
            wide = min(int(most * _WIDER), UNLIMITED)
            known.replace(todo, wide, self._refined(region, todo, wide))
        wanted = np.zeros(len(known.reach), dtype=bool)
        wanted[chosen] = True
        for cells, pool in known.pools:
            keep = np.flatnonzero(wanted[cells] & (pool.least <= most))
            if len(keep):
                yield pool.take(keep)

    def _refined(self, region: Region, chosen: Array, most: int) -> Iterator[tuple[Array, Pool]]:
        """Pools of cells whose bound is at most ``most``, each with the cells' positions."""
        cells, vpp_indices, shape_of, shapes = self.shaped(region, chosen)
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
                    yield cells[part][keep], pool.take(keep)

    def shaped(
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

    def within(self, pools: Sequence[Pool], most: int, capacity: int) -> list[Pool]:
        """Cells of each pool whose bound within ``capacity`` is at most ``most``, best first."""

        def bound(bounds: Bounds, gbs: Array) -> tuple[Array, Array]:
            return self._bounded(bounds, gbs, most, capacity)

        found = []
        for pool, (step, least) in zip(pools, self._together(pools, bound), strict=True):
            keep = np.flatnonzero(least <= most)
            if len(keep):
                keep = keep[np.argsort(least[keep], kind="stable")]
                found.append(replace(pool, least=least, step=step).take(keep))
        return found

    def least_peaks(self, pools: Sequence[Pool], most: int) -> list[Array]:
        """Least peak memory of the cells of each pool within a scaled step time."""

        def bound(bounds: Bounds, gbs: Array) -> tuple[Array]:
            return (bounds.least_peak(self.capacity, self.unscaled(most, gbs)),)

        return [peaks for (peaks,) in self._together(pools, bound)]

    def _together(
        self, pools: Sequence[Pool], bound: Callable[[Bounds, Array], tuple[Array, ...]]
    ) -> list[tuple[Array, ...]]:
        """Bounds of the cells of each pool, for all pools of a pipeline degree at once."""
        found: dict[int, tuple[Array, ...]] = {}
        for pp in {pool.shape.pp for pool in pools}:
            at = [i for i, pool in enumerate(pools) if pool.shape.pp == pp]
            some = [pools[i] for i in at]
            sizes = [len(pool.ga) for pool in some]
            shape_of = np.repeat(np.arange(len(some)), sizes)
            costs = CellCosts.joined([pool.costs for pool in some])
            ga, gbs = (np.concatenate([getattr(p, name) for p in some]) for name in ("ga", "scale"))
            shapes = tuple(pool.shape for pool in some)
            self._check_time()
            arrays = bound(Bounds(self.problem, shapes, costs, ga, shape_of), gbs)
            ends = np.cumsum(sizes)[:-1]
            each = zip(*(np.split(array, ends) for array in arrays), strict=True)
            found |= zip(at, each, strict=True)
        return [found[i] for i in range(len(pools))]

    def _bounded(self, bounds: Bounds, gbs: Array, most: int, capacity: int) -> tuple[Array, Array]:
        """Least step time of each cell, and the same scaled to the largest batch."""
        step = bounds.least_step(capacity, self.unscaled(most, gbs))
        self.statistics.refined += len(step)
        return step, np.where(step < NEVER, self.scaled(step, gbs), NEVER)
