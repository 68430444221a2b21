"""Which micro-batches a pipeline rank keeps alive: the 1F1B and interleaved schedules, replayed.

Source: Megatron-LM d98e8a64 ``core/pipeline_parallel/schedules.py``
(``get_pp_rank_microbatches``, ``get_schedule_table``, ``forward_backward_pipelining_*``).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import groupby, islice
from operator import ge


def warmup_microbatches(pp: int, vpp: int, ga: int, rank: int, extra: int = 0) -> int:
    """Forward passes (of one chunk each) that ``rank`` runs before its first backward pass.

    Plain 1F1B (``vpp == 1``): ``pp - rank - 1``; interleaved, with groups of ``pp``
    micro-batches: ``2*(pp - rank - 1) + (vpp - 1)*pp + extra``, where ``extra`` is 1 with
    overlapped expert communication.  Clipped to all that there is.
    """
    if vpp == 1:
        return min(pp - rank - 1, ga)
    return min(2 * (pp - rank - 1) + (vpp - 1) * pp + extra, ga * vpp)


@lru_cache(maxsize=65536)
def live_chunks(
    pp: int, vpp: int, ga: int, rank: int, extra: int = 0
) -> tuple[tuple[int, ...], ...]:
    """Live micro-batches of each chunk at the worst moments of the step.

    Returns
    -------
    tuple of tuples
        Vectors ``(c_0, ..., c_{vpp-1})``: at some moment chunk ``v`` holds the activations of
        ``c_v`` micro-batches.  Vectors that another one dominates are left out, so the live
        activation memory of the rank is ``max over vectors of sum_v c_v * activation_v``.

    Notes
    -----
    With ``vpp > 1`` micro-batches go in groups of ``pp``; a last, smaller group is allowed by
    the replay though not by the default group size.  The steady state repeats after one group,
    so more than four groups are not replayed.
    """
    if vpp == 1:
        return ((min(ga, pp - rank),),)
    replayed = ga if ga <= 4 * pp else 4 * pp + ga % pp
    order = _forward_order(pp, vpp, replayed)
    total = replayed * vpp
    warmup = warmup_microbatches(pp, vpp, replayed, rank, extra)
    live = [0] * vpp
    seen: set[tuple[int, ...]] = set()
    for step in range(total):
        live[order[step]] += 1
        if step >= warmup:
            seen.add(tuple(live))
            live[vpp - 1 - order[step - warmup]] -= 1
    seen.add(tuple(_prefix_counts(order[:warmup], vpp)))
    return _undominated(seen)


def _forward_order(group: int, vpp: int, ga: int) -> list[int]:
    """Chunk of each forward pass: groups of micro-batches, chunk after chunk."""
    order: list[int] = []
    for start in range(0, ga, group):
        size = min(group, ga - start)
        for chunk in range(vpp):
            order.extend([chunk] * size)
    return order


def _prefix_counts(order: list[int], vpp: int) -> list[int]:
    counts = [0] * vpp
    for chunk in order:
        counts[chunk] += 1
    return counts


def _undominated(vectors: set[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
    """The vectors that no other one dominates, sorted."""
    kept: list[tuple[int, ...]] = []
    larger: list[tuple[int, ...]] = []  # those of a larger sum: no other vector can dominate
    for _, equal in groupby(sorted(vectors, key=sum, reverse=True), key=sum):
        kept += [
            vector for vector in equal if not any(all(map(ge, other, vector)) for other in larger)
        ]
        larger = kept.copy()
    return tuple(sorted(kept))


def passes(pp: int, vpp: int, ga: int, warmup: int) -> Iterator[tuple[bool, int, int]]:
    """What a rank runs, in order: whether forward, the chunk, the micro-batch.

    ``warmup`` forward passes, then one forward and one backward pass in turn, then the backward
    passes that are left.
    """
    forward = _all_passes(pp, vpp, ga, True)
    backward = _all_passes(pp, vpp, ga, False)
    yield from islice(forward, warmup)
    for one in forward:
        yield one
        yield next(backward)
    yield from backward


def _all_passes(pp: int, vpp: int, ga: int, forward: bool) -> Iterator[tuple[bool, int, int]]:
    """Passes of one direction: in groups of ``pp`` micro-batches, chunk after chunk."""
    for start in range(0, ga, pp):
        for chunk in range(vpp) if forward else reversed(range(vpp)):
            for micro_batch in range(start, min(start + pp, ga)):
                yield forward, chunk, micro_batch


def live_chunks_total(pp: int, vpp: int, ga: int, rank: int) -> int:
    """Most chunk-micro-batches alive on ``rank`` at once."""
    return max(sum(vector) for vector in live_chunks(pp, vpp, ga, rank))
