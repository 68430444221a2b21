from __future__ import annotations

import dataclasses
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from meshplan.constraints.decisions import DEGREES, GRAPH_FLAGS, RECOMPUTE_FLAGS
from meshplan.constraints.problem import Pin, Problem
from meshplan.constraints.resolve import resolve
from meshplan.scenarios import from_mapping
from meshplan.solver.bounds import NEVER
from meshplan.solver.cells import UNLIMITED, Pool, Region
from meshplan.solver.found import canonical_key
from meshplan.solver.judge import active_rules, violations
from meshplan.solver.program import Goal, solve_program
from meshplan.solver.rank_bounds import Bounds
from meshplan.solver.regions import Space
from meshplan.solver.results import Infeasible, Plan
from meshplan.solver.solve import solve
from tests.solver.small import draw, small, with_capacity

FEW = settings(
    max_examples=12, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow]
)
SEEDS = st.integers(0, 100_000)
ROOT = Path(__file__).resolve().parents[2]


def scenario(seed: int) -> dict[str, Any]:
    """A random small scenario whose pins leave room: those of the mesh only."""
    data = draw(seed)
    pins = {k: v for k, v in data["layout"].items() if k in ("tp", "cp", "mbs", "etp")}
    options = data["options"] | {"pipeline_layout": "auto", "cuda_graphs": "none"}
    return data | {"layout": pins, "options": options, "limits": {}}


def problem_of(seed: int) -> Problem:
    """The problem of :func:`scenario`."""
    return resolve(from_mapping(scenario(seed)))


def fastest(answer: Plan | Infeasible | Any) -> float:
    """Proved best step time, us, scaled to the largest batch; infinite if nothing fits."""
    if isinstance(answer, Infeasible):
        return float("inf")
    assert isinstance(answer, Plan) and answer.status == "optimal"
    return round(answer.proof.objective * 1e6)


@FEW
@given(SEEDS, st.floats(0.6, 1.0))
def test_more_memory_never_slows(seed: int, share: float) -> None:
    """Tests that the optimum with less HBM is no faster than with more."""
    problem = problem_of(seed)
    ample = solve(problem)
    assume(isinstance(ample, Plan))
    assert isinstance(ample, Plan)
    least = int(ample.cost.peak * share)
    between = (least + problem.capacity) // 2
    times = [fastest(solve(with_capacity(problem, size))) for size in (least, between)]
    assert times[0] >= times[1] >= fastest(ample)


@FEW
@given(SEEDS, st.randoms(use_true_random=False))
def test_dropping_a_pin_never_slows(seed: int, rng: random.Random) -> None:
    """Tests that a plan of the narrower question is a plan of the wider one."""
    data = scenario(seed)
    assume(data["layout"])
    dropped = rng.choice(sorted(data["layout"]))
    wider = data | {"layout": {k: v for k, v in data["layout"].items() if k != dropped}}
    narrow, wide = (fastest(solve(resolve(from_mapping(d)))) for d in (data, wider))
    # A pin may lie outside the candidates (tp = 3): then the wider search need not contain it.
    assert wide <= narrow


@FEW
@given(SEEDS)
def test_pinning_the_optimum_finds_it_again(seed: int) -> None:
    """Tests that with every decision pinned to the plan the same layout and step come out."""
    problem = problem_of(seed)
    plan = solve(problem)
    assume(isinstance(plan, Plan))
    assert isinstance(plan, Plan)
    names = (
        *DEGREES,
        "rc_full",
        *RECOMPUTE_FLAGS,
        "offload",
        "dispatcher",
        "cp_comm",
        *GRAPH_FLAGS,
    )
    pins = tuple(Pin(n, (plan.layout.value(n),), f"layout.{n}", n) for n in names)
    again = solve(dataclasses.replace(problem, pins=pins))
    assert isinstance(again, Plan)
    assert again.cost.peak == plan.cost.peak
    assert again.cost.time.step_us == plan.cost.time.step_us
    assert dataclasses.replace(again.layout, slots=()) == dataclasses.replace(plan.layout, slots=())


@FEW
@given(SEEDS)
def test_more_options_never_slow(seed: int) -> None:
    """Tests that free options and a free split are no slower than none, and than an even split."""
    data = scenario(seed)
    free = fastest(solve(resolve(from_mapping(data | {"options": {"cuda_graphs": "none"}}))))
    for options in (
        {"recompute": "none", "optimizer_offload": 0},
        {"pipeline_layout": "even"},
        {"dispatcher": "alltoall"},
    ):
        asked = data | {"options": {"cuda_graphs": "none", **options}}
        assert free <= fastest(solve(resolve(from_mapping(asked))))


def _bytes(answer: Any) -> str:
    data = answer.to_json()
    for part in (data, data.get("proof") or {}):
        for varying in ("wall_s", "programs"):
            part.pop(varying, None)
    return json.dumps(data, sort_keys=True)


@FEW
@given(SEEDS)
def test_the_same_question_gets_the_same_answer(seed: int) -> None:
    """Tests that two runs print the same bytes but for the time that they took."""
    assert _bytes(solve(problem_of(seed))) == _bytes(solve(problem_of(seed)))


def test_processes_print_the_same_bytes() -> None:
    """Tests processes that differ in hash seed and in the threads that libraries may use.

    The search itself has one worker whatever the machine.
    """
    code = (
        "from tests.solver.small import small; from meshplan.solver.solve import solve;"
        "from tests.solver.test_search_properties import _bytes; print(_bytes(solve(small())))"
    )
    printed = set()
    for threads in ("1", "2", "8"):
        names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "PYTHONHASHSEED")
        environment = {**os.environ, **dict.fromkeys(names, threads)}
        command = [sys.executable, "-c", code]
        run = subprocess.run(
            command, env=environment, cwd=ROOT, capture_output=True, text=True, check=True
        )
        printed.add(run.stdout)
    assert len(printed) == 1
    assert '"status": "optimal"' in printed.pop()


@FEW
@given(SEEDS)
def test_more_tolerance_never_lowers_dp(seed: int) -> None:
    """Tests dp_tolerance 0, 0.1 and 0.5: the best time stays, DP may rise."""
    problem = problem_of(seed)
    times, degrees = set(), []
    for tolerance in (0.0, 0.1, 0.5):
        limits = dataclasses.replace(problem.limits, dp_tolerance=tolerance)
        plan = solve(dataclasses.replace(problem, limits=limits))
        assume(isinstance(plan, Plan))
        assert isinstance(plan, Plan)
        times.add(fastest(plan))
        degrees.append(plan.layout.dp)
    assert len(times) == 1
    assert degrees == sorted(degrees)


@FEW
@given(SEEDS)
def test_plans_are_legal_and_fit(seed: int) -> None:
    """Tests that the printed plan breaks no rule and no alternative is better than the best."""
    problem = problem_of(seed)
    plan = solve(problem)
    assume(isinstance(plan, Plan))
    assert isinstance(plan, Plan)
    assert violations(problem, plan.layout) == []
    assert plan.cost.peak <= problem.capacity
    assert plan.proof.objective == plan.proof.bound
    largest = max(int(v) for v in problem.candidates["gbs"])
    for other in plan.alternatives:
        assert violations(problem, other.layout) == []
        scaled = other.step_s * largest / other.layout.gbs
        assert scaled >= plan.proof.objective - 1e-6
        assert scaled <= plan.proof.objective * (1 + problem.limits.dp_tolerance) + 1e-6


# -- bounds ----------------------------------------------------------------------------------------


def _cells(problem: Problem, rng: random.Random, count: int) -> list[tuple[Region, Pool, int]]:
    """Some cells, each with its region and its position in it."""
    space = Space(problem, active_rules(problem), problem.pinned, problem.capacity)
    regions = [region for region in space.regions() if len(region.bounds)]
    found = []
    for _ in range(count if regions else 0):
        region = rng.choice(regions)
        at = rng.randrange(len(region.bounds))
        pools = list(space.refine(region, np.array([at]), UNLIMITED))
        if pools:
            found.append((region, rng.choice(pools), at))
    return found


@FEW
@given(SEEDS, st.randoms(use_true_random=False))
def test_bounds_are_below_the_program(seed: int, rng: random.Random) -> None:
    """Tests coarse <= refined <= exact step time, and the bound of the peak <= exact peak."""
    problem = problem_of(seed)
    for region, pool, at in _cells(problem, rng, 6):
        assert region.bounds[at] <= pool.least[0]
        ga = [int(pool.ga[0])]
        fast = solve_program(
            problem, pool.shape, pool.costs, ga, Goal("step", [1 << 42], problem.capacity), 60
        )
        if fast is None:
            continue
        assert pool.step[0] <= fast.objective
        bounds = Bounds(problem, (pool.shape,), pool.costs, pool.ga)
        most = rng.randint(fast.objective, 2 * fast.objective)
        lean = solve_program(
            problem, pool.shape, pool.costs, ga, Goal("peak", [most], problem.capacity), 60
        )
        assert lean is not None
        assert bounds.least_peak(problem.capacity, most)[0] <= lean.objective
        # With just that memory the step is bounded by the best step with it.
        tight = solve_program(
            problem, pool.shape, pool.costs, ga, Goal("step", [1 << 42], lean.objective), 60
        )
        assert tight is not None
        assert bounds.least_step(lean.objective, UNLIMITED)[0] <= tight.objective


@FEW
@given(SEEDS, st.randoms(use_true_random=False))
def test_a_bound_never_excludes_what_the_program_finds(seed: int, rng: random.Random) -> None:
    """Tests that a cell which the refined bound calls impossible has no plan."""
    problem = problem_of(seed)
    for _, pool, _ in _cells(problem, rng, 6):
        ga = [int(pool.ga[0])]
        goal = Goal("peak", [1 << 42], 1 << 30)
        lean = solve_program(problem, pool.shape, pool.costs, ga, goal, 60)
        if lean is None:
            continue
        bounds = Bounds(problem, (pool.shape,), pool.costs, pool.ga)
        assert bounds.least_step(lean.objective, UNLIMITED)[0] < NEVER


@pytest.mark.parametrize("gpus", [4, 8])
def test_program_minimum_is_the_canonical_plan(gpus: int) -> None:
    """Tests that of equal plans the smallest decisions are printed, whatever the order of pins."""
    pins = {"tp": 1, "cp": 1, "mbs": [2, 1]}
    plans = [
        solve(small(cluster={"preset": "h100-hgx", "gpus": gpus}, layout=dict(order)))
        for order in (pins.items(), reversed(pins.items()))
    ]
    assert all(isinstance(plan, Plan) for plan in plans)
    keys = {canonical_key({n: p.layout.value(n) for n in _names()}) for p in plans}  # type: ignore[union-attr]
    assert len(keys) == 1


def _names() -> tuple[str, ...]:
    from meshplan.constraints.decisions import DECISIONS

    return DECISIONS
