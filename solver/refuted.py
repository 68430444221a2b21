"""Cells that a program has excluded, and what that says of others.

A cell whose costs are nowhere lower than those of an excluded cell of the same pipeline shape is
excluded as well, within the same limits or narrower ones: any split of it would do at least as
well with the cheaper costs.
"""

from __future__ import annotations

import numpy as np

from meshplan.solver.axes import Array
from meshplan.solver.costs import CellCosts
from meshplan.solver.shapes import Shape


def cost_vectors(costs: CellCosts, ga: Array) -> Array:
    """All costs of each cell of a list, one row a cell."""
    return np.stack([ga, *costs.vectors()], axis=1)


def memory_vectors(costs: CellCosts, ga: Array) -> Array:
    """What decides the memory of each cell of a list, one row a cell."""
    return np.stack([ga, *costs.memory_vectors()], axis=1)


class Refuted:
    """Excluded cells by pipeline shape and batch size, each with the limits it was excluded in."""

    def __init__(self) -> None:
        self._rows: dict[tuple[Shape, int], Array] = {}
        self._used: dict[tuple[Shape, int], int] = {}

    def add(self, shape: Shape, gbs: int, vector: Array, most_step: int, most_peak: int) -> None:
        """Record that no plan of the cell has at most this step time and peak."""
        row = np.concatenate([vector, [-most_step, -most_peak]])
        key = (shape, gbs)
        rows, used = self._rows.get(key), self._used.get(key, 0)
        if rows is None or used == len(rows):
            more = np.empty((max(4, 2 * used), len(row)), dtype=np.int64)
            if rows is not None:
                more[:used] = rows
            rows = self._rows[key] = more
        rows[used] = row
        self._used[key] = used + 1

    def excludes(
        self, shape: Shape, gbs: int, vector: Array, most_step: int, most_peak: int
    ) -> bool:
        """Whether a recorded cell excludes this one within these limits."""
        rows = self._rows.get((shape, gbs))
        if rows is None:
            return False
        wanted = np.concatenate([vector, [-most_step, -most_peak]])
        known = rows[: self._used[shape, gbs]]
        return bool((known <= wanted).all(axis=1).any())
