"""Limits of tiny scenarios against trying every layout, and of whole ones."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner

import meshplan
from meshplan.cli.app import application
from meshplan.constraints.problem import QUANTA_PER_GIB, Problem
from meshplan.constraints.resolve import resolve
from meshplan.scenarios import from_mapping
from meshplan.solver.changed import changed_problem
from meshplan.solver.limits import Limit
from meshplan.solver.limits.quantities import QUANTITIES, Quantity
from meshplan.solver.limits.search import search_limits
from meshplan.solver.repairs.hardware import gpu_counts
from meshplan.solver.repairs.trials import Trials
from meshplan.solver.solve import solve
from tests.solver.oracle import tried
from tests.solver.repairs.toys import MOST_LAYOUTS, Toy, toys

ROOT = Path(__file__).resolve().parents[3]
SEED = ROOT / "scenarios" / "seed" / "qwen3-235b-gb200-4k.yaml"
DENSE = ROOT / "scenarios" / "reports" / "four-gpus-for-full-training-of-30b.yaml"


def roomier(toy: Toy) -> Toy:
    """The toy on GPUs with a tenth more memory than its leanest layout needs, if it has one."""
    layouts = tried(toy.problem, MOST_LAYOUTS)
    if layouts:
        least = min(one.peak for one in layouts) / QUANTA_PER_GIB / 0.92
        toy.figures = {"node_type.hbm_gib": round(least * 1.1, 3)}
        toy.trials = Trials(toy.problem, fixed=toy.figures)
    return toy


TOYS = [*toys(3), *(roomier(toy) for toy in toys(3, first=40))]


@pytest.fixture(scope="module", params=TOYS, ids=lambda toy: toy.problem.name)
def toy(request: pytest.FixtureRequest) -> Toy:
    """A toy with a layout or without."""
    found: Toy = request.param
    return found


@pytest.fixture(scope="module", name="found")
def _found(toy: Toy) -> list[tuple[Quantity, Limit]]:
    asked = [one for one in QUANTITIES if one.applies(toy.problem)]
    return list(zip(asked, search_limits(toy.trials, asked), strict=True))


def beyond(toy: Toy, quantity: Quantity, limit: Limit) -> Iterator[Mapping[str, object]]:
    """Some values beyond a limit, the nearest first."""
    problem, value = toy.problem, limit.value
    path = quantity.path
    if path == "cluster.gpus":
        most = problem.gpus if value is None else value - 1
        yield from (quantity.changes(problem, n) for n in gpu_counts(problem, 1, most))
    elif path == "node_type.hbm_gib":
        yield from ({path: n} for n in range((value or 1) - 1, max(0, (value or 1) - 3), -1))
    elif path == "workload.seq_len":
        first = (value or 0) + 1
        yield from ({path: n} for n in (*range(first, first + 20), 2 * first))
    elif path in ("layout.mbs", "layout.dp"):
        yield from ({path: n} for n in (1, 2, 3, 4, 8, 16) if n > (value or 0))
    elif limit.bounded:
        yield from ({path: n} for n in range((value or 0) + 1, (value or 0) + 17))


def test_each_limit_is_possible(toy: Toy, found: list[tuple[Quantity, Limit]]) -> None:
    """Tests that some layout fits at each limit, and that its plan is one."""
    for quantity, limit in found:
        assert limit.proved
        if limit.value is None:
            assert limit.plan is None
            continue
        values = quantity.changes(toy.problem, limit.value)
        if limit.bounded:  # layouts of a batch without a bound are too many to try
            assert toy.fits(values) in (True, None), limit.path
        assert limit.plan is not None
        assert limit.plan.cost.peak <= limit.plan.problem.capacity


def test_nothing_beyond_it_is(toy: Toy, found: list[tuple[Quantity, Limit]]) -> None:
    """Tests that every layout beyond a limit is illegal or overfull."""
    for quantity, limit in found:
        for values in beyond(toy, quantity, limit):
            assert not toy.fits(values), (limit.path, limit.value, values)


def test_a_batch_of_few_micro_batches_may_be_all_that_fits() -> None:
    """Tests four pipeline stages on GPUs that hold the activations of two micro-batches, not three.

    Four or more keep as many in flight on the first stage (1F1B), so what holds of three, four and
    eight holds of every larger batch; and a GPU that holds four holds any number.
    """
    data = {
        "meshplan": 1,
        "name": "in-flight",
        "model": "llama-3.1-70b",
        "cluster": {"preset": "h100-hgx", "gpus": 32},
        "layout": {"tp": 8, "cp": 1, "pp": 4, "vpp": 1, "mbs": 1},
        "options": {"recompute": "none", "optimizer_offload": 1.0},
        "training": {"gradient_dtype": "bf16"},
    }

    def problem(batch: int) -> Problem:
        asked = {"workload": {"seq_len": 16384, "global_batch_size": batch}}
        return resolve(from_mapping(data | asked))

    def fits(batch: int, hbm_gib: float) -> bool:
        return Trials(problem(batch), fixed={"node_type.hbm_gib": hbm_gib}).works({})

    assert [fits(batch, 37) for batch in (1, 2, 3, 4, 8)] == [True, True, False, False, False]
    batch = [one for one in QUANTITIES if one.path == "workload.global_batch_size"]
    for present in (1, 64):  # with a layout at present, and without
        few = Trials(problem(present), fixed={"node_type.hbm_gib": 37})
        (limit,) = search_limits(few, batch)
        assert (limit.value, limit.proved, limit.bounded) == (2, True, True)
        assert limit.plan is not None and limit.plan.layout.ga == 2
    many = Trials(problem(1), fixed={"node_type.hbm_gib": 40})
    (limit,) = search_limits(many, batch)
    assert limit.value == 1 << 20 and not limit.bounded


def test_limits_of_a_seed_scenario() -> None:
    """Tests figures of Qwen3-235B at 4K on 128 GB200s that can be told by hand."""
    asked = [one for one in QUANTITIES if one.path in ("layout.dp", "cluster.gpus")]
    report = {one.path: one for one in search_limits(Trials(resolve(meshplan.load(SEED))), asked)}
    # tp = cp = pp = 1 fits: every GPU is a replica of its own, and 1,024 sequences divide by 128.
    assert report["layout.dp"].value == 128
    # 235e9 parameters with weights, gradients and two moments in bf16 take 1,751 GiB: over 8 GPUs
    # more than the 169.6 GiB that each may use.  12 would do, but DP would have a factor of 3,
    # which does not divide the batch of 1,024.
    assert report["cluster.gpus"].value == 16
    plan = report["cluster.gpus"].plan
    assert plan is not None and plan.problem.gpus == 16


@pytest.mark.parametrize("preset", ["h100-hgx", "b300-hgx"])
def test_the_least_memory_of_a_gpu_is_that_of_all_pipeline_degrees(preset: str) -> None:
    """Tests a node where a layout fits at present (262 GiB), and one where none does (79 GiB).

    A search for any plan stops at the first pipeline degree that has one, and what the layouts
    that it saw need at least (246 GiB, pp = 1 here) is no bound for the others.
    """
    data = {
        "meshplan": 1,
        "name": "least-hbm",
        "model": "llama-3.1-70b",
        "cluster": {"preset": preset, "gpus": 8},
        "workload": {"seq_len": 4096, "global_batch_size": 256},
        "layout": {"tp": 1, "cp": 1, "mbs": 2},
        "options": {"optimizer_offload": 0.0},
        "limits": {"memory_headroom": 0.15},
    }
    problem = resolve(from_mapping(data))
    hbm = [one for one in QUANTITIES if one.path == "node_type.hbm_gib"]
    (limit,) = search_limits(Trials(problem), hbm)
    # 70.6e9 parameters of 18 bytes (weights 2, gradients 4, optimizer 12) over 8 GPUs are 148 GiB,
    # 174 with the headroom; activations come on top.
    assert limit.value == 200 and limit.proved
    found = [solve(changed_problem(problem, {limit.path: gib})).status for gib in (199, 200)]
    assert found == ["infeasible", "optimal"]


def test_a_scenario_without_a_layout(tmp_path: Path) -> None:
    """Tests the report where one field alone helps, or cannot: domains of one GPU each."""
    path = tmp_path / "limits.json"
    run = CliRunner().invoke(application, ["limits", str(DENSE), "--json", str(path)])
    assert run.exit_code == 0, run.output
    data = json.loads(path.read_text("utf-8"))
    assert data["possible"] is False and data["status"] == "proved"
    by_path = {one["path"]: one for one in data["limits"]}
    # Each of four GPUs holds 128 GiB of state (README): 154 GiB with activations and headroom.
    assert by_path["node_type.hbm_gib"]["value"] == 154
    assert by_path["workload.seq_len"]["value"] is None
    assert "node_type.hbm_gib, now 79.1" in run.output and "none" in run.output


def test_a_time_limit_leaves_what_is_known() -> None:
    """Tests that a limit of no time marks everything as not proved, with exit code 4."""
    run = CliRunner().invoke(application, ["limits", str(SEED), "--time-limit", "0.0001"])
    assert run.exit_code == 4
    assert "not known" in run.output and "the time was up" in run.output
