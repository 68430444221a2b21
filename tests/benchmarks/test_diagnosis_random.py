"""The benchmark of random conflicts, and the judge that it rests on."""

from __future__ import annotations

import dataclasses
from itertools import islice

import pytest

from benchmarks.diagnosis_draws import KINDS, draw, kind_of
from benchmarks.diagnosis_random import Row, infeasible, judged, report
from meshplan.solver.diagnosis.conflict import conflict
from meshplan.solver.diagnosis.facts import MEMORY
from meshplan.solver.results import Conflict
from tests.solver.diagnosis.judge import faults
from tests.solver.small import small


def test_a_seed_gives_one_scenario_of_each_kind_in_turn() -> None:
    """Tests that a scenario with a fault can be drawn again by itself."""
    assert draw(7) == draw(7) != draw(8)
    assert [kind_of(seed) for seed in range(3)] == list(KINDS)


def test_infeasible_draws_are_judged_without_faults() -> None:
    """Tests the first scenarios, of all kinds, as the benchmark judges them."""
    drawn = islice(infeasible(4), 4)
    rows = [judged(kind_of(seed), problem, with_repairs=False) for seed, problem in drawn]
    assert {row.kind for row in rows} == set(KINDS)
    assert all(row.conflicts >= 1 and row.faults == [] for row in rows)


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"pins": ("layout.tp = 8", "layout.cp = 2", "layout.mbs = 1")}, "without layout.mbs"),
        ({"pins": ("layout.tp = 8",)}, "can hold together"),
        ({"rules": (), "pins": ()}, "no facts"),
    ],
)
def test_the_judge_finds_faults(change: dict[str, tuple[str, ...]], wrong: str) -> None:
    """Tests a right conflict with a member too many, with one too few, and with none."""
    problem = small(layout={"tp": 8, "cp": 2, "mbs": 1})
    right = conflict(problem)
    assert faults(problem, right) == []
    assert any(wrong in text for text in faults(problem, dataclasses.replace(right, **change)))  # type: ignore[arg-type]


def test_the_judge_finds_memory_that_is_not_to_blame() -> None:
    """Tests a clash of rules with memory put beside it: without memory it stays a clash."""
    problem = small(layout={"tp": 8, "cp": 2})
    false = Conflict((MEMORY,), ("layout.tp = 8", "layout.cp = 2"), "", minimal=True)
    assert f"without {MEMORY} the rest still clashes" in faults(problem, false)


def test_the_report_counts() -> None:
    """Tests the lines of the report, by hand."""
    rows = [
        Row("a", "rules", 0.1, 0.2, None, 1, True),
        Row("b", "real", 0.3, 0.4, 2.0, 2, False, 5, 3, 7, 2, ["x: wrong"]),
    ]
    lines = report(rows).splitlines()
    assert lines[0] == "2 scenarios: {'rules': 1, 'real': 1}"
    assert lines[1] == "3 conflicts; complete in 1 scenarios"
    assert lines[2:4] == [
        "3 repairs; 7 steps short of them solved",
        "2 not judged, for want of time",
    ]
    assert lines[4] == "first_s: 0.10 (50 %), 0.30 (95 %), 0.30 (100 %)"
    assert lines[-2:] == ["1 faults", "b: x: wrong"]
