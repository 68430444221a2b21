"""The number of GPUs as a decision, against solving each part by itself."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshplan.constraints.groups import rank_groups
from meshplan.constraints.parts import on_part, parts
from meshplan.constraints.problem import Problem
from meshplan.constraints.resolve import resolve
from meshplan.scenarios import from_mapping
from meshplan.solver.bounds import NEVER
from meshplan.solver.diagnosis.gpus import with_fixed_gpus
from meshplan.solver.placement.place import place
from meshplan.solver.rates import rates
from meshplan.solver.results import Infeasible, Plan
from meshplan.solver.search import Search
from meshplan.solver.solve import solve
from meshplan.solver.used import PartSearch
from meshplan.topologies import Cluster, node_type
from meshplan.topologies.best_case import best_case
from meshplan.topologies.packing import packed_cluster
from tests.solver.small import FAMILIES, draw_card


def _problem(model: Any, domains: list[int], batch: Any, preset: str, **more: Any) -> Problem:
    data = {
        "meshplan": 1,
        "name": "racks",
        "model": model,
        "cluster": {"preset": preset, "domains": domains, "use": "best"},
        "workload": {"seq_len": 2048, "global_batch_size": batch},
    }
    return resolve(from_mapping({**data, **more}))


def _draw(seed: int, **more: Any) -> Problem:
    rng = random.Random(seed)
    preset = rng.choice(["gb200-nvl72", "h100-hgx"])
    largest = 6 if preset == "gb200-nvl72" else 2
    domains = [4 * rng.randint(1, largest) for _ in range(rng.randint(1, 4))]
    batch: Any = rng.choice([6, 8, 12, {"min": 4, "max": 8, "multiple_of": 2}])
    problem = _problem(draw_card(rng, rng.choice(sorted(FAMILIES))), domains, batch, preset, **more)
    busy = dataclasses.replace(
        problem.cluster,
        oversubscription=rng.choice([1.0, 2.0, 6.0]),
        nodes_per_leaf=rng.choice([1, 2]),
    )
    return dataclasses.replace(problem, cluster=busy, whole=busy)


def _fastest(problem: Problem) -> int | None:
    search = Search(problem)
    return search.fastest(search.regions())


@pytest.mark.parametrize("seed", range(8))
def test_the_best_part_is_the_best_of_all_parts(seed: int) -> None:
    """Tests the chosen part, its step and all bounds against a search on every part."""
    problem = _draw(seed)
    chosen = PartSearch(problem)
    chosen.run()
    steps = {part: _fastest(on_part(problem, part)) for part in parts(problem)}
    assert {one.part for one in chosen.tried} == set(steps)
    feasible = {part: step for part, step in steps.items() if step is not None}
    if not feasible:
        assert chosen.best is None
        return
    best = min(feasible, key=lambda part: (feasible[part], part.gpus))
    assert chosen.best is not None
    assert (chosen.best.part, chosen.best_step) == (best, feasible[best])
    assert chosen.bound == feasible[best]
    for one in chosen.tried:
        assert one.bound <= feasible.get(one.part, NEVER)


@pytest.mark.parametrize("seed", range(100, 104))
def test_the_plan_is_that_of_its_part(seed: int) -> None:
    """Tests that the plan, its proof and its ties equal those of the part alone."""
    problem = _draw(seed)
    plan = solve(problem)
    if isinstance(plan, Infeasible):
        return
    assert isinstance(plan, Plan) and plan.status == "optimal" and plan.proof.gap == 0
    alone = solve(dataclasses.replace(plan.problem, whole=None, part=None, gpus_open=False))
    assert isinstance(alone, Plan)
    assert (plan.layout, plan.proof.objective) == (alone.layout, alone.proof.objective)
    assert plan.alternatives == alone.alternatives
    assert [one.gpus for one in plan.parts if one.status == "used"] == [plan.layout.gpus]


@settings(max_examples=12)
@given(st.integers(0, 10_000))
def test_no_plan_splits_a_tp_group_or_overfills_a_domain(seed: int) -> None:
    """Tests what ``solve`` returns on unequal domains, rank by rank, by where it is placed.

    ``limits.tp_within_domain`` is on by default, so that no TP group may leave its domain.
    """
    plan = solve(_draw(seed, layout={"tp": {"min": 2}}))  # tiny models would have none
    if isinstance(plan, Infeasible):
        return
    assert isinstance(plan, Plan) and plan.layout.tp > 1
    placed = place(plan.problem, plan.layout)
    spots = [placed.spot(rank) for rank in range(plan.layout.gpus)]
    for group in rank_groups(plan.layout).kind("tp"):
        assert len({spots[rank].domain.index for rank in group}) == 1
    held = Counter(spot.domain.index for spot in spots)
    whole = plan.problem.whole
    assert whole is not None
    assert all(number <= whole.domains[domain] for domain, number in held.items())
    assert len({(one.domain.index, one.node, one.gpu) for one in spots}) == plan.layout.gpus


@settings(max_examples=8)
@given(st.integers(0, 10_000))
def test_the_least_step_of_a_part_is_never_more_than_a_plan_takes(seed: int) -> None:
    """Tests the bound of each part against the coarse bounds of all its cells."""
    problem = _draw(seed)
    known = rates(problem)
    for part in random.Random(seed).sample(parts(problem), 2):
        search = Search(on_part(problem, part))
        for region in search.space.regions():
            # A coarse bound is no more than what any split of the cell takes.
            assert known.least_step(part) <= int(region.bounds.min())


@given(
    st.lists(st.integers(1, 18), min_size=1, max_size=8),
    st.integers(1, 4),
    st.integers(0, 6),
    st.integers(0, 5),
    st.integers(0, 5),
)
def test_no_part_beats_the_best_case(
    trays: list[int], per_leaf: int, power: int, size: int, stride: int
) -> None:
    """Tests tiers, and members that share a domain, of groups on any part."""
    domains = tuple(4 * one for one in trays)
    leaves = [len(domains[at : at + per_leaf]) for at in range(0, len(domains), per_leaf)]
    whole = Cluster("c", node_type("gb200-nvl72"), domains, leaf_domains=tuple(leaves))
    ideal, group = best_case(whole), 1 << power
    members, apart = 1 << size, 1 << stride
    if group > max(domains) or (part := packed_cluster(whole, group)).gpus < members * apart:
        return
    assert ideal.tier(members) <= part.tier(members)
    assert ideal.group_tier(members, apart) <= part.group_tier(members, apart)
    assert ideal.ranks_per_domain(members, apart) >= part.ranks_per_domain(members, apart)
    assert ideal.ranks_per_leaf(members, apart) >= part.ranks_per_leaf(members, apart)
    assert ideal.fits_domain(members) or not part.fits_domain(members)


def test_larger_racks_are_left_half_idle_where_expert_groups_want_it() -> None:
    """Tests that EP 16 on racks of 14, 10 and 6 trays uses 48, 32 and 16 GPUs."""
    problem = _problem(
        {"card": "toy-moe", "experts": 16}, [56, 40, 24], 96, "gb200-nvl72", layout={"ep": 16}
    )
    plan = solve(problem)
    assert isinstance(plan, Plan)
    assert plan.layout.gpus == 96 and plan.problem.cluster.domains == (48, 32, 16)
    cluster = plan.to_json()["cluster"]
    assert (cluster["gpus"], cluster["used"], cluster["idle"]) == (120, 96, 24)
    assert cluster["idle_because"] == [{"gpus": 24, "why": "beside-groups"}]
    assert "24 fill no group of 16 in their NVLink domain" in str(plan)


def test_no_plan_on_any_part_is_proved() -> None:
    """Tests the conflict of a pin that no number of GPUs can meet."""
    problem = _problem("toy-moe", [8, 8], 8, "h100-hgx", layout={"dp": 7})
    answer = solve(problem)
    assert isinstance(answer, Infeasible)
    assert answer.conflicts[0].pins == ("layout.dp = 7",)
    assert "no number of them has a plan; the conflict is that of 16" in str(answer)


def test_a_limit_leaves_the_best_plan_so_far_and_a_bound_of_all_parts() -> None:
    """Tests that a search without time says unknown or gives a plan with an open gap."""
    problem = _problem("toy-moe", [72, 68, 56], 96, "gb200-nvl72")
    answer = solve(problem, time_limit_s=1e-6)
    assert answer.status == "unknown"


def test_a_diagnosis_is_about_the_most_gpus_that_allow_a_layout() -> None:
    """Tests racks of 18, 17 and 14 trays: all 196 GPUs allow none, 192 do."""
    problem = _problem("toy-moe", [72, 68, 56], 96, "gb200-nvl72", layout={"ep": 4})
    fixed = with_fixed_gpus(problem)
    assert fixed.gpus == 192 and not fixed.gpus_open
    again = resolve(from_mapping(dict(fixed.asked)))
    assert again.cluster.domains == fixed.cluster.domains
    assert fixed.assumed[0].startswith("cluster: 192 of 196 GPUs")
    none = with_fixed_gpus(_problem("deepseek-v3", [8, 4], 8, "gb200-nvl72"))
    assert none.gpus == 8 and not none.gpus_open
