"""How many layers of a kind a pipeline slot can hold, wherever the cut points lie."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate

from meshplan.constraints.problem import Problem
from meshplan.scenarios.model_card import LayerKind


class Windows:
    """Runs of consecutive layers of a model, and how many layers of one kind they hold."""

    def __init__(self, is_kind: Sequence[bool]) -> None:
        self._prefix = [0, *accumulate(int(one) for one in is_kind)]
        self._counts: dict[int, list[int]] = {}
        self._ranges: dict[tuple[int, int, int], tuple[int, int]] = {}

    def range(self, length: int, first: int, after: int) -> tuple[int, int]:
        """Least and most layers of the kind in a run of ``length`` consecutive layers.

        Parameters
        ----------
        first
            At least this many layers come before the run.
        after
            At least this many come after it.
        """
        key = (length, first, after)
        if key not in self._ranges:
            if length not in self._counts:
                ends = zip(self._prefix, self._prefix[length:], strict=False)
                self._counts[length] = [end - start for start, end in ends]
            end = max(0, len(self._prefix) - length - after)
            counts = self._counts[length][first:end]
            self._ranges[key] = (min(counts), max(counts)) if counts else (0, length)
        return self._ranges[key]


@lru_cache(maxsize=256)
def windows(problem: Problem, kind: LayerKind) -> Windows:
    """Windows of one kind of layer of a problem's model."""
    return Windows([k == kind for k in problem.model.layer_kinds])


def rank_kind_range(
    problem: Problem,
    kind: LayerKind,
    chunks: Sequence[int],
    pp: int,
    rank: int,
    earlier: int,
) -> tuple[tuple[int, int], ...]:
    """Least and most layers of ``kind`` in each chunk of a rank.

    Every slot but the first and the last holds at least one layer, and the first chunks of the
    ranks before this one hold at least ``earlier`` layers together.
    """
    slots, all_ = pp * len(chunks), windows(problem, kind)
    ranges = []
    for chunk, length in enumerate(chunks):
        index = chunk * pp + rank
        before = max(0, index - 1, earlier if chunk == 0 else 0)
        behind = max(0, slots - index - 2)
        if index == 0:  # begins with the first layer
            behind = problem.model.layers - length
        ranges.append(all_.range(length, before, behind))
    return tuple(ranges)
