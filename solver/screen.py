"""Bounds of cells that hold whatever the virtual pipeline degree is.

Between the coarse bound and that of one shape (:mod:`~meshplan.solver.bounds`): rank by rank like
the latter, with the fewest micro-batches that any of the virtual degrees keeps alive.  A cell that
it excludes needs no bound for each of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from meshplan.constraints.problem import Problem
from meshplan.scenarios.model_card import LayerKind
from meshplan.solver.axes import Array
from meshplan.solver.bounds import Bounds
from meshplan.solver.shapes import RankTable, free_shapes, live_class, rank_table


@dataclass(frozen=True, eq=False)
class AnyVppBounds(Bounds):
    """Bounds of cells of one pipeline degree over several virtual degrees.

    ``shape`` is that of ``vpp = 1``, ``costs.p2p_us`` the least over all virtual degrees.

    Attributes
    ----------
    degrees
        The virtual degrees.
    level
        Micro-batches a step, or more of them.
    """

    degrees: tuple[int, ...] = (1,)
    level: int = 1

    def _tables(self, limit: Array) -> list[RankTable]:
        top = self._top(limit)
        return [
            _thriftiest(self.problem, self.shape.pp, self.degrees, self.level, rank, top)
            for rank in range(self.shape.pp)
        ]

    def _most_chunks(self) -> int:
        return max(self.degrees)


@lru_cache(maxsize=1024)
def _thriftiest(
    problem: Problem, pp: int, degrees: tuple[int, ...], level: int, rank: int, most: int
) -> RankTable:
    """Least of what a rank keeps alive under any of the virtual degrees, by number of layers."""
    tables = [
        rank_table(problem, shape, rank, most)
        for vpp in degrees
        for shape in free_shapes(problem, pp, vpp, live_class(pp, vpp, level))
    ]
    layers = np.unique(np.concatenate([table.layers for table in tables]))
    return RankTable(
        layers=layers,
        live=_least(layers, [(table, table.live) for table in tables]),
        count=_ranges(layers, [(table, table.count) for table in tables]),
        live_count=_ranges(layers, [(table, table.live_count) for table in tables]),
        live_with_mtp=_least(layers, [(table, table.live_with_mtp) for table in tables]),
        mtp_live=min(table.mtp_live for table in tables),
        most_live=min(table.most_live for table in tables),
    )


def _least(layers: Array, columns: list[tuple[RankTable, Array]], sign: int = 1) -> Array:
    """Least (most where ``sign`` is -1) of the columns for each number of layers."""
    result = np.full_like(layers, np.iinfo(np.int64).max)
    for table, column in columns:
        at = np.searchsorted(layers, table.layers)
        result[at] = np.minimum(result[at], sign * column)
    return sign * result


def _ranges(
    layers: Array, columns: list[tuple[RankTable, dict[LayerKind, tuple[Array, Array]]]]
) -> dict[LayerKind, tuple[Array, Array]]:
    return {
        kind: (
            _least(layers, [(table, ranges[kind][0]) for table, ranges in columns]),
            _least(layers, [(table, ranges[kind][1]) for table, ranges in columns], -1),
        )
        for kind in columns[0][1]
    }
