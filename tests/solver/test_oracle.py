from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import pytest

from meshplan.constraints.problem import Problem
from meshplan.constraints.resolve import resolve
from meshplan.scenarios import from_mapping
from meshplan.solver.results import Infeasible, Plan
from meshplan.solver.solve import solve
from tests.solver.oracle import Best, TooLarge, Tried, best, tried, whole_gib
from tests.solver.small import draw, small, with_capacity

#: 24 batches of 10 are 240 cases.
BATCHES, CASES = 24, 10
#: Most layouts of a case, and cases of a batch that no layout at all can satisfy.
MOST_LAYOUTS, IMPOSSIBLE = 500, 1


def _capacity(rng: random.Random, layouts: list[Tried], problem: Problem) -> int:
    """Memory of a GPU: ample, what some layout just needs, or a quantum less than the least."""
    if not layouts:
        return problem.capacity
    peaks = sorted({one.peak for one in layouts})
    form = rng.random()
    if form < 0.35:
        return peaks[-1]
    if form < 0.95:
        return rng.choice(peaks[: max(1, len(peaks) // 2)])
    return peaks[0] - 1


def _cases(batch: int) -> Iterator[tuple[int, Problem, Best | None]]:
    """The cases of a batch: seed, problem, and what the search must find."""
    count = impossible = 0
    for seed in itertools.count(1000 * batch):
        problem = resolve(from_mapping(draw(seed)))
        try:
            layouts = tried(problem, MOST_LAYOUTS)
        except TooLarge:
            continue
        if not layouts:
            impossible += 1
            if impossible > IMPOSSIBLE:
                continue
        capacity = _capacity(random.Random(seed), layouts, problem)
        wanted = best(layouts, capacity, problem.limits.dp_tolerance)
        yield seed, with_capacity(problem, capacity), wanted
        count += 1
        if count == CASES:
            return


def found(problem: Problem) -> Best | None:
    """What the search finds, in the form of the enumerator's answer."""
    answer = solve(problem)
    if isinstance(answer, Infeasible):
        return None
    assert isinstance(answer, Plan)
    assert answer.status == "optimal"
    assert answer.proof.gap == 0
    batches = problem.pinned.get("gbs", problem.candidates["gbs"])
    largest = max(int(value) for value in batches)
    scaled = -(-answer.cost.time.step_us * largest // answer.layout.gbs)
    fastest = round(answer.proof.objective * 1e6)
    return Best(fastest, answer.layout.dp, whole_gib(answer.cost.peak), scaled)


@pytest.mark.parametrize("batch", range(BATCHES))
def test_search_agrees_with_enumeration(batch: int) -> None:
    """Tests verdict, best step time, DP, peak and final step on random small scenarios."""
    differing = {}
    for seed, problem, wanted in _cases(batch):
        answer = found(problem)
        if answer != wanted:
            differing[seed, problem.capacity] = (answer, wanted)
    assert not differing, "seed and capacity: (search, enumeration)"


@pytest.mark.parametrize(
    "text", ["E|tt|tt|L", "Et|t|t|tL", "Ett|ttL", "E|t|t|t|t|L", "Ettt||t|L", "|Etttt|L"]
)
def test_fixed_split_agrees_with_enumeration(text: str) -> None:
    """Tests layout strings with stages that hold E or L alone, or nothing at all."""
    problem = small(
        model="toy-dense",
        options={"pipeline_layout": text, "recompute": "none", "optimizer_offload": 0},
        layout={"tp": [1, 2], "cp": 1, "mbs": 1},
    )
    layouts = tried(problem)
    assert found(problem) == best(layouts, problem.capacity, problem.limits.dp_tolerance)


@pytest.mark.parametrize("text", ["Ett|ttmL", "Ett|tt|m|L", "E|tt|ttm|L", "Ett|t|t|mL"])
def test_split_with_mtp_agrees_with_enumeration(text: str) -> None:
    """Tests layout strings with the MTP layer beside the loss and in a stage before it."""
    problem = small(
        model={"card": "toy-dense", "mtp_layers": 1},
        options={"pipeline_layout": text, "recompute": "none", "optimizer_offload": 0},
        layout={"tp": [1, 2], "cp": 1, "mbs": 1},
    )
    layouts = tried(problem)
    assert layouts
    assert found(problem) == best(layouts, problem.capacity, problem.limits.dp_tolerance)


@pytest.mark.parametrize("tight", [False, True])
@pytest.mark.parametrize(
    ("layers", "pp", "vpp"), [(2, 4, 1), (2, 3, 1), (3, 4, 1), (4, 3, 2), (6, 4, 2), (5, 3, 2)]
)
def test_few_layers_on_many_stages_agree_with_enumeration(
    layers: int, pp: int, vpp: int, tight: bool
) -> None:
    """Tests stages that only just have a layer each, where the ends may have none.

    The vocabulary is large, so that with tight memory the layers belong between the ends.
    """
    problem = small(
        model={"card": "toy-dense", "layers": layers, "vocab": 256_000},
        cluster={"preset": "gb200-nvl72", "domains": [2 * pp]},
        options={"recompute": "none", "optimizer_offload": 0},
        layout={"tp": 1, "cp": 1, "pp": pp, "vpp": vpp, "mbs": 1},
        workload={"seq_len": 4096, "global_batch_size": 24},
    )
    layouts = tried(problem)
    assert layouts
    peaks = [one.peak for one in layouts]
    problem = with_capacity(problem, min(peaks) if tight else max(peaks))
    assert found(problem) == best(layouts, problem.capacity, problem.limits.dp_tolerance)
