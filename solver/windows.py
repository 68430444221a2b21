"""How many layers of a kind a pipeline slot can hold, wherever the cut points lie."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from meshplan.constraints.problem import Problem
from meshplan.scenarios.model_card import LayerKind
from meshplan.solver.axes import Array


class Windows:
    """Runs of consecutive layers of a model, and how many layers of one kind they hold."""

    def __init__(self, is_kind: Sequence[bool]) -> None:
        total = len(is_kind)
        before = np.concatenate([[0], np.cumsum(is_kind)])
        start = np.arange(total + 1)
        end = np.minimum(start[None, :] + start[:, None], total)
        counts = (before[end] - before[start]).astype(np.int16)
        # [k, length, start]: least and most of the 2**k runs that begin at start or right after.
        least, most = [counts], [counts]
        for width in (1 << k for k in range(total.bit_length())):
            shifted = np.minimum(start + width, total)
            least.append(np.minimum(least[-1], least[-1][:, shifted]))
            most.append(np.maximum(most[-1], most[-1][:, shifted]))
        self._least, self._most, self._total = np.stack(least), np.stack(most), total

    def ranges(self, length: Array, first: Array, after: Array) -> tuple[Array, Array]:
        """Least and most layers of the kind in runs of ``length`` consecutive layers.

        Parameters
        ----------
        first
            At least this many layers come before the run.
        after
            At least this many come after it.  Where no run is left, 0 and ``length``.
        """
        number = self._total - length - after - first + 1
        level = np.log2(np.maximum(number, 1)).astype(np.int64)
        first = np.minimum(first, self._total)
        later = np.maximum(first + number - (1 << level), 0)
        least = np.minimum(self._least[level, length, first], self._least[level, length, later])
        most = np.maximum(self._most[level, length, first], self._most[level, length, later])
        return np.where(number > 0, least, 0), np.where(number > 0, most, length)


@lru_cache(maxsize=32)
def windows(problem: Problem, kind: LayerKind) -> Windows:
    """Windows of one kind of layer of a problem's model."""
    return Windows([k == kind for k in problem.model.layer_kinds])


def rank_kind_ranges(
    problem: Problem, kind: LayerKind, sizes: Array, earlier: Array
) -> tuple[Array, Array]:
    """Least and most layers of ``kind`` in each chunk of each rank: [rank, i, chunk].

    Every slot but the first and the last holds at least one layer.

    Parameters
    ----------
    sizes
        [rank, i, chunk]: layers of the chunk.
    earlier
        By rank: how many layers the first chunks of the ranks before it hold at least.
    """
    pp, _, vpp = sizes.shape
    index = np.arange(vpp)[None, :] * pp + np.arange(pp)[:, None]
    before = np.maximum(index - 1, 0)
    before[:, 0] = np.maximum(before[:, 0], earlier)
    behind = np.broadcast_to(np.maximum(pp * vpp - index - 2, 0)[:, None, :], sizes.shape).copy()
    behind[0, :, 0] = problem.model.layers - sizes[0, :, 0]  # begins with the first layer
    return windows(problem, kind).ranges(sizes, before[:, None, :], behind)
