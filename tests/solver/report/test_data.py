from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from meshplan.constraints.memory.stage import PARTS
from meshplan.constraints.problem import QUANTA_PER_GIB, Limits
from meshplan.scenarios import Scenario, from_mapping
from meshplan.solver.check import check, judge_layout
from meshplan.solver.report.data import dumps
from meshplan.solver.results import (
    Alternative,
    CheckReport,
    Conflict,
    Infeasible,
    Plan,
    Proof,
    Unknown,
)

#: Memory of a node of h100-hgx, as its preset has it.
H100_NODE_GIB = 1862

#: Keys of every answer of a search, in order.
KEYS = [
    "meshplan_result", "name", "status", "layout", "pipeline", "recompute", "optimizer_offload",
    "activation_offload", "dispatcher", "cuda_graphs", "memory", "time", "proof", "advisories",
    "placement", "cluster", "conflicts", "repairs", "assumed", "binding", "near_misses",
    "alternatives", "top", "pareto", "relaxations", "unfinished", "scenario",
]  # fmt: skip


def _scenario(precision: str = "bf16", preset: str = "h100-hgx", **changes: Any) -> Scenario:
    data = {
        "meshplan": 1,
        "name": "report",
        "model": "toy-moe",
        "cluster": {"preset": preset, "gpus": 16},
        "workload": {"seq_len": 4096, "global_batch_size": 32, "precision": precision},
    }
    return from_mapping(data | changes)


def _report(layout: str = "tp=2,ep=4,pp=2,vpp=2", **changes: Any) -> CheckReport:
    report = check(_scenario(**changes), layout)
    assert report.cost is not None
    return report


def _plan() -> Plan:
    report = _report()
    assert report.cost is not None
    other = Alternative(report.layout, 1.25, 10.0, "fastest")
    return Plan(
        report.problem,
        "optimal",
        report.layout,
        report.cost,
        Proof(objective=0.5, bound=0.5, gap=0.0, wall_s=1.23456, cells=7, programs=2),
        advisories=(("dp-floor", "text"),),
        binding=("memory",),
        alternatives=(other,),
    )


def test_plan_has_the_keys_of_the_contract() -> None:
    """Tests the names that tools rely on, at every level."""
    data = _plan().to_json()
    assert list(data) == KEYS
    assert data["meshplan_result"] == 1
    assert set(data["layout"]) == {
        "tp", "cp", "pp", "vpp", "ep", "etp", "dp", "edp", "mbs", "ga", "gbs", "gpus", "cp_comm",
    }  # fmt: skip
    assert set(data["pipeline"]) == {"layout", "slots", "even", "slot_s", "warm_up"}
    assert len(data["pipeline"]["slot_s"]) == len(data["pipeline"]["slots"]) == 4
    assert data["pipeline"]["warm_up"] == [4, 2]  # 2*(pp-rank-1) + (vpp-1)*pp, pp = vpp = 2
    assert data["alternatives"][0]["pipeline"]["slot_s"] is None
    assert set(data["pipeline"]["slots"][0]) == {
        "rank", "chunk", "layers", "embedding", "mtp", "loss",
    }  # fmt: skip
    assert set(data["recompute"]) == {"granularity", "modules"}
    assert set(data["memory"]) == {
        "capacity_gib", "peak_gib", "verdict", "allocated_gib", "reserved_gib",
        "host_gpus", "host_capacity_gib", "host_gib", "stages",
    }  # fmt: skip
    assert set(data["memory"]["stages"][0]) == {
        "rank", "weights_gib", "gradients_gib", "optimizer_gib", "activations_gib", "logits_gib",
        "working_gib", "update_gib", "overhead_gib", "peak_gib", "peak_event", "events", "host_gib",
    }  # fmt: skip
    assert set(data["time"]) == {
        "step_s", "tokens_per_s_per_gpu", "model_tflops_per_gpu", "mfu", "mfu_of", "breakdown",
        "error_band", "note", "calibration",
    }  # fmt: skip
    assert data["proof"] == {
        "objective": 0.5, "bound": 0.5, "gap": 0.0, "wall_s": 1.235, "cells": 7, "programs": 2,
        "stopped_by": None,
    }  # fmt: skip
    assert set(data["placement"]) == {"tp", "cp", "ep", "dp_cp", "edp", "pp", "ranks"}
    assert data["advisories"] == [{"id": "dp-floor", "text": "text"}]
    assert (data["binding"], data["conflicts"], data["repairs"]) == (["memory"], [], [])
    assert data["alternatives"][0]["step_s"] == 1.25


def test_answers_without_a_plan_have_the_same_keys() -> None:
    """Tests that a reader of any answer finds every key, with None where there is no plan."""
    problem = _report().problem
    conflict = Conflict(("heads-tp",), ("layout.tp",), "16 heads, tp = 3", minimal=True)
    infeasible = Infeasible(problem, (conflict,), 0.5).to_json()
    unknown = Unknown(problem, bound=2.0, wall_s=10.0).to_json()
    assert list(infeasible) == list(unknown) == KEYS
    assert infeasible["status"] == "infeasible"
    assert infeasible["layout"] is None and infeasible["memory"] is None
    assert infeasible["conflicts"] == [
        {"rules": ["heads-tp"], "pins": ["layout.tp"], "text": "16 heads, tp = 3", "minimal": True}
    ]
    assert infeasible["repairs"] == []
    assert infeasible["proof"]["wall_s"] == 0.5
    assert unknown["proof"]["bound"] == 2.0 and unknown["proof"]["objective"] is None


def test_alternatives_come_fastest_first_with_honest_notes() -> None:
    """Tests the order by time per sequence, and that no slower plan is praised.

    Twice the batch in 1.5 times the step is faster; the note of the fastest stays.
    """
    plan = _plan()
    step_s = plan.cost.time.step_us / 1e6
    twice = dataclasses.replace(plan.layout, gbs=2 * plan.layout.gbs)
    others = (
        Alternative(plan.layout, 1.01 * step_s, 1.0, "within the tolerance"),
        Alternative(plan.layout, 0.99 * step_s, 2.0, "within the tolerance"),
        Alternative(twice, 1.5 * step_s, 3.0, "fastest"),
    )
    data = dataclasses.replace(plan, alternatives=others).to_json()["alternatives"]
    assert [(one["peak_gib"], one["note"]) for one in data] == [
        (3.0, "fastest"), (2.0, "within the tolerance"), (1.0, "slower, other degrees"),
    ]  # fmt: skip


def test_answers_say_who_stopped_the_search() -> None:
    """Tests limit, interrupt and a proof; a plan without a word on it was stopped by a limit."""
    plan = _plan()
    feasible = dataclasses.replace(plan, status="feasible")
    interrupted = dataclasses.replace(feasible, stopped_by="interrupt")
    unknown = Unknown(plan.problem, 1.0, 2.0, stopped_by="interrupt")
    answers = (plan, feasible, interrupted, unknown, Infeasible(plan.problem, (), 0.5))
    stopped = [one.to_json()["proof"]["stopped_by"] for one in answers]
    assert stopped == [None, "limit", "interrupt", "interrupt", None]


def test_linear_attention_has_a_wider_band_or_none() -> None:
    """Tests that Qwen3-Next, off by up to five times, is given the reason, and Nemotron 15 %."""
    time = _report("ep=16", model="qwen3-next-80b-a3b").to_json()["time"]
    assert time["error_band"] is None
    assert time["note"] == "not-calibrated-for-gated-delta-net"
    time = _report("ep=16", model="nemotron-3-nano-30b-a3b").to_json()["time"]
    assert (time["error_band"], time["note"]) == (pytest.approx(0.15), None)
    time = _report().to_json()["time"]
    assert (time["error_band"], time["note"]) == (0.1, None)


def test_check_has_violations_with_nearest_values() -> None:
    """Tests the four fields of a violation: 16 heads do not divide by tp = 3."""
    data = check(_scenario(), "tp=3").to_json()
    assert data["status"] == "illegal"
    heads = next(one for one in data["violations"] if one["rule"] == "heads-tp")
    assert set(heads) == {"rule", "text", "values", "nearest"}
    assert heads["values"] == {"tp": 3}
    assert heads["nearest"] == {"tp": [2, 4]}


def test_meaningless_costs_are_none() -> None:
    """Tests that slots which hold 4 of 6 layers have no memory and no time."""
    data = check(_scenario(), "pp=2,pipeline=Et*2|t*2L").to_json()
    assert (data["memory"], data["time"]) == (None, None)
    assert data["pipeline"]["layout"] == "Ett|ttL"


@pytest.mark.parametrize("layout", ["tp=1", "tp=2,cp=2,pp=2,vpp=3", "pp=4,ep=4,recompute=full"])
def test_breakdown_adds_up_to_the_step(layout: str) -> None:
    """Tests that no part of the step is lost or counted twice, to the microsecond."""
    time = _report(layout).to_json()["time"]
    assert sum(time["breakdown"].values()) == pytest.approx(time["step_s"], abs=1e-6)
    assert all(part >= 0 for part in time["breakdown"].values())
    assert time["breakdown"]["experts"] > 0
    assert time["breakdown"]["overhead"] == 0.02


def test_memory_parts_add_up_to_the_peak() -> None:
    """Tests every rank: eight parts, each rounded to a thousandth of a GiB."""
    memory = _report().to_json()["memory"]
    for stage in memory["stages"]:
        parts = [stage[f"{part}_gib"] for part in PARTS]
        assert len(parts) == 8
        assert sum(parts) == pytest.approx(stage["peak_gib"], abs=0.0045)
    assert memory["peak_gib"] == max(stage["peak_gib"] for stage in memory["stages"])
    assert memory["verdict"] == "fits"


def test_events_of_a_rank_and_its_peak() -> None:
    """Tests that the largest event is the peak, and that only the last rank has a loss."""
    memory = _report().to_json()["memory"]
    for stage in memory["stages"]:
        assert stage["events"][stage["peak_event"]] == stage["peak_gib"]
        assert max(stage["events"].values()) == stage["peak_gib"]
        assert ("loss" in stage["events"]) is (stage["rank"] == 1)
    # bf16 moments of experts are cast to fp32 in the optimizer step, dense and experts in turn.
    assert set(memory["stages"][0]["events"]) == {"backward", "update_dense", "update_expert"}


def test_memory_of_gpus_and_hosts() -> None:
    """Tests the figures of the fullest rank's allocator, and of the fullest node's memory."""
    memory = _report("tp=2,ep=4,pp=2,vpp=2,offload=100").to_json()["memory"]
    assert memory["reserved_gib"] == pytest.approx(1.06 * memory["allocated_gib"], abs=0.005)
    assert memory["allocated_gib"] < memory["peak_gib"]
    # A node of 8 GPUs holds the optimizer state of 8 ranks, and 80 % of its memory may be used.
    most = max(stage["host_gib"] for stage in memory["stages"])
    assert memory["host_gib"] == pytest.approx(8 * most, abs=0.005) and most > 0
    assert memory["host_capacity_gib"] == pytest.approx(0.8 * H100_NODE_GIB, rel=1e-3)
    assert memory["host_gpus"] == 8


@pytest.mark.parametrize(
    ("cluster", "gpus"), [({"gpus": 4}, 4), ({"domains": [4, 4]}, 4), ({"domains": [2, 6, 8]}, 8)]
)
def test_hosts_count_the_gpus_that_the_cluster_uses(cluster: dict[str, Any], gpus: int) -> None:
    """Tests nodes of 8 of which fewer GPUs are used: need and share are of those.

    The text has both: for one GPU, and for the node.
    """
    scenario = _scenario(cluster={"preset": "h100-hgx", **cluster})
    report = check(scenario, "tp=1,ep=2,pp=2,offload=100")
    memory = report.to_json()["memory"]
    most = max(stage["host_gib"] for stage in memory["stages"])
    assert memory["host_gpus"] == gpus
    assert memory["host_gib"] == pytest.approx(gpus * most, abs=0.005) and most > 0
    share = 0.8 * H100_NODE_GIB * gpus / 8
    assert memory["host_capacity_gib"] == pytest.approx(share, rel=1e-3)
    said = f"{most:.1f} of 186.2 GiB a GPU ({gpus * most:,.0f} of {share:,.0f} for the {gpus} of"
    assert said in str(report)


@pytest.mark.parametrize(
    ("share", "verdict"), [(0.94, "fits"), (0.97, "tight"), (1.04, "tight"), (1.06, "overfull")]
)
def test_verdict_follows_the_share_of_the_capacity(share: float, verdict: str) -> None:
    """Tests the three verdicts: within 5 % of the capacity, on either side, is tight."""
    report = _report()
    assert report.cost is not None
    usable = report.problem.node_type.hbm_gib * QUANTA_PER_GIB
    limits = Limits(memory_headroom=1 - report.cost.peak / usable / share)
    problem = dataclasses.replace(report.problem, limits=limits)
    judged = judge_layout(problem, report.layout)
    assert judged.to_json()["memory"]["verdict"] == verdict
    assert judged.status == ("overfull" if verdict == "overfull" else "ok")


def test_throughput_follows_from_the_step() -> None:
    """Tests tokens per GPU and second: 32 sequences of 4096 tokens on 16 GPUs in one step."""
    time = _report().to_json()["time"]
    expected = 32 * 4096 / 16 / time["step_s"]
    assert time["tokens_per_s_per_gpu"] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    ("precision", "preset", "peak"),
    [
        ("bf16", "h100-hgx", "bf16 peak of 989 TFLOP/s"),
        ("fp8-block", "h100-hgx", "fp8 peak of 1979 TFLOP/s"),
        ("mxfp8", "b200-hgx", "fp8 peak of 4500 TFLOP/s"),
        ("nvfp4", "b200-hgx", "fp4 peak of 9000 TFLOP/s"),
    ],
)
def test_utilisation_is_of_the_peak_of_the_precision(
    precision: str, preset: str, peak: str
) -> None:
    """Tests that the utilisation says which peak it is of, and is of that one."""
    time = _report(precision=precision, preset=preset).to_json()["time"]
    assert time["mfu_of"] == peak
    figure = float(peak.split()[3])
    assert time["mfu"] == pytest.approx(time["model_tflops_per_gpu"] / figure, rel=1e-3)


def test_placement_tells_domains_and_links() -> None:
    """Tests 16 GPUs in two nodes of 8: tp = 2 stays inside, pp = 2 joins the nodes."""
    placement = _report().to_json()["placement"]
    assert placement["tp"] == {
        "size": 2, "stride": 1, "tier": "node", "domains": 1, "groups": 8, "inside": 8,
        "link_gbps": 450.0,
    }  # fmt: skip
    assert placement["pp"]["domains"] == 2
    assert placement["pp"]["link_gbps"] == 50.0
    assert placement["cp"]["tier"] == "local" and placement["cp"]["link_gbps"] is None


def test_groups_that_do_not_exist_have_no_placement() -> None:
    """Tests that 16 GPUs hold no groups of 3."""
    assert check(_scenario(), "tp=3").to_json()["placement"]["tp"] is None


def test_text_is_stable_and_strict() -> None:
    """Tests that JSON is the same on each call, ends with a line end, and has no NaN."""
    plan = _plan()
    text = dumps(plan.to_json())
    assert text == dumps(plan.to_json())
    assert text.startswith('{\n  "meshplan_result": 1,\n') and text.endswith("}\n")
    assert json.loads(text) == plan.to_json()
    with pytest.raises(ValueError, match="not JSON compliant"):
        dumps({"x": float("nan")})
