from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from meshplan.constraints.layout import Value
from meshplan.scenarios import Scenario, from_mapping
from meshplan.solver.check import check

#: A dense model of 40 layers whose 10 KV heads allow few TP degrees.
DENSE = {
    "name": "dense", "layers": 40, "hidden": 5120, "ffn": 20480, "vocab": 32000, "heads": 40,
    "kv_groups": 10, "head_dim": 128, "attention": "gqa",
}  # fmt: skip


def scenario(model: object, gpus: int, gbs: int = 256, seq_len: int = 4096) -> Scenario:
    """A scenario on H100 nodes, with all limits off that are ours and not the framework's."""
    data: dict[str, Any] = {
        "meshplan": 1,
        "name": "test",
        "model": model,
        "cluster": {"preset": "h100-hgx", "gpus": gpus},
        "workload": {"seq_len": seq_len, "global_batch_size": gbs},
        "limits": {"tp_within_domain": False},
    }
    return from_mapping(data)


def nearest(asked: Scenario, layout: str, rule: str) -> dict[str, list[Value]]:
    """Nearest legal values that the check names for one broken rule."""
    found = {one.rule: one for one in check(asked, layout).violations}
    assert rule in found, f"{rule} is not among {', '.join(found)}"
    return found[rule].nearest


def test_values_suit_the_other_rules_as_well() -> None:
    """Tests EP48 for 128 experts on 64 GPUs: 32 and 64 divide both, 42 or 43 neither."""
    asked = scenario("qwen3-30b-a3b", 64)
    for rule in ("world-expert-divisible", "experts-ep"):
        assert nearest(asked, "ep=48", rule)["ep"] == [32, 64]


def test_expert_grid_names_each_setting() -> None:
    """Tests ETP4 EP32 PP4 on 128: ETP1, EP8 or 4, PP1 fit, and so would 512 GPUs."""
    found = nearest(scenario("deepseek-v3", 128), "tp=4,pp=4,ep=32,etp=4", "world-expert-divisible")
    assert found == {"etp": [1], "ep": [8, 4], "pp": [1], "gpus": [512]}


def test_derived_degrees_follow() -> None:
    """Tests TP3 PP2 on 8 GPUs: dp = 8/(3*2) is no setting; TP2 or TP4 fit with another dp."""
    found = nearest(scenario("toy-dense", 8), "tp=3,pp=2", "world-dense-divisible")
    assert found["tp"] == [2, 4]
    assert found["gpus"] == [6, 12]
    assert "dp" not in found


def test_stated_degrees_are_settings() -> None:
    """Tests a stated DP2 with TP2 PP2 on 4 GPUs: DP1 is offered, and 8 GPUs."""
    found = nearest(scenario("toy-dense", 4), "tp=2,pp=2,dp=2", "world-dense-divisible")
    assert (found["dp"], found["gpus"]) == ([1], [8])


def test_dense_models_keep_one_grid() -> None:
    """Tests TP4 with 10 KV heads on 4 GPUs: TP2 fits, as the unused ETP follows it."""
    assert nearest(scenario(DENSE, 4), "tp=4", "kv-groups-tp") == {"tp": [2, 1]}
    assert nearest(scenario(DENSE, 4), "tp=4,etp=4", "kv-groups-tp") == {"tp": [2, 1]}


def test_batches_are_whole_steps() -> None:
    """Tests 256 on 7 replicas of 2 sequences: 252 = 18*14 and 266 = 19*14 are nearest."""
    asked = scenario("toy-dense", 7)
    assert nearest(asked, "mbs=2", "gbs-divisible")["gbs"] == [252, 266]


@pytest.mark.parametrize(("gbs", "rule"), [(6, "ge-group"), (12, "remainder")])
def test_micro_batches_are_set_by_the_batch(gbs: int, rule: str) -> None:
    """Tests 3 and 6 micro-batches on 4 interleaved stages: batches of 4, 8 or 16 fill groups."""
    found = nearest(scenario("toy-dense", 8, gbs), "pp=4,vpp=2", f"interleaved-ga-{rule}")
    assert found["gbs"][0] == {6: 8, 12: 8}[gbs]
    assert found["vpp"] == [1]


def test_sequences_are_whole_shards() -> None:
    """Tests 4100 tokens on CP4 and TP1: 8 pieces need 4096 or 4104."""
    asked = scenario("toy-dense", 8, seq_len=4100)
    assert nearest(asked, "cp=4", "seq-2cp") == {"cp": [2, 1], "seq_len": [4096, 4104]}


def test_even_splits_are_rules_when_asked_for() -> None:
    """Tests 40 layers on 16 stages: no even split, nor with the ends counted; 8 stages have one."""
    found = nearest(scenario(DENSE, 16), "pp=16,pipeline=even", "layers-pp-default")
    assert found["pp"] == [8, 4]
    assert check(scenario(DENSE, 16), "pp=16").violations == (), "a split by hand is legal"


def test_assumed_expert_tensor_parallelism_is_explained() -> None:
    """Tests TP4 EP32 PP4 on 128: 1 is assumed, and 4, the other default, would not fit."""
    assumed = "\n".join(check(scenario("deepseek-v3", 128), "tp=4,pp=4,ep=32").assumed)
    assert "etp = 1: not given; Megatron-Bridge takes 1 where ep > 1" in assumed
    assert "4*32*4 = 512 does not divide 128 GPUs" in assumed


def test_expert_tensor_parallelism_follows_without_expert_parallelism() -> None:
    """Tests TP4 with EP1: both front ends take etp = tp."""
    report = check(scenario("qwen3-30b-a3b", 8), "tp=4,ep=1")
    assert report.layout.etp == 4
    assert any("with ep = 1 it follows tp" in text for text in report.assumed)


def test_options_are_named_as_they_are_written() -> None:
    """Tests graphs of attention under full recompute: no recompute or no graphs would be legal."""
    asked = scenario("qwen3-30b-a3b", 8)
    report = check(asked, "tp=1,pp=1,ep=8,recompute=full,graphs=attn+moe+moe_router")
    named = {one.rule: one.nearest for one in report.violations}
    assert not [key for found in named.values() for key in found if key.startswith(("rc_", "cg_"))]
    assert {"recompute": ["none"]} in named.values(), "full recompute captures no module"
    routers = [found["graphs"] for found in named.values() if "graphs" in found]
    assert ["attn+moe_router", "attn+moe"] in routers, "moe and moe_router exclude each other"


def test_whole_layout_gets_settings_of_a_person() -> None:
    """Tests a Layout of TP3: tp = 2 and 4 mend it, and no derived degree is named."""
    asked = scenario("qwen3-30b-a3b", 64)
    whole = check(asked, "tp=4,ep=8").layout
    wrong = dataclasses.replace(whole, tp=3, recompute=("moe", "moe_act"))
    named = {one.rule: one.nearest for one in check(asked, wrong).violations}
    assert named["heads-tp"]["tp"] == [2, 4]  # 32 heads and 64 GPUs
    assert not {"dp", "edp", "ga"} & {name for found in named.values() for name in found}
    assert not any(name.startswith("rc_") for found in named.values() for name in found)
