"""Repairs of tiny scenarios against trying every layout."""

from __future__ import annotations

import pytest

from meshplan.solver.repairs import Repair, trials
from meshplan.solver.repairs.search import LEVERS, search_repairs
from tests.solver.repairs.toys import Toy, distance, toys


@pytest.fixture(scope="module", params=list(toys(5)), ids=lambda toy: toy.problem.name)
def toy(request: pytest.FixtureRequest) -> Toy:
    """A toy without a layout."""
    found: Toy = request.param
    assert found.fits({}) is False
    return found


@pytest.fixture(scope="module", name="singles")
def _singles(toy: Toy) -> list[Repair]:
    names = {lever.name for lever in LEVERS}
    found = (one for one in search_repairs(toy.trials) if isinstance(one, Repair))
    return [one for one in found if one.lever in names]


def test_each_repair_makes_a_layout_fit(toy: Toy, singles: list[Repair]) -> None:
    """Tests that some layout fits after each repair, and that its plan is one of them."""
    for repair in singles:
        values = {change.path: change.after for change in repair.changes}
        assert toy.fits(values) in (True, None), repair.changes
        assert repair.verified and repair.plan is not None
        assert repair.plan.cost.peak <= repair.plan.problem.capacity


def test_no_smaller_step_does(toy: Toy, singles: list[Repair]) -> None:
    """Tests that with smaller steps of the same lever every layout is illegal or overfull."""
    far_first = sorted(singles, key=lambda repair: -distance(repair.changes[0]))
    for repair in {repair.lever: repair for repair in far_first}.values():
        if len(repair.changes) == 1:
            for values in toy.smaller(repair.changes[0]):
                assert not toy.fits(values), (repair.changes, values)


def test_time_too_short_for_any_plan_loses_no_repair(
    toy: Toy, singles: list[Repair], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests that repairs have plans where the time of one is too short, and no limit is set."""
    monkeypatch.setattr(trials, "_PLAN_S", 1e-9)
    for repair in singles:
        plan = toy.trials.plan({change.path: change.after for change in repair.changes})
        assert plan is not None and plan.status == "optimal"
