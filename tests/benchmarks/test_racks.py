"""The clusters that the benchmark of racks makes, and what it holds results to."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.racks import TRAYS, batch, domains, in_aim, measure, scenario


@pytest.mark.parametrize(
    ("racks", "least", "most"), [(200, 13_500, 14_400), (1400, 95_000, 100_800)]
)
def test_clusters_have_the_size_they_claim(racks: int, least: int, most: int) -> None:
    """Tests racks of 11 to 18 trays of 4 GPUs, the same on every run, a few of them not full."""
    sizes = domains(racks)
    assert sizes == domains(racks) and len(sizes) == racks
    assert {size // 4 for size in sizes} == set(TRAYS)
    assert least < sum(sizes) <= most


def test_batches_are_multiples() -> None:
    """Tests 5 times 2,520 sequences for 13,840 GPUs, and one multiple for fewer GPUs than that."""
    assert batch(13_840, 2520) == 12_600
    assert batch(200, 2520) == 2520


@pytest.mark.parametrize(
    ("racks", "wall_s", "gap", "status", "reached"),
    [
        (200, 29.0, 0.0, "optimal", True),
        (200, 31.0, 0.0, "optimal", False),
        (200, 29.0, 0.001, "feasible", False),
        (1400, 119.0, 0.0, "optimal", True),
        (1400, 299.0, 0.009, "feasible", True),
        (1400, 299.0, 0.011, "feasible", False),
        (1400, 1.0, 0.0, "infeasible", False),
    ],
)
def test_aims(racks: int, wall_s: float, gap: float, status: str, reached: bool) -> None:
    """Tests 30 s on 200 racks, and two minutes or a gap below 1 % on more."""
    row: dict[str, Any] = {"racks": racks, "wall_s": wall_s, "gap": gap, "status": status}
    assert in_aim(row) == reached


def test_a_case_is_solved() -> None:
    """Tests a row of three racks with a small model."""
    row = measure(scenario("toy-moe", 4096, 24, 3))
    assert row["status"] == "optimal" and row["gap"] == 0
    assert 0 < row["used"] <= row["gpus"] == sum(domains(3))
