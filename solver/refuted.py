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


class Refuted:
    """Excluded cells by pipeline shape and batch size, each with the limits it was excluded in."""

    def __init__(self) -> None:
        self._rows: dict[tuple[Shape, int], list[Array]] = {}

    def add(self, shape: Shape, gbs: int, vector: Array, most_step: int, most_peak: int) -> None:
        """Record that no plan of the cell has at most this step time and peak."""
        limits = np.array([-most_step, -most_peak], dtype=np.int64)
        self._rows.setdefault((shape, gbs), []).append(np.concatenate([vector, limits]))

    def excludes(
        self, shape: Shape, gbs: int, vector: Array, most_step: int, most_peak: int
    ) -> bool:
        """Whether a recorded cell excludes this one within these limits."""
        rows = self._rows.get((shape, gbs))
        if not rows:
            return False
        limits = np.array([-most_step, -most_peak], dtype=np.int64)
        wanted = np.concatenate([vector, limits])
        return bool(np.any(np.all(np.stack(rows) <= wanted, axis=1)))
