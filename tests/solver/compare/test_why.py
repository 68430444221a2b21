from __future__ import annotations

from typing import Any

import pytest

from meshplan.scenarios import Scenario
from meshplan.solver.compare.why import why
from meshplan.solver.results import Infeasible, Plan
from tests.solver.small import toy_scenario


def _scenario(**sections: Any) -> Scenario:
    return toy_scenario(32, **{"name": "why", **sections})


def test_the_optimum_is_the_optimum() -> None:
    """Tests that the plan of the search, given back, differs in nothing."""
    plan = why(_scenario(), "tp=2,ep=2").answer
    assert isinstance(plan, Plan)
    report = why(_scenario(), plan.layout)
    assert report.status == "optimal" and report.proved
    assert report.differences == () and report.flips == ()
    assert report.times is not None and report.times.difference_us == 0
    assert report.preferred_for is None


def test_a_slower_layout_loses_term_by_term() -> None:
    """Tests tp = 2 with eight micro-batches: the terms add up to the loss, the host's is most."""
    report = why(_scenario(), "tp=2,ep=2")
    assert report.status == "slower" and report.preferred_for == "time"
    assert report.times is not None and isinstance(report.answer, Plan)
    assert report.times.first_us - report.answer.cost.time.step_us == report.times.difference_us
    largest = max(report.times.terms, key=lambda term: term.difference_us)
    assert largest.name == "host", "eight times as many kernels are launched"
    assert report.least_us is not None and report.least_us <= report.answer.cost.time.step_us


def test_each_flip_is_the_layout_with_that_change() -> None:
    """Tests that a flip changes its decision, what follows from it, and nothing else."""
    report = why(_scenario(), "tp=2,ep=2")
    flips = {flip.difference.decision: flip for flip in report.flips}
    changed = flips["tp"].report.layout
    assert (changed.tp, changed.dp, changed.ga) == (1, 8, 4), "8 GPUs, gbs 32, mbs 1"
    assert (changed.ep, changed.mbs) == (2, 1)
    assert flips["tp"].report.status == "ok" and flips["tp"].together == ()
    assert isinstance(report.answer, Plan)
    modules = set(report.given.layout.recompute) ^ set(report.answer.layout.recompute)
    assert modules, "the two recompute other modules"
    assert set(flips) == {
        one.decision
        for one in report.differences
        if not one.follows and one.decision != "recompute"
    } | {f"recompute {name}" for name in modules}


def test_a_change_that_is_illegal_alone_takes_others_along() -> None:
    """Tests pp = 4 with vpp = 2 towards pp = 1: without a pipeline vpp must be 1."""
    scenario = _scenario(options={"recompute": "none"})
    report = why(scenario, "pp=4,vpp=2,ep=2,tp=2,pipeline=auto")
    assert report.given.status == "ok"
    flip = next(flip for flip in report.flips if flip.difference.decision == "pp")
    assert flip.together == ("vpp",)
    assert (flip.report.layout.pp, flip.report.layout.vpp) == (1, 1)
    assert flip.report.status == "ok" and flip.split == "best"


def test_an_illegal_layout_says_which_rule() -> None:
    """Tests tp = 16 on 8 GPUs: the grid is broken, and no step time is compared."""
    report = why(_scenario(), "tp=16,ep=2")
    assert report.status == "illegal"
    assert "world-dense-divisible" in {one.rule for one in report.given.violations}
    assert report.times is None
    assert "Illegal: this layout breaks" in str(report)


def test_a_layout_outside_the_pins_may_be_faster() -> None:
    """Tests that what the scenario keeps from the search is called so, not an error."""
    report = why(_scenario(layout={"tp": 4, "mbs": 1}), "tp=1,mbs=4")
    assert report.status == "faster"
    assert "It takes what the scenario keeps from the search." in " ".join(
        str(report).replace("│", " ").split()
    )


def test_where_nothing_fits_the_conflict_is_told() -> None:
    """Tests DeepSeek-V3 on 8 GPUs: the layout is overfull, and so is every other."""
    report = why(_scenario(model="deepseek-v3"), "ep=8")
    assert report.status == "overfull" and isinstance(report.answer, Infeasible)
    assert "memory-capacity" in report.to_json()["optimum"]["conflicts"][0]["rules"]
    assert "Why nothing fits" in str(report)


@pytest.mark.parametrize("key", ["given", "optimum", "comparison", "differences", "flips"])
def test_data_has_the_keys_of_the_contract(key: str) -> None:
    """Tests that a comparison that has nothing under a key still has the key."""
    for layout in ("tp=2,ep=2", "tp=16,ep=2"):
        assert key in why(_scenario(), layout).to_json()
