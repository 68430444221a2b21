"""How many layers of a kind a pipeline slot can hold, wherever the cut points lie."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate

from meshplan.scenarios.model_card import LayerKind


@lru_cache(maxsize=4096)
def kind_range(
    layer_kinds: tuple[LayerKind, ...], kind: LayerKind, length: int, first: int, after: int
) -> tuple[int, int]:
    """Least and most layers of ``kind`` in a run of ``length`` consecutive layers.

    Parameters
    ----------
    first
        At least this many layers come before the run.
    after
        At least this many come after it.
    """
    total = len(layer_kinds)
    prefix = [0, *accumulate(int(k == kind) for k in layer_kinds)]
    starts = range(min(first, total - length), max(first, total - length - after) + 1)
    counts = [
        prefix[start + length] - prefix[start] for start in starts if start + length <= total
    ]
    return (min(counts), max(counts)) if counts else (0, length)


def rank_kind_range(
    layer_kinds: tuple[LayerKind, ...],
    kind: LayerKind,
    chunks: Sequence[int],
    pp: int,
    rank: int,
) -> tuple[tuple[int, int], ...]:
    """Least and most layers of ``kind`` in each chunk of a rank.

    Every slot but the first and the last holds at least one layer.
    """
    slots = pp * len(chunks)
    ranges = []
    for chunk, length in enumerate(chunks):
        index = chunk * pp + rank
        before, behind = max(0, index - 1), max(0, slots - index - 2)
        ranges.append(kind_range(layer_kinds, kind, length, before, behind))
    return tuple(ranges)


def prefix_kind(layer_kinds: Sequence[LayerKind]) -> tuple[LayerKind, int] | None:
    """Kind and number of the first layers, if that kind occurs nowhere else and others follow."""
    first = layer_kinds[0]
    count = next((i for i, kind in enumerate(layer_kinds) if kind != first), len(layer_kinds))
    if count == len(layer_kinds) or first in layer_kinds[count:]:
        return None
    return first, count
