from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import pytest

from meshplan.constraints.problem import Problem
from meshplan.constraints.resolve import resolve
from meshplan.scenarios import InputError, from_mapping
from meshplan.solver.listings import Wanted
from meshplan.solver.results import Alternative, Plan
from meshplan.solver.solve import solve
from tests.solver.oracle import TooLarge, Tried, tried, whole_gib
from tests.solver.small import draw, small, with_capacity

#: Batches of random problems that an enumerator can list, and how many each has.
BATCHES, CASES = 6, 6
MOST_LAYOUTS = 500
#: Plans of the front may take this much more than the fastest.
WITHIN = 0.5


def _cases(batch: int) -> Iterator[tuple[Problem, list[Tried]]]:
    """Problems with all layouts that fit: with ample memory, or with what a third of them needs."""
    count = 0
    for seed in itertools.count(5000 + 1000 * batch):
        problem = resolve(from_mapping(draw(seed)))
        try:
            layouts = tried(problem, MOST_LAYOUTS)
        except TooLarge:
            continue
        if len({one.mesh for one in layouts}) < 2:
            continue
        peaks = sorted(one.peak for one in layouts)
        capacity = random.Random(seed).choice([peaks[-1], peaks[len(peaks) // 3]])
        host = problem.host_capacity
        yield (
            with_capacity(problem, capacity),
            [one for one in layouts if one.peak <= capacity and one.host <= host],
        )
        count += 1
        if count == CASES:
            return


def _scaled(problem: Problem, other: Alternative) -> int:
    largest = max(int(size) for size in problem.domain("gbs"))
    return -(-round(other.step_s * 1e6) * largest // other.layout.gbs)


@pytest.mark.parametrize("batch", range(BATCHES))
def test_ranking_and_front_are_those_of_all_layouts(batch: int) -> None:
    """Tests both against every layout of random problems: nothing is missing, nothing out of order.

    The ranking by the least step of each mesh; the front by (step, DP, whole GiB), as a set.
    """
    for problem, fitting in _cases(batch):
        plan = solve(problem, wanted=Wanted(top=3, pareto_within=WITHIN))
        assert isinstance(plan, Plan) and plan.proved
        fastest = {
            mesh: min(one.scaled for one in fitting if one.mesh == mesh)
            for mesh in {one.mesh for one in fitting}
        }
        steps = [_scaled(problem, one) for one in plan.top]
        assert steps == sorted(fastest.values())[:3], problem.name
        meshes = [
            (one.layout.tp, one.layout.cp, one.layout.pp, one.layout.ep, one.layout.etp)
            for one in plan.top
        ]
        assert [fastest[mesh] for mesh in meshes] == steps and len(set(meshes)) == len(meshes)

        most = int(min(fastest.values()) * (1 + WITHIN))
        merits = {(one.scaled, -one.dp, whole_gib(one.peak)) for one in fitting}
        merits = {one for one in merits if one[0] <= most}
        wanted = {
            one
            for one in merits
            if not any(
                other != one and all(a <= b for a, b in zip(other, one, strict=True))
                for other in merits
            )
        }
        front = {
            (_scaled(problem, one), -one.layout.dp, whole_gib(round(one.peak_gib * 4096)))
            for one in plan.pareto
        }
        assert front == wanted, problem.name
        assert len(plan.pareto) == len(front)


def test_fewer_tuples_than_asked_for() -> None:
    """Tests a problem with every degree pinned: one tuple is all that there is to rank."""
    problem = small(layout={"tp": 2, "cp": 1, "pp": 1, "ep": 2, "etp": 1})
    plan = solve(problem, wanted=Wanted(top=5))
    assert isinstance(plan, Plan) and len(plan.top) == 1
    assert _scaled(problem, plan.top[0]) == round(plan.proof.objective * 1e6)


def test_the_first_of_the_ranking_is_the_fastest() -> None:
    """Tests that ranking and front begin with the optimum by throughput alone."""
    problem = small()
    plan = solve(problem, wanted=Wanted(top=4, pareto_within=0.2))
    assert isinstance(plan, Plan) and len(plan.top) == 4
    objective = round(plan.proof.objective * 1e6)
    assert _scaled(problem, plan.top[0]) == _scaled(problem, plan.pareto[0]) == objective
    text = str(plan)
    assert "The 4 fastest degree tuples" in text and "Pareto front" in text


def test_a_limit_leaves_them_unfinished(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that the plan stays proved, and that the list which was cut short is named."""
    from meshplan.solver import listings
    from meshplan.solver.program import LimitReached

    def stopped(*_: object) -> list[object]:
        raise LimitReached

    monkeypatch.setattr(listings, "pareto_front", stopped)
    plan = solve(small(), wanted=Wanted(top=2, pareto_within=0.2))
    assert isinstance(plan, Plan)
    assert plan.status == "optimal" and not plan.proved
    assert plan.unfinished == ("pareto",) and len(plan.top) == 2
    assert "Not finished before the search was stopped: --pareto." in str(plan)


@pytest.mark.parametrize("wanted", [{"top": -1}, {"pareto_within": -0.1}])
def test_impossible_requests_are_refused(wanted: dict[str, float]) -> None:
    """Tests that the Python API words a request that cannot be met."""
    import meshplan

    scenario = from_mapping(small().asked)
    with pytest.raises(InputError, match=next(iter(wanted))):
        meshplan.solve(scenario, **wanted)  # type: ignore[arg-type]
