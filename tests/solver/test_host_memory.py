"""Host memory as a limit: a plan that needs the hosts fails where they are too small."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from meshplan.constraints.memory.stage import rank_memory
from meshplan.constraints.memory.verdict import verdict
from meshplan.constraints.problem import Problem
from meshplan.solver.diagnosis.facts import MEMORY
from meshplan.solver.results import Infeasible, Plan
from meshplan.solver.search import Search
from meshplan.solver.solve import solve
from tests.solver.oracle import tried
from tests.solver.small import small, with_capacity
from tests.solver.test_memory_agreement import with_host


def _needs_hosts(**options: Any) -> tuple[Problem, int]:
    """A scenario that fits on the GPUs with offload only, and the least that it needs on a host.

    toy-dense with dp = 1 (tp = cp = 1, pp = 2 of 2 GPUs): fp32 master and moments are 12 bytes a
    parameter, far more than any recompute gives back.
    """
    problem = small(
        model="toy-dense",
        cluster={"preset": "h100-hgx", "gpus": 2},
        layout={"tp": 1, "cp": 1, "pp": 2, "mbs": 1},
        options={"recompute": "none", **options},
    )
    offloaded = [one for one in tried(problem) if one.host > 0]
    alone = [one for one in tried(problem) if one.host == 0]
    capacity = min(one.peak for one in offloaded)
    assert not alone or min(one.peak for one in alone) > capacity
    fitting = [one for one in offloaded if one.peak == capacity]
    return with_capacity(problem, capacity), min(one.host for one in fitting)


def test_hosts_that_just_suffice_make_a_plan() -> None:
    """Tests that the plan keeps the optimizer on the host, all of which it fills."""
    problem, host = _needs_hosts(optimizer_offload="auto")
    plan = solve(with_host(problem, host))
    assert isinstance(plan, Plan)
    assert plan.layout.offload == 100
    assert max(rank.host for rank in plan.cost.ranks) == host


def test_hosts_a_quantum_too_small_are_a_conflict() -> None:
    """Tests that the conflict is of memory, and that the text names the hosts, which are short."""
    problem, host = _needs_hosts(optimizer_offload="auto")
    answer = solve(with_host(problem, host - 1))
    assert isinstance(answer, Infeasible)
    assert MEMORY in answer.conflicts[0].rules
    assert "host" in answer.conflicts[0].text


@pytest.mark.parametrize("offload", ["auto", 1])
def test_conflict_names_the_host_memory(offload: object) -> None:
    """Tests hosts with a tenth of what the optimizer needs, free to choose and pinned.

    toy-dense has 128459776 parameters, 16 bytes each on the host: 0.96 GiB a rank of two.
    """
    problem, host = _needs_hosts(optimizer_offload=offload)
    answer = solve(with_host(problem, host // 10))
    assert isinstance(answer, Infeasible)
    assert MEMORY in answer.conflicts[0].rules
    text = answer.conflicts[0].text
    assert "with the optimizer on the hosts each GPU's rank keeps 1.0 GiB" in text
    assert "GiB of a node leave only 0.1 GiB for each of its 8 GPUs (20% reserved)" in text


def test_ample_hosts_are_not_named() -> None:
    """Tests that a conflict of the GPUs' memory says nothing of hosts with room."""
    problem, _ = _needs_hosts(optimizer_offload="auto")
    answer = solve(with_capacity(problem, problem.capacity - 1))
    assert isinstance(answer, Infeasible)
    assert MEMORY in answer.conflicts[0].rules
    assert "host" not in answer.conflicts[0].text


def test_activations_on_small_hosts_are_a_conflict() -> None:
    """Tests fine-grained offload: activations alone can fill a host, and the text says so."""
    problem, host = _needs_hosts(optimizer_offload=0, activation_offload=["core_attn"])
    assert isinstance(solve(with_host(problem, host)), Plan)
    answer = solve(with_host(problem, host // 2))
    assert isinstance(answer, Infeasible)
    assert "host" in answer.conflicts[0].text


def test_larger_hosts_never_slow() -> None:
    """Tests the proved step time at several sizes of the hosts: it falls or stays."""
    problem, host = _needs_hosts(optimizer_offload="auto")
    problem = with_capacity(problem, problem.capacity * 2)
    times = []
    for size in (0, host // 2, host, 2 * host, 8 * host):
        answer = solve(with_host(problem, size))
        times.append(answer.proof.objective if isinstance(answer, Plan) else float("inf"))
    assert times == sorted(times, reverse=True)


def test_any_plan_and_the_checker_agree_on_hosts() -> None:
    """Tests the search for feasibility alone, and the verdict on the plan with less memory."""
    problem, host = _needs_hosts(optimizer_offload="auto")
    assert Search(with_host(problem, host)).any_plan()
    small_hosts = with_host(problem, host - 1)
    assert not Search(small_hosts).any_plan()
    plan = solve(with_host(problem, host))
    assert isinstance(plan, Plan)
    ranks = [rank_memory(small_hosts, plan.layout, rank) for rank in range(plan.layout.pp)]
    assert verdict(small_hosts, ranks) == "overfull"
    ranks = [dataclasses.replace(rank, host=host - 1) for rank in ranks]
    assert verdict(small_hosts, ranks) == "tight"
