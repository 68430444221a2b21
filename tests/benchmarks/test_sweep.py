"""The benchmark of sweeps: what it measures and how it judges; no time is asserted."""

from __future__ import annotations

from benchmarks.sweep import measure, table


def test_both_runs_solve_the_same() -> None:
    """Tests that the two runs write the same bytes, and that the ratio is that of their seconds."""
    figures = measure(2, 2)
    assert figures["same"] and figures["ratio"] == figures["one_s"] / figures["more_s"]


def test_a_missed_aim_is_said() -> None:
    """Tests that a ratio of 1.69 misses the aim, 1.7 reaches it, and other tables are told."""
    figures = {"scenarios": 200, "jobs": 2, "one_s": 1.69, "more_s": 1.0, "load": 0.0}
    assert "MISSED" in table({**figures, "ratio": 1.69, "same": True})
    assert "reached" in table({**figures, "ratio": 1.7, "same": True})
    assert "DIFFER" in table({**figures, "ratio": 1.7, "same": False})
