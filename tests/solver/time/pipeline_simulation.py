"""The pipeline of one step, simulated pass by pass, for tests of the bubble formula."""

from __future__ import annotations

from collections.abc import Sequence

from tests.constraints.megatron_schedule import Pass, awaited, passes


def makespan(
    forward: Sequence[float], backward: Sequence[float], pp: int, ga: int, extra: int = 0
) -> float:
    """Time from the first pass to the last one, in the unit of the durations.

    Each rank runs its passes in Megatron-Core's order, each as soon as the rank is free and what it
    awaits from its neighbours is there; nothing else stops it, and transfers take no time.

    Parameters
    ----------
    forward, backward
        Durations of a pass of each pipeline slot, in the order of the layers: slot ``i`` lies on
        rank ``i % pp``.
    pp, ga
        Pipeline ranks and micro-batches.
    extra
        Passes that a rank runs forward beyond the warm-up.
    """
    stages = len(forward)
    duration = {"F": forward, "B": backward}
    queues = [passes(pp, stages // pp, ga, rank, extra) for rank in range(pp)]
    place, free = [0] * pp, [0.0] * pp
    done: dict[Pass, float] = {}
    moved = True
    while moved:
        moved = False
        for rank, queue in enumerate(queues):
            while place[rank] < len(queue):
                kind, chunk, micro_batch = queue[place[rank]]
                stage = chunk * pp + rank
                needs = awaited(stage, stages, kind, micro_batch)
                if any(need not in done for need in needs):
                    break
                start = max([free[rank], *(done[need] for need in needs)])
                free[rank] = start + duration[kind][stage]
                done[kind, stage, micro_batch] = free[rank]
                place[rank] += 1
                moved = True
    assert len(done) == 2 * stages * ga, "no rank can go on"
    return max(free)
