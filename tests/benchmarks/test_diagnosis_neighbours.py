"""That the benchmark of repairs finds one that goes further than it must."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.diagnosis_neighbours import judge_neighbours, neighbours
from meshplan.constraints.problem import Problem
from meshplan.constraints.resolve import resolve
from meshplan.scenarios import from_mapping
from meshplan.solver.repairs import Change, Repair
from tests.solver.small import small


def _short_of_memory() -> Problem:
    """8B on two H100s of which half of the memory may be used: 32K tokens are too many."""
    return resolve(
        from_mapping(
            {
                "meshplan": 1,
                "name": "short",
                "model": "llama-3.1-8b",
                "cluster": {"preset": "h100-hgx", "gpus": 2},
                "workload": {"seq_len": 32768, "global_batch_size": 8},
                "layout": {"tp": 2},
                "limits": {"memory_headroom": 0.5},
            }
        )
    )


def _repair(*changes: tuple[str, object]) -> Repair:
    made = tuple(Change(path, None, after, f"{path}: {after}") for path, after in changes)
    return Repair("+".join(path for path, _ in changes), made, verified=True, plan=None)


@pytest.mark.parametrize(
    ("path", "least", "further", "short"),
    [
        # The leanest layout needs 50.6 GiB: of 79.1 GiB, 0.36 leave 50.6, and 0.37 leave 49.8.
        ("limits.memory_headroom", 0.36, 0.2, "limits.memory_headroom: 0.21"),
        # 17,920 = 35 * 512 is found anew below: 16,512 = 129 * 128 is a length short of 16,384.
        ("workload.seq_len", 17920, 16384, "workload.seq_len: 16512"),
        # Half of 102 GiB are 51, half of 101 are 50.5.
        ("node_type.hbm_gib", 102, 110, "node_type.hbm_gib: 109"),
        # Two GPUs are too few, three leave one out of every mesh of powers of two.
        ("cluster.gpus", 4, 8, "cluster.gpus: 4"),
        # 139.8 GiB are more than 102, as are 178.4.
        ("cluster.preset", "h200-hgx", "b200-hgx", "cluster.preset: h200-hgx"),
    ],
)
def test_a_step_about_memory_that_is_too_large(
    path: str, least: object, further: object, short: str
) -> None:
    """Tests that the least step has no fault, and that one further has the step short of it."""
    problem = _short_of_memory()
    assert judge_neighbours(problem, [_repair((path, least))]).faults == []
    judged = judge_neighbours(problem, [_repair((path, further))])
    assert any(text.startswith(f"{path}: {short} works") for text in judged.faults)
    assert judged.unsolved == 0


@pytest.mark.parametrize(
    ("sections", "least", "further", "short"),
    [
        # tp 8 * cp 2 is twice the GPUs: half of either is enough.
        ({"layout": {"tp": 8, "cp": 2}}, [("layout.tp", 4)], [("layout.tp", 1)], "layout.tp: [2"),
        ({"layout": {"tp": 8, "cp": 2}}, [("layout.cp", 1)], [("layout.cp", 1), ("layout.tp", 4)],
         "layout.cp: 1 works"),
        # Replicas of 8 GPUs with 3 sequences each make batches of 24: 1 to 47 without
        # the present 8 are 46 sizes nearer than 48.
        ({"layout": {"dp": 8, "mbs": 3}}, [("workload.global_batch_size", 24)],
         [("workload.global_batch_size", 48)], "global_batch_size: 46 sizes from 1 works"),
        # tp 2 leaves dp 4 of 8 GPUs.
        ({"layout": {"tp": 2}, "limits": {"min_dp": 8}}, [("limits.min_dp", 4)],
         [("limits.min_dp", 2)], "limits.min_dp: 3 works"),
    ],
)  # fmt: skip
def test_a_step_about_rules_that_is_too_large(
    sections: dict[str, Any],
    least: list[tuple[str, object]],
    further: list[tuple[str, object]],
    short: str,
) -> None:
    """Tests that the least step has no fault, and that one further, or a needless one, has."""
    problem = small(**sections)
    assert judge_neighbours(problem, [_repair(*least)]).faults == []
    faults = judge_neighbours(problem, [_repair(*further)]).faults
    assert any(short in text for text in faults), faults


def test_what_is_not_proved_in_time_is_counted() -> None:
    """Tests that a limit of no time leaves steps unsolved rather than right or wrong."""
    judged = judge_neighbours(_short_of_memory(), [_repair(("cluster.preset", "b300-hgx"))], 1e-6)
    # H200, B200 and GB200 lie between 79.1 and 262 GiB.
    assert (judged.solved, judged.unsolved, judged.faults) == (0, 3, [])


def test_a_round_number_beyond_the_least_step_is_not_held_to_it() -> None:
    """Tests that of two lengths of one lever only the longer one says that it is the longest."""
    both = [_repair(("workload.seq_len", 17920)), _repair(("workload.seq_len", 16384))]
    assert judge_neighbours(_short_of_memory(), both).faults == []


def test_lengths_cover_the_shards_of_every_power_of_two() -> None:
    """Tests the next longer multiples of 1, 2, 4, ..., each short of the present length."""
    (change,) = _repair(("workload.seq_len", 17920)).changes
    lengths = [one.values["workload.seq_len"] for one in neighbours(_short_of_memory(), [change])]
    # 17,920 is a multiple of 512: the next ones of 1 to 512 follow, of 1,024 (18,432) and 4,096
    # (20,480), and of 8,192 (24,576); of 16,384 it is the present length.
    assert lengths == [*(17920 + (1 << k) for k in range(10)), 20480, 24576]
