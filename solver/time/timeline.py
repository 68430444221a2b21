"""When each pass of a pipeline runs: the schedule replayed with the times of its slots."""

from __future__ import annotations

import heapq
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
    neighbours have delivered what it needs.  Where no rank can go on, as in an interleaved pipeline
    with a broken group of micro-batches, those are all.

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
    replay = _Replay(forward_s, backward_s, warmup, ga)
    found: list[Pass] = []
    while replay.ready and (most is None or len(found) < most):
        found.append(replay.run())
    return found


class _Replay:
    """Ranks in the middle of a step: which of them can go on, and from when.

    Attributes
    ----------
    ready
        A heap of starts and ranks; all other ranks wait for a neighbour, or are done.
    """

    def __init__(
        self,
        forward_s: Sequence[float],
        backward_s: Sequence[float],
        warmup: Sequence[int],
        ga: int,
    ) -> None:
        self._durations = (backward_s, forward_s)
        self._slots, self._pp = len(forward_s), len(warmup)
        vpp = self._slots // self._pp
        self._queues = [passes(self._pp, vpp, ga, ahead) for ahead in warmup]
        self._heads = [next(queue, None) for queue in self._queues]
        self._free = [0.0] * self._pp
        self._done: dict[tuple[bool, int, int], float] = {}
        self._waiting = set(range(self._pp))
        self.ready: list[tuple[float, int]] = []
        for rank in range(self._pp):
            self._wake(rank)

    def run(self) -> Pass:
        """Run the pass that starts first."""
        start, rank = heapq.heappop(self.ready)
        head = self._heads[rank]
        assert head is not None
        forward, chunk, micro_batch = head
        slot = chunk * self._pp + rank
        end = start + self._durations[forward][slot]
        self._free[rank] = self._done[forward, slot, micro_batch] = end
        self._heads[rank] = next(self._queues[rank], None)
        self._waiting.add(rank)
        for one in {rank, (rank + 1) % self._pp, (rank - 1) % self._pp}:
            self._wake(one)
        return Pass(rank, chunk, micro_batch, forward, start, end)

    def _wake(self, rank: int) -> None:
        """Let a rank go on if all that its next pass needs has an end."""
        head = self._heads[rank]
        if rank not in self._waiting or head is None:
            return
        ends = [self._done.get(need) for need in self._needs(rank, *head)]
        known = [end for end in ends if end is not None]
        if len(known) == len(ends):
            self._waiting.remove(rank)
            heapq.heappush(self.ready, (max([self._free[rank], *known]), rank))

    def _needs(
        self, rank: int, forward: bool, chunk: int, micro_batch: int
    ) -> list[tuple[bool, int, int]]:
        """Passes, by slot, that a pass needs the result of."""
        slot = chunk * self._pp + rank
        if forward:
            return [(True, slot - 1, micro_batch)] if slot else []
        after = [(False, slot + 1, micro_batch)] if slot + 1 < self._slots else []
        return [(True, slot, micro_batch), *after]


__all__ = ["Pass", "timeline"]
