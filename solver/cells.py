"""Cells: every decision fixed but the layers' places.  Where they are kept, and in which order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np

from meshplan.constraints.layout import Value
from meshplan.solver.axes import Array, Axes, Mask
from meshplan.solver.costs import CellCosts
from meshplan.solver.refuted import cost_vectors
from meshplan.solver.shapes import Shape

#: Degrees in which alternatives differ from each other.
DISTINCT = ("tp", "cp", "pp", "ep", "etp")
#: Longest step that is looked at, us (51 days); times the largest batch it stays below 2^63.
UNLIMITED = 1 << 42


@dataclass(frozen=True, eq=False)
class Region:
    """Cells of some mesh rows of one pipeline degree, with their coarse bounds.

    Only those whose memory may suffice, and that may be fast enough.

    Attributes
    ----------
    indices
        Position of each cell along every axis but vpp.
    bounds, memory
        Least step time of each cell, scaled; least memory of all its stages together, quanta.
    screened
        Cells whose bound is that for any virtual pipeline degree already.
    vpp_allowed
        By mesh row and vpp: whether the rules allow them together.
    ga, gbs
        By mesh row.
    refined
        Bounds of each shape that were worked out.
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
    refined: Refined

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


class Refined:
    """Cells of a region by shape, with the bounds of these, as far as they were worked out.

    Attributes
    ----------
    capacity
        Memory that the bounds are about.
    reach
        By cell: scaled step time up to which the bounds of all its shapes are known.
    pools
        What lies within, each with the positions of its cells in the region.
    """

    def __init__(self, capacity: int, cells: int) -> None:
        self.capacity = capacity
        self.reach = np.full(cells, -1, dtype=np.int64)
        self.pools: list[tuple[Array, Pool]] = []

    def forget(self, capacity: int) -> None:
        """Begin anew for another memory."""
        self.capacity, self.pools = capacity, []
        self.reach[:] = -1

    def replace(self, cells: Array, reach: int, pools: Iterable[tuple[Array, Pool]]) -> None:
        """Put other pools in place of what is known of these cells."""
        found = list(pools)  # an interrupt leaves what was known
        before = self.reach[cells] >= 0
        if before.any():
            old = np.zeros(len(self.reach), dtype=bool)
            old[cells[before]] = True
            left = [(where, pool, np.flatnonzero(~old[where])) for where, pool in self.pools]
            self.pools = [(where[at], pool.take(at)) for where, pool, at in left if len(at)]
        self.reach[cells] = reach
        self.pools += found


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
