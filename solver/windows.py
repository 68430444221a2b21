"""How many layers of a kind a pipeline slot can hold, wherever the cut points lie."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate

from meshplan.constraints.problem import Problem
from meshplan.scenarios.model_card import LayerKind


@lru_cache(maxsize=4096)
def kind_range(
    problem: Problem, kind: LayerKind, length: int, first: int, after: int
) -> tuple[int, int]:
    """Least and most layers of ``kind`` in a run of ``length`` consecutive layers.

    Parameters
    ----------
    first
        At least this many layers come before the run.
    after
        At least this many come after it.
    """
    total, prefix = problem.model.layers, _prefix(problem, kind)
    starts = range(first, total - length - after + 1)
    counts = [prefix[start + length] - prefix[start] for start in starts]
    return (min(counts), max(counts)) if counts else (0, length)


@lru_cache(maxsize=256)
def _prefix(problem: Problem, kind: LayerKind) -> list[int]:
    """Layers of ``kind`` before each layer, and in all."""
    return [0, *accumulate(int(k == kind) for k in problem.model.layer_kinds)]


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
    slots = pp * len(chunks)
    ranges = []
    for chunk, length in enumerate(chunks):
        index = chunk * pp + rank
        before = max(0, index - 1, earlier if chunk == 0 else 0)
        behind = max(0, slots - index - 2)
        if index == 0:  # begins with the first layer
            behind = problem.model.layers - length
        ranges.append(kind_range(problem, kind, length, before, behind))
    return tuple(ranges)
