from __future__ import annotations

import random
from itertools import pairwise

import pytest

from meshplan.constraints.schedule import warmup_microbatches
from meshplan.solver.time.timeline import timeline
from tests.constraints.megatron_schedule import passes
from tests.solver.time.pipeline_simulation import makespan

SHAPES = [(1, 1, 3), (4, 1, 6), (4, 1, 2), (4, 2, 8), (3, 4, 9), (8, 2, 16)]


def _times(pp: int, vpp: int) -> tuple[list[float], list[float]]:
    draw = random.Random(7)
    forward = [draw.uniform(1, 3) for _ in range(pp * vpp)]
    return forward, [2 * one for one in forward]


def _warmup(pp: int, vpp: int, ga: int, extra: int = 0) -> list[int]:
    return [warmup_microbatches(pp, vpp, ga, rank, extra) for rank in range(pp)]


@pytest.mark.parametrize("extra", [0, 1])
@pytest.mark.parametrize(("pp", "vpp", "ga"), SHAPES)
def test_each_rank_runs_the_frameworks_passes(pp: int, vpp: int, ga: int, extra: int) -> None:
    """Tests order and end against a replay of Megatron-Core's schedules that was written apart."""
    forward, backward = _times(pp, vpp)
    found = timeline(forward, backward, _warmup(pp, vpp, ga, extra), ga)
    assert max(one.end_s for one in found) == pytest.approx(
        makespan(forward, backward, pp, ga, extra)
    )
    for rank in range(pp):
        ran = [
            ("F" if one.forward else "B", one.chunk, one.micro_batch)
            for one in found
            if one.rank == rank
        ]
        assert ran == passes(pp, vpp, ga, rank, extra)


@pytest.mark.parametrize(("pp", "vpp", "ga"), SHAPES)
def test_passes_come_by_their_start(pp: int, vpp: int, ga: int) -> None:
    """Tests that a part of the timeline is its beginning, and that no rank runs two at once."""
    forward, backward = _times(pp, vpp)
    warmup = _warmup(pp, vpp, ga)
    whole = timeline(forward, backward, warmup, ga)
    starts = [one.start_s for one in whole]
    assert starts == sorted(starts)
    assert timeline(forward, backward, warmup, ga, most=5) == whole[:5]
    for rank in range(pp):
        own = [one for one in whole if one.rank == rank]
        assert all(one.end_s <= after.start_s for one, after in pairwise(own))


def test_one_micro_batch_goes_through_and_comes_back() -> None:
    """Tests the times of two ranks by hand: 1 s and 2 s forward, then 4 s and 3 s backward."""
    found = timeline([1.0, 2.0], [3.0, 4.0], warmup=[1, 0], ga=1)
    assert [(one.rank, one.forward, one.start_s, one.end_s) for one in found] == [
        (0, True, 0.0, 1.0),
        (1, True, 1.0, 3.0),
        (1, False, 3.0, 7.0),
        (0, False, 7.0, 10.0),
    ]
