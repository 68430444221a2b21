from __future__ import annotations

import time
from typing import Any

import pytest

from meshplan.constraints.problem import QUANTA_PER_GIB
from meshplan.constraints.resolve import resolve
from meshplan.scenarios import from_mapping
from meshplan.solver.listings import Wanted
from meshplan.solver.relaxations import relaxations
from meshplan.solver.results import Plan, Relaxation
from meshplan.solver.solve import solve
from tests.solver.small import with_capacity

PINNED: dict[str, Any] = {
    "meshplan": 1,
    "name": "binding",
    "model": "toy-moe",
    "cluster": {"preset": "h100-hgx", "gpus": 8},
    "workload": {"seq_len": 4096, "global_batch_size": 32},
    "layout": {"tp": 4, "mbs": [1, 2]},
    "options": {"recompute": "none"},
    "limits": {"min_dp": 2},
}


def _plan(data: dict[str, Any]) -> Plan:
    plan = solve(resolve(from_mapping(data)))
    assert isinstance(plan, Plan)
    return plan


@pytest.fixture(scope="module", name="plan")
def _pinned_plan() -> Plan:
    return _plan(PINNED)


@pytest.fixture(scope="module", name="found")
def _found(plan: Plan) -> dict[str, Relaxation]:
    return {one.key: one for one in relaxations(plan)}


def test_what_is_relaxed(found: dict[str, Relaxation]) -> None:
    """Tests that each pin, fixed option, limit and resource of the scenario has its step."""
    assert set(found) == {
        "dp_tolerance", "memory", "memory_twice", "tp", "mbs", "layout", "recompute",
        "cuda_graphs", "min_dp", "tp_within_domain", "global_batch_size", "compute", "hbm",
        "nvlink", "network", "host_link", "host_memory",
    }  # fmt: skip
    assert {one.status for one in found.values()} == {"optimal"}


def test_relaxing_never_loses(found: dict[str, Relaxation]) -> None:
    """Tests that more room, more choice and better hardware are never slower."""
    for one in found.values():
        assert one.gain is not None and one.gain >= 0, one.change


@pytest.mark.parametrize(
    ("key", "changes"),
    [
        ("tp", {"layout": {"mbs": [1, 2]}}),
        ("layout", {"layout": {}}),
        ("min_dp", {"limits": {}}),
        ("recompute", {"options": {}}),
        ("global_batch_size", {"workload": {"seq_len": 4096, "global_batch_size": 64}}),
    ],
)
def test_a_gain_is_that_of_the_changed_scenario(
    key: str, changes: dict[str, Any], plan: Plan, found: dict[str, Relaxation]
) -> None:
    """Tests gains against the scenario written with that change and solved for itself."""
    other = _plan({**PINNED, **changes})
    batch = {"global_batch_size": 2}.get(key, 1)
    gain = plan.proof.objective / other.proof.objective * batch - 1
    assert found[key].gain == pytest.approx(gain, abs=1e-9)


def test_one_gib_more_is_the_scenario_with_that_memory(found: dict[str, Relaxation]) -> None:
    """Tests the memory step where memory binds: with 5 GiB only mbs = 1 fits, with 6 mbs = 2."""
    problem = resolve(from_mapping(PINNED))
    small = with_capacity(problem, 5 * QUANTA_PER_GIB)
    plan = solve(small)
    assert isinstance(plan, Plan)
    memory = next(one for one in relaxations(plan) if one.key == "memory")
    more = solve(with_capacity(problem, 6 * QUANTA_PER_GIB))
    assert isinstance(more, Plan) and memory.gain is not None
    assert memory.gain == pytest.approx(plan.proof.objective / more.proof.objective - 1, abs=1e-9)
    assert memory.gain > 1, "half the micro-batches launch half the kernels"
    assert found["memory"].gain == 0, "of 72 GiB it leaves most free"


def test_what_the_tolerance_costs(plan: Plan, found: dict[str, Relaxation]) -> None:
    """Tests that the first line is the plan against the fastest layout, without a search."""
    step_s = plan.cost.time.step_us / 1e6
    assert found["dp_tolerance"].gain == pytest.approx(step_s / plan.proof.objective - 1)


def test_a_limit_leaves_the_rest_unknown(plan: Plan) -> None:
    """Tests that what is not solved in time says so, and claims no gain."""
    rest = list(relaxations(plan, deadline=time.monotonic()))[1:]
    assert {(one.status, one.gain, one.layout) for one in rest} == {("unknown", None, None)}


def test_the_report_tells_gains_and_what_has_none(plan: Plan) -> None:
    """Tests the section of the report, and that it is there only if it was asked for."""
    asked = solve(resolve(from_mapping(PINNED)), wanted=Wanted(binding=True))
    assert isinstance(asked, Plan)
    assert "What one step more would gain" in str(asked)
    assert "layout.tp = 4: free instead" in str(asked)
    assert "What one step more" not in str(plan)
    data = asked.to_json()["relaxations"]
    assert [one["key"] for one in data][:3] == ["dp_tolerance", "memory", "memory_twice"]
