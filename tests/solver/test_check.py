from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from meshplan.constraints.layout import Slot
from meshplan.scenarios import InputError, Scenario, from_mapping, load
from meshplan.solver.check import check, judge_layout
from meshplan.solver.judge import cost, violations

ROOT = Path(__file__).resolve().parent.parent.parent
DSV3_128K = ROOT / "scenarios" / "seed" / "dsv3-h100-128k.yaml"
#: The published family of long-context DeepSeek-V3 runs, at 128K tokens.
PUBLISHED = "tp=1,cp=32,ep=32,pp=8,vpp=4"


def scenario(model: str = "toy-moe", gpus: int = 8, **sections: Any) -> Scenario:
    """A scenario at 4096 tokens with a batch of 32; ``sections`` are added or replaced."""
    data: dict[str, Any] = {
        "meshplan": 1,
        "name": "test",
        "model": model,
        "cluster": {"preset": "h100-hgx", "gpus": gpus},
        "workload": {"seq_len": 4096, "global_batch_size": 32},
    }
    return from_mapping(data | sections)


def qwen(precision: str = "bf16", seq_len: int = 131072, gbs: int = 64, **options: Any) -> Scenario:
    """Qwen3-235B on 128 GPUs of GB200."""
    return scenario(
        "qwen3-235b-a22b",
        cluster={"preset": "gb200-nvl72", "gpus": 128},
        workload={"seq_len": seq_len, "global_batch_size": gbs, "precision": precision},
        options=options,
    )


def test_published_family_at_128k_is_legal_and_fits() -> None:
    """Tests DeepSeek-V3 at 128K on 256 H100s with what is open completed: ok, with DP = EDP = 1."""
    report = check(load(DSV3_128K), PUBLISHED)
    assert report.status == "ok"
    assert report.violations == ()
    layout = report.layout
    # 1*32*dp*8 = 256 = 1*32*edp*8, and 256 = 1*1*ga.
    assert (layout.dp, layout.edp, layout.etp, layout.ga, layout.gbs) == (1, 1, 1, 256, 256)
    # Without offload the optimizer step casts the bf16 moments of 2.6 G parameters a rank to fp32
    # (8 bytes each, some 20 GiB with EDP = 1), which does not fit.
    assert (layout.dispatcher, layout.offload) == ("deepep", 100)
    # 61 layers are no multiple of 32 slots, with or without E and loss: near-even.
    assert len(layout.slots) == 32
    assert sum(slot.count for slot in layout.slots) == 61


def test_published_recompute_is_kept() -> None:
    """Tests the published options by name; MTP and loss have the last slots of the string."""
    text = (
        f"{PUBLISHED},dispatcher=deepep,recompute=mla_up_proj+layernorm+moe+mlp,offload=100,"
        "pipeline=Et*3|(tt|)*29m|L"
    )
    report = check(load(DSV3_128K), text)
    assert report.violations == ()
    assert report.layout.recompute == ("layernorm", "mla_up_proj", "mlp", "moe")
    assert report.layout.slots[0] == Slot(0, 3, embedding=True)
    assert report.layout.slots[-2] == Slot(61, 0, mtp=True)
    assert report.layout.slots[-1] == Slot(61, 0, loss=True)


@pytest.mark.parametrize("precision", ["bf16", "mxfp8"])
def test_published_qwen_on_gb200_is_legal(precision: str) -> None:
    """Tests Qwen3-235B on GB200: 94 layers + E + loss = 96 = 4*12*2, so the split is even."""
    scopes = ["attn", "moe_router", "moe_preprocess"]
    layout = "tp=4,cp=4,ep=32,pp=4,vpp=12,recompute=moe_act+layernorm,dispatcher=hybridep"
    report = check(qwen(precision, cuda_graphs=scopes), layout)
    assert report.violations == ()
    assert report.layout.cuda_graphs == ("attn", "moe_router", "moe_preprocess")
    assert [slot.count for slot in report.layout.slots] == [1, *[2] * 46, 1]
    assert not any(slot.mtp for slot in report.layout.slots)
    assert any("even split" in text for text in report.assumed)
    assert report.cost is not None


def test_qwen_at_4k_fits() -> None:
    """Tests Qwen3-235B at 4K on 128 GB200: TP1 EP32 PP4 VPP12 is legal and fits."""
    report = check(qwen(seq_len=4096, gbs=1024), "tp=1,ep=32,pp=4,vpp=12")
    assert report.status == "ok"
    assert report.layout.dp == 32  # 128 / 4


def test_costs_are_those_of_the_judge() -> None:
    """Tests that the report has the very figures that judge a plan of the search."""
    report = check(scenario(), "tp=2,ep=2")
    assert report.cost == cost(report.problem, report.layout)
    assert list(report.violations) == violations(report.problem, report.layout)


def test_illegal_layouts_name_rules_and_nearest_values() -> None:
    """Tests tp = 3 for DeepSeek-V3: 128 heads do not divide by it, 2 and 4 are nearest."""
    report = check(load(DSV3_128K), "tp=3,cp=5,pp=7,ep=9")
    assert report.status == "illegal"
    broken = {one.rule: one for one in report.violations}
    assert {"world-dense-divisible", "heads-tp", "experts-ep", "seq-2cp"} <= set(broken)
    assert broken["heads-tp"].nearest == {"tp": [2, 4]}
    assert "heads = 128 is not divisible by tp = 3" in broken["heads-tp"].text


def test_illegal_layouts_get_costs_where_they_have_any() -> None:
    """Tests that a batch that does not divide is illegal, and yet has memory and time."""
    report = check(scenario(), "tp=2,ga=7,mbs=1,gbs=32")
    assert report.status == "illegal"
    assert [one.rule for one in report.violations] == ["gbs-divisible"]
    assert report.cost is not None and report.cost.time.step_us > 0


@pytest.mark.parametrize(
    "layout",
    [
        "pp=3,pipeline=Et*6L",  # one slot instead of three
        "pp=2,pipeline=Et*4|L",  # 4 of 6 layers
        "pp=1000000,vpp=1000000",  # no slots are made for so many stages
        "pp=3",  # 8 GPUs do not split into 3 ranks
        "tp=1048576,cp=1048576",
        "ep=1048576,etp=1048576,edp=1048576",
        "mbs=1048576,ga=1048576,dp=1048576",
        "pp=1,vpp=1024",
        "pp=512,vpp=2",
    ],
)
def test_absurd_layouts_are_judged_without_a_fault(layout: str) -> None:
    """Tests that numbers without meaning are illegal, and never an error of ours."""
    report = check(scenario(), layout)
    assert report.status == "illegal"
    assert report.violations
    assert "illegal" in str(report).lower()


def test_overfull_layouts_are_legal() -> None:
    """Tests DeepSeek-V3 on one pipeline rank: 671e9 parameters over ep = 8 are over 80 GiB."""
    report = check(scenario("deepseek-v3", gpus=32), "ep=8")
    assert report.violations == ()
    assert report.status == "overfull"
    assert any("nothing fits, and this takes the least memory" in t for t in report.assumed)


def test_argument_comes_before_pins() -> None:
    """Tests that pins of one value hold where the argument is silent, and only there."""
    pinned = scenario(layout={"tp": 2, "cp": 2}, options={"dispatcher": "alltoall"})
    assert check(pinned).layout.tp == 2
    report = check(pinned, "tp=1,dispatcher=deepep,ep=2")
    assert (report.layout.tp, report.layout.cp) == (1, 2)
    assert report.layout.dispatcher == "deepep"
    assert "tp = 1: given, though the scenario has layout.tp = 2" in report.assumed


def test_option_pins_are_kept_or_opened() -> None:
    """Tests that pinned options hold, and that ``auto`` opens them again."""
    options = {"recompute": ["moe"], "optimizer_offload": True, "cuda_graphs": ["attn"]}
    pinned = scenario(options=options)
    kept = check(pinned, "tp=1").layout
    assert (kept.recompute, kept.offload, kept.cuda_graphs) == (("moe",), 100, ("attn",))
    # Everything fits by far, so the fastest is without any saving, and captures what helps: in the
    # dense layer the host runs ahead of the GPU, and a graph of its MLP would gain nothing.
    opened = check(pinned, "recompute=auto,offload=auto,graphs=auto").layout
    assert (opened.recompute, opened.offload) == ((), 0)
    assert opened.cuda_graphs == ("attn", "moe_router")


def test_lists_pin_the_least_value_that_they_allow() -> None:
    """Tests that an open degree with a list is the least of it, for 1 is not allowed."""
    assert check(scenario(layout={"cp": [4, 2]})).layout.cp == 2


def test_dense_models_have_etp_equal_to_tp() -> None:
    """Tests that a dense model's MLP follows the attention mesh: etp = tp, edp = dp*cp."""
    layout = check(scenario("toy-dense"), "tp=2,cp=2").layout
    assert (layout.etp, layout.edp, layout.dp) == (2, 4, 2)
    assert check(scenario("toy-dense"), "tp=2,cp=2").violations == ()


def test_batch_is_the_largest_that_divides() -> None:
    """Tests a range of batches: 8*3 = 24 is the largest of 20..31 that dp = 8 divides."""
    workload = {"seq_len": 4096, "global_batch_size": {"min": 20, "max": 31}}
    layout = check(scenario(workload=workload), "tp=1").layout
    assert (layout.gbs, layout.dp, layout.ga) == (24, 8, 3)


def test_stated_ga_gives_mbs() -> None:
    """Tests that with ga given the micro-batch is what is left: 32 / (8*2) = 2."""
    assert check(scenario(), "ga=2").layout.mbs == 2


def test_every_completion_is_listed() -> None:
    """Tests that what the layout left open is said, each with its value."""
    text = "\n".join(check(load(DSV3_128K), PUBLISHED).assumed)
    for part in (
        "mbs = 1: not given",
        "etp = 1: not given",
        "dp = 1, edp = 1: what 256 GPUs leave",
        "ga = 256: gbs / (mbs*dp) = 256/(1*1)",
        "dispatcher = deepep",
        "cp_comm = ",
        "the fastest that fits",
        "near-even split",
    ):
        assert part in text
    assert "powers of two" not in text, "that is about a search"


def test_software_that_decides_memory_is_listed() -> None:
    """Tests that version and attention stand there unless the scenario gives them, and in JSON."""
    texts = ("framework.transformer_engine = 2.16", "training.attention_backend = fused")
    open_ones = "\n".join(check(scenario(), "tp=1").to_json()["assumed"])
    assert all(text in open_ones for text in texts)
    given = scenario(
        framework={"transformer_engine": "2.16"}, training={"attention_backend": "fused"}
    )
    assert not any(text in "\n".join(check(given, "tp=1").assumed) for text in texts)


def test_whole_layouts_have_nothing_to_complete() -> None:
    """Tests that a layout from a report, stated in full, comes out as it went in."""
    first = check(scenario(), "tp=2,ep=2")
    data = first.to_json()
    stated = {
        **data["layout"],
        "recompute": data["recompute"]["modules"],
        "optimizer_offload": data["optimizer_offload"],
        "dispatcher": data["dispatcher"],
        "graphs": data["cuda_graphs"],
    }
    second = check(scenario(), stated)
    assert second.layout == first.layout


def test_more_slots_than_layers_are_split_over() -> None:
    """Tests that it is said why a layout has no slots: 512 * 64 are more than 1,024."""
    report = check(scenario(), "pp=512,vpp=64")
    assert "layout-stage-count" in {one.rule for one in report.violations}
    assert any("pp*vpp = 32,768 are more than 1,024" in text for text in report.assumed)


def test_bad_pipeline_texts_are_refused() -> None:
    """Tests both homes of a layout string: the argument, and the scenario with its field."""
    with pytest.raises(InputError, match="pipeline = 'Etx'"):
        check(scenario(), "pipeline=Etx")
    with pytest.raises(InputError, match=r"options\.pipeline_layout \(\"tE\"\)"):
        check(scenario(options={"pipeline_layout": "tE"}))


def test_other_gpu_counts_are_refused() -> None:
    """Tests that a layout for another cluster is not judged as if for this one."""
    with pytest.raises(InputError, match="gpus = 16, but the scenario's cluster has 8"):
        check(scenario(), "gpus=16")


def test_judging_changes_nothing() -> None:
    """Tests that a layout can be judged again, and one changed degree is seen."""
    report = check(scenario(), "tp=2,ep=2")
    assert judge_layout(report.problem, report.layout).violations == ()
    wrong = dataclasses.replace(report.layout, edp=1)
    rules = [one.rule for one in judge_layout(report.problem, wrong).violations]
    assert rules == ["world-expert-divisible"]


def test_no_solver_is_imported() -> None:
    """Tests that judging and reporting need neither solver nor arrays nor graphs."""
    code = (
        "import sys, meshplan\n"
        f"report = meshplan.check({str(DSV3_128K)!r}, {PUBLISHED!r})\n"
        "assert report.status == 'ok' and str(report) and report._repr_html_()\n"
        "print([n for n in ('ortools', 'numpy', 'networkx', 'pandas') if n in sys.modules])"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.stdout.strip() == "[]", run.stderr
