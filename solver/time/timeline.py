"""When each pass of a pipeline runs: the schedule replayed with the times of its slots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from meshplan.constraints.schedule import passes


@dataclass(frozen=True)
class Pass:
    """One pass of one micro-batch through one slot; times from the start of the step, in seconds.

    Attributes
    ----------
    forward
        Forward or backward.
    """

    rank: int
    chunk: int
    micro_batch: int
    forward: bool
    start_s: float
    end_s: float


def timeline(
    forward_s: Sequence[float],
    backward_s: Sequence[float],
    warmup: Sequence[int],
    ga: int,
    most: int | None = None,
) -> list[Pass]:
    """Passes of a step in the order of their start.

    Each rank runs its passes in the framework's order, each as soon as the rank is free and its
    neighbours have delivered what it needs.

    Parameters
    ----------
    forward_s, backward_s
        Seconds of a pass of each slot; slot ``i`` is chunk ``i // pp`` of rank ``i % pp``.
    warmup
        For each of the ``pp`` ranks how many forward passes come before its first backward pass.
    ga
        Micro-batches.
    most
        How many of them are wanted; None for the whole step.
    """
    slots, pp = len(forward_s), len(warmup)
    queues = [passes(pp, slots // pp, ga, ahead) for ahead in warmup]
    heads = [next(queue, None) for queue in queues]
    free = [0.0] * pp
    done: dict[tuple[bool, int, int], float] = {}
    found: list[Pass] = []
    while most is None or len(found) < most:
        starts = [
            (start, rank)
            for rank, head in enumerate(heads)
            if head is not None
            and (start := _start(head, rank, pp, slots, free[rank], done)) is not None
        ]
        if not starts:
            break
        start, rank = min(starts)
        head = heads[rank]
        assert head is not None
        forward, chunk, micro_batch = head
        slot = chunk * pp + rank
        free[rank] = start + (forward_s if forward else backward_s)[slot]
        done[forward, slot, micro_batch] = free[rank]
        found.append(Pass(rank, chunk, micro_batch, forward, start, free[rank]))
        heads[rank] = next(queues[rank], None)
    return found


def _start(
    head: tuple[bool, int, int],
    rank: int,
    pp: int,
    slots: int,
    free: float,
    done: dict[tuple[bool, int, int], float],
) -> float | None:
    """When a pass can start; None while what it needs has no end yet."""
    forward, chunk, micro_batch = head
    slot = chunk * pp + rank
    if forward:
        needs = [(True, slot - 1, micro_batch)] if slot else []
    else:
        needs = [(True, slot, micro_batch)]
        needs += [(False, slot + 1, micro_batch)] if slot + 1 < slots else []
    ends = [done.get(need) for need in needs]
    known = [end for end in ends if end is not None]
    return max([free, *known]) if len(known) == len(ends) else None


__all__ = ["Pass", "timeline"]
