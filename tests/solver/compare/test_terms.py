from __future__ import annotations

from fractions import Fraction

import pytest

from meshplan.constraints.resolve import resolve
from meshplan.scenarios import from_mapping
from meshplan.solver.breakdown import step_breakdown_us, work_breakdown_us
from meshplan.solver.check import check
from meshplan.solver.compare.terms import Term, TimeComparison, Timed, compare_times
from meshplan.solver.results import Plan
from meshplan.solver.solve import solve
from tests.solver.small import draw


def _timed(layout: str, batch: int = 8) -> Timed:
    """A layout of a dense toy of 8 layers on 8 H100s, with its step time."""
    data = {
        "meshplan": 1,
        "name": "terms",
        "model": {"card": "toy-dense", "layers": 8},
        "cluster": {"preset": "h100-hgx", "gpus": 8},
        "workload": {"seq_len": 4096, "global_batch_size": batch},
    }
    report = check(from_mapping(data), f"tp=2,recompute=none,offload=0,{layout}")
    assert report.status == "ok" and report.cost is not None
    return Timed(report.problem, report.layout, report.cost.time)


def test_parts_add_up_to_the_step() -> None:
    """Tests that both breakdowns of random plans add up to the step time, to the microsecond."""
    plans = [solve(resolve(from_mapping(draw(seed)))) for seed in range(12)]
    found = [plan for plan in plans if isinstance(plan, Plan)]
    assert len(found) >= 4, "for the others nothing fits"
    for plan in found:
        time = plan.cost.time
        assert sum(step_breakdown_us(plan.problem, plan.layout, time).values()) == time.step_us
        assert sum(work_breakdown_us(plan.problem, plan.layout, time).values()) == time.step_us


def test_two_splits_differ_in_imbalance_alone() -> None:
    """Tests 5 + 3 layers against 4 + 4: the work of the layers is the same, its sharing is not."""
    uneven, even = _timed("pp=2,pipeline=Et*5|t*3L"), _timed("pp=2,pipeline=Et*4|t*4L")
    times = compare_times(uneven, even)
    differing = {term.name for term in times.terms if term.difference_us}
    once = {"pipeline_bubble", "data_parallel_exchange", "optimizer"}  # read the fullest rank
    assert "pipeline_imbalance" in differing <= {"pipeline_imbalance", *once}
    assert times.verdict == "slower" and uneven.imbalance > even.imbalance
    assert times.difference_us == uneven.time.step_us - even.time.step_us


def test_another_batch_is_scaled_to_the_same_work() -> None:
    """Tests that a step of half the tokens counts twice, and that rounded terms still add up."""
    small, large = _timed("pp=1", batch=8), _timed("pp=1", batch=16)
    times = compare_times(large, small)
    assert times.scale == 2
    assert times.second_us == 2 * small.time.step_us
    assert times.first_us == large.time.step_us
    assert compare_times(small, large).scale == Fraction(1, 2)


@pytest.mark.parametrize(
    ("first", "second", "band", "verdict"),
    [
        (100, 100, 0.1, "equal"),
        (109, 100, 0.1, "tie"),
        (111, 100, 0.1, "slower"),
        (89, 100, 0.1, "faster"),
        (101, 100, None, "slower"),
    ],
)
def test_differences_within_the_band_are_ties(
    first: int, second: int, band: float | None, verdict: str
) -> None:
    """Tests the verdict on both sides of an error band of 10 %, and without a band."""
    timed, terms = _timed("pp=1"), (Term("overhead", first, second),)
    assert TimeComparison(timed, timed, terms, Fraction(1), band).verdict == verdict
