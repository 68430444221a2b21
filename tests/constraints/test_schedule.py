from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from meshplan.constraints.schedule import (
    live_chunks,
    live_chunks_total,
    warmup_microbatches,
)
from tests.constraints.megatron_schedule import awaited, passes

#: (pp, vpp, ga): every rank of each is replayed.
GRID = [
    (pp, vpp, ga)
    for pp in (1, 2, 3, 4, 7, 8, 16)
    for vpp in (1, 2, 3, 4, 8)
    for ga in (1, 2, 3, 5, 8, 16, 24, 48, 64)
    if vpp == 1 or (pp > 1 and ga >= pp and ga % pp == 0)
]


def _replayed(pp: int, vpp: int, ga: int, rank: int) -> set[tuple[int, ...]]:
    """Live micro-batches by chunk after each event."""
    live: set[tuple[int, int]] = set()
    seen = set()
    for kind, chunk, micro_batch in passes(pp, vpp, ga, rank):
        if kind == "F":
            assert (chunk, micro_batch) not in live
            live.add((chunk, micro_batch))
        else:
            live.remove((chunk, micro_batch))  # its forward pass must have run
        seen.add(tuple(sum(c == chunk for c, _ in live) for chunk in range(vpp)))
    assert not live
    return seen


def _dominated(vector: tuple[int, ...], by: set[tuple[int, ...]]) -> bool:
    return any(v != vector and all(a >= b for a, b in zip(v, vector, strict=True)) for v in by)


def test_live_vectors_match_an_event_by_event_replay() -> None:
    """Tests 1F1B and interleaved schedules: the undominated live vectors of every rank."""
    for pp, vpp, ga in GRID:
        for rank in {0, 1, pp // 2, pp - 1} & set(range(pp)):
            seen = _replayed(pp, vpp, ga, rank)
            worst = {vector for vector in seen if not _dominated(vector, seen)}
            assert set(live_chunks(pp, vpp, ga, rank)) == worst, (pp, vpp, ga, rank)


@pytest.mark.parametrize(("pp", "vpp", "ga"), [(4, 1, 6), (4, 2, 8), (3, 4, 9), (8, 2, 16)])
def test_replayed_schedule_runs_without_deadlock(pp: int, vpp: int, ga: int) -> None:
    """Tests that the warm-up lets every rank go on: each pass waits for its neighbour's only."""
    waiting = {rank: passes(pp, vpp, ga, rank) for rank in range(pp)}
    done: set[tuple[str, int, int]] = set()  # direction, stage, micro-batch
    stages = pp * vpp
    while any(waiting.values()):
        before = len(done)
        for rank, events in waiting.items():
            while events:
                kind, chunk, micro_batch = events[0]
                stage = chunk * pp + rank
                if not done.issuperset(awaited(stage, stages, kind, micro_batch)):
                    break
                done.add((kind, stage, micro_batch))
                events.pop(0)
        assert len(done) > before, "no rank can go on"
    assert len(done) == 2 * stages * ga


def test_total_is_warm_up_plus_one() -> None:
    """Tests that a rank keeps its warm-up passes and the one it runs, if there are as many."""
    for pp, vpp, ga in GRID:
        for rank in range(pp):
            warmup = warmup_microbatches(pp, vpp, ga, rank)
            total = live_chunks_total(pp, vpp, ga, rank)
            assert total == min(warmup + 1, ga * vpp), (pp, vpp, ga, rank)


@pytest.mark.parametrize(
    ("pp", "vpp", "rank", "expected"),
    [
        (8, 1, 0, 8),  # pp - rank
        (8, 1, 7, 1),
        (4, 4, 0, 19),  # DeepSeek-V3 p=4, v=4: 2*3 + 3*4 + 1
        (8, 4, 0, 39),  # 2*7 + 3*8 + 1
        (8, 4, 7, 25),  # 2*0 + 3*8 + 1
        (4, 12, 0, 51),  # 2*3 + 11*4 + 1
    ],
)
def test_known_totals(pp: int, vpp: int, rank: int, expected: int) -> None:
    """Tests live chunk-micro-batches of a long step against 2(pp-1-r) + (vpp-1)pp + 1."""
    assert live_chunks_total(pp, vpp, 64, rank) == expected


def test_plain_schedule_keeps_what_there_is() -> None:
    """Tests that fewer micro-batches than stages are all that can be alive."""
    assert live_chunks(8, 1, 3, 0) == ((3,),)
    assert live_chunks(8, 1, 3, 6) == ((2,),)


@pytest.mark.parametrize("vpp", [2, 3, 5, 8])
@pytest.mark.parametrize("pp", [2, 3, 4, 8, 16])
def test_two_groups_show_all_live_vectors(pp: int, vpp: int) -> None:
    """Tests the claim behind the live class: from ga = 2*pp on no vector is new."""
    for rank in range(pp):
        expected = live_chunks(pp, vpp, 2 * pp, rank)
        for groups in (3, 4, 5, 8, 64):
            assert live_chunks(pp, vpp, groups * pp, rank) == expected, (rank, groups)


@pytest.mark.parametrize("pp", [1, 2, 5, 16])
def test_plain_live_vectors_settle_at_pp(pp: int) -> None:
    """Tests that with vpp = 1 nothing changes from ga = pp on."""
    for rank in range(pp):
        assert live_chunks(pp, 1, pp, rank) == live_chunks(pp, 1, 64, rank)


# -- every schedule up to 16 stages, 8 chunks and 64 micro-batches ---------------------------------


def _moments(pp: int, vpp: int, ga: int, rank: int, overlap: int) -> Any:
    """Live micro-batches by chunk after every pass of a step, one moment a row.

    From the definition in Megatron-LM ``schedules.py``, apart from :func:`live_chunks`.
    ``get_schedule_table``: groups of ``pp`` micro-batches, chunk after chunk; backward passes take
    the chunks in reverse.  ``get_pp_rank_microbatches``: the warm-up, one longer with overlapped
    expert communication.  So before backward pass ``b`` forward pass ``warmup + b`` has run, and
    the numbers of passes that were run say which chunks are alive: sums instead of a loop.
    """
    table = [
        (microbatch, chunk)
        for group in range(0, ga, pp)
        for chunk in range(vpp)
        for microbatch in range(group, min(group + pp, ga))
    ]
    total = len(table)
    warmup = pp - rank - 1 if vpp == 1 else (pp - rank - 1) * 2 + (vpp - 1) * pp + overlap
    warmup = min(warmup, total)
    chunks = np.array([chunk for _, chunk in table])
    ran = np.zeros((total + 1, vpp), dtype=np.int64)
    ran[np.arange(1, total + 1), chunks] = 1
    forward = ran.cumsum(axis=0)
    backward = forward[:, ::-1]
    steady = np.arange(total - warmup)
    return np.concatenate(
        [
            forward[: warmup + 1],
            forward[warmup + 1 + steady] - backward[steady],
            forward[warmup + 1 + steady] - backward[steady + 1],
            forward[total] - backward[total - warmup :],
        ]
    )


def _distinct(rows: Any) -> Any:
    """Rows without repetitions; a row is one number of 7 bits a chunk meanwhile."""
    weights = 1 << (7 * np.arange(rows.shape[1]))
    return rows[np.unique(rows @ weights, return_index=True)[1]]


def _assert_worst(found: tuple[tuple[int, ...], ...], rows: Any, case: object) -> None:
    """Assert that the vectors are those rows that no other row dominates, each once.

    They are rows, none of them dominates another, and each row is dominated by one of them.
    """
    vectors = np.array(found)
    covers = (vectors[:, None, :] >= rows[None, :, :]).all(axis=2)
    assert covers.any(axis=0).all(), case
    assert (vectors[:, None, :] == rows[None, :, :]).all(axis=2).any(axis=1).all(), case
    among = (vectors[:, None, :] >= vectors[None, :, :]).all(axis=2)
    assert among.sum() == len(vectors), case


@pytest.mark.parametrize("overlap", [0, 1])
@pytest.mark.parametrize("vpp", range(1, 9))
def test_live_vectors_of_all_schedules(vpp: int, overlap: int) -> None:
    """Tests pp to 16, vpp to 8, ga to 64, every rank: the undominated live vectors, all of them.

    With vpp > 1 the micro-batches are a multiple of pp.  The replay is vectorised over the step.
    """
    for pp in range(1, 17):
        for ga in range(1, 65) if vpp == 1 else range(pp, 65, pp):
            for rank in range(pp):
                rows = _distinct(_moments(pp, vpp, ga, rank, overlap))
                found = live_chunks(pp, vpp, ga, rank, overlap)
                _assert_worst(found, rows, (pp, vpp, ga, rank, overlap))


def test_live_class_holds_with_overlap() -> None:
    """Tests that from ga = 2*pp on no vector is new with the extra pass either.

    The search takes the vectors of 2*pp micro-batches for all longer steps.
    """
    for pp in range(1, 17):
        for vpp in range(2, 9):
            for rank in range(pp):
                expected = live_chunks(pp, vpp, 2 * pp, rank, 1)
                for groups in (3, 4, 5, 8):
                    found = live_chunks(pp, vpp, groups * pp, rank, 1)
                    assert found == expected, (pp, vpp, rank, groups)


def test_overlap_keeps_one_chunk_more() -> None:
    """Tests a long step: one live chunk more on every rank; a step all warm-up has no more."""
    for pp, vpp in ((2, 2), (4, 3), (8, 2)):
        for rank in range(pp):
            totals = [max(map(sum, live_chunks(pp, vpp, 4 * pp, rank, extra))) for extra in (0, 1)]
            assert totals[1] - totals[0] == 1
    assert live_chunks(4, 2, 4, 0, 1) == live_chunks(4, 2, 4, 0) == ((4, 4),)
