"""Rules on schedule, experts and domains as triples: holds, is violated, a neighbour holds."""

from __future__ import annotations

import pytest

from meshplan.constraints.problem import Limits
from meshplan.constraints.rules import rule
from tests.constraints.factories import assert_triple, card, problem


def test_vpp_needs_a_pipeline() -> None:
    """Tests that virtual stages need at least two pipeline ranks."""
    assert_triple(
        "vpp-needs-pp",
        problem(),
        good=(2, 2),
        bad=(2, 1),
        neighbour=(1, 1),
        says=("vpp = 2", "pp = 1"),
    )


def test_interleaving_needs_one_group() -> None:
    """Tests that vpp with pp = 8 needs 8 micro-batches, and 6 are legal without vpp."""
    assert_triple(
        "interleaved-ga-ge-group",
        problem(),
        good=(4, 8, 8),
        bad=(4, 8, 6),
        neighbour=(1, 8, 6),
        says=("vpp = 4", "pp = 8", "ga = 6", "ga = 8 would do"),
    )


def test_interleaving_needs_whole_groups() -> None:
    """Tests that 12 micro-batches leave a group of 4 with pp = 8; 8 and 16 do not."""
    assert_triple(
        "interleaved-ga-remainder",
        problem(),
        good=(4, 8, 16),
        bad=(4, 8, 12),
        neighbour=(4, 6, 12),
        says=("ga = 12 leaves a group of 4", "ga = 8 or 16"),
    )


def test_too_few_micro_batches_are_reported_once() -> None:
    """Tests that ga < pp breaks one rule, not two."""
    assert rule("interleaved-ga-remainder").holds(problem(), 4, 8, 6)


def test_ep_needs_experts() -> None:
    """Tests that a dense model takes ep = 1 only."""
    one, where = rule("ep-needs-moe"), problem("toy-dense")
    assert one.applies(where) and not one.applies(problem())
    assert one.holds(where, 1)
    assert not one.holds(where, 8)
    assert "ep = 8, but toy-dense has no routed experts" in one.explain(where, 8)
    assert one.holds(problem(), 8)


def test_dense_models_share_one_grid() -> None:
    """Tests that etp = tp in a dense model, so that edp is dp*cp."""
    assert_triple(
        "dense-expert-grid",
        problem("toy-dense"),
        good=(4, 4),
        bad=(4, 1),
        neighbour=(1, 1),
        says=("etp = 1", "tp = 4", "use etp = 4"),
    )


def test_experts_split_evenly() -> None:
    """Tests that 256 experts do not split over 72 ranks (remainder 40), but over 64."""
    assert_triple(
        "experts-ep",
        problem("deepseek-v3"),
        good=(32,),
        bad=(72,),
        neighbour=(64,),
        says=("experts = 256", "ep = 72 (remainder 40)", "64 or 128"),
    )


def test_experts_with_biases_are_not_split() -> None:
    """Tests that GPT-OSS, whose experts have biases, takes etp = 1 only."""
    one, where = rule("moe-bias-needs-etp1"), problem("gpt-oss-120b")
    assert one.holds(where, 1)
    assert not one.holds(where, 2)
    assert "etp = 2" in one.explain(where, 2)
    assert one.holds(problem(), 2)


def test_tp_stays_in_the_domain() -> None:
    """Tests that tp = 32 leaves a node of 8, and tp = 8 does not."""
    assert_triple(
        "tp-within-domain",
        problem("deepseek-v3", gpus=256),
        good=(8,),
        bad=(32,),
        neighbour=(4,),
        says=("tp = 32 exceeds the 8 GPUs of an NVLink domain", "tp_within_domain: false"),
    )


def test_tp_across_nodes_is_legal_without_the_limit() -> None:
    """Tests that the limit is the scenario's, not the framework's."""
    where = problem("deepseek-v3", gpus=256, limits=Limits(tp_within_domain=False))
    assert not rule("tp-within-domain").applies(where)
    assert rule("tp-within-domain").holds(where, 32)


def test_tp_must_not_straddle_a_border() -> None:
    """Tests that racks of 72 break groups of 16 (72 = 4*16 + 8), but not of 8."""
    assert_triple(
        "tp-within-domain",
        problem("deepseek-v3", "gb200-nvl72", domains=(72, 72)),
        good=(8,),
        bad=(16,),
        neighbour=(24,),
        says=("72 % 16 = 8", "tp = 16"),
    )


def test_more_ranks_than_gpus_are_no_domain() -> None:
    """Tests that one domain of 8 does not hold tp = 16."""
    assert not rule("tp-within-domain").holds(problem(gpus=8), 16)


def test_etp_stays_in_the_domain() -> None:
    """Tests that the limit on TP holds for expert TP, too."""
    assert_triple(
        "etp-within-domain",
        problem(gpus=64),
        good=(8,),
        bad=(16,),
        neighbour=(4,),
        says=("etp = 16 exceeds the 8 GPUs",),
    )


def test_ep_stays_in_the_domain_where_asked() -> None:
    """Tests that etp*ep = 2*8 leaves a node of 8, only if the scenario cares."""
    assert_triple(
        "ep-within-domain",
        problem(gpus=64, limits=Limits(ep_within_domain=True)),
        good=(1, 8),
        bad=(2, 8),
        neighbour=(2, 4),
        says=("etp*ep = 2*8 = 16 exceeds the 8 GPUs", "ep_within_domain: false"),
    )
    assert not rule("ep-within-domain").applies(problem(gpus=64))


def test_dispatchers_need_experts() -> None:
    """Tests that a dense model has alltoall as its neutral value."""
    one, where = rule("dispatcher-needs-moe"), problem("toy-dense")
    assert one.holds(where, "alltoall")
    assert not one.holds(where, "deepep")
    assert "deepep" in one.explain(where, "deepep")
    assert one.holds(problem(), "deepep")


def test_deepep_needs_a_group() -> None:
    """Tests that DeepEP refuses a group of one; etp alone makes a group."""
    assert_triple(
        "deepep-needs-etp-ep",
        problem(),
        good=("deepep", 1, 8),
        bad=("deepep", 1, 1),
        neighbour=("deepep", 2, 1),
        says=("etp*ep = 1*1 = 1", "alltoall"),
    )
    assert rule("deepep-needs-etp-ep").holds(problem(), "hybridep", 1, 1)


@pytest.mark.parametrize("preset", ["gb200-nvl72", "gb300-nvl72"])
def test_deepep_does_not_run_on_nvl72(preset: str) -> None:
    """Tests that GB200 and GB300 are refused, with the GPU's name."""
    one, where = rule("bridge-deepep-arch"), problem(preset=preset)
    assert one.applies(where)
    assert not one.holds(where, "deepep")
    assert where.node_type.gpu in one.explain(where, "deepep")
    assert one.holds(where, "hybridep")


@pytest.mark.parametrize("preset", ["a100-hgx", "h100-hgx", "h200-hgx", "b200-hgx", "b300-hgx"])
def test_deepep_runs_on_hgx(preset: str) -> None:
    """Tests that nodes of 8 are accepted from Ampere to Blackwell."""
    assert rule("bridge-deepep-arch").holds(problem(preset=preset), "deepep")
    assert rule("bridge-hybridep-arch").holds(problem(preset=preset), "hybridep")


def test_hybridep_stays_in_the_rack() -> None:
    """Tests that HybridEP on NVL72 takes ep = 64 and not ep = 128."""
    assert_triple(
        "bridge-hybridep-domain",
        problem("deepseek-v3", "gb200-nvl72", gpus=256),
        good=("hybridep", 1, 64),
        bad=("hybridep", 1, 128),
        neighbour=("alltoall", 1, 128),
        says=("etp*ep = 1*128 = 128", "domains of 64"),
    )
    assert rule("bridge-hybridep-domain").holds(problem(gpus=256), "hybridep", 1, 64)


def test_hybridep_does_not_straddle_racks() -> None:
    """Tests that ep = 32 is refused on racks of 72 used whole: the third block lies in two."""
    racks = problem("deepseek-v3", "gb200-nvl72", domains=(72, 72, 72, 72))
    assert not rule("bridge-hybridep-domain").holds(racks, "hybridep", 1, 32)
    assert rule("bridge-hybridep-domain").holds(racks, "hybridep", 1, 8)


def test_deepep_wants_nodes_of_eight() -> None:
    """Tests that DeepEP between nodes of 4 GPUs is refused, and inside one it is not."""
    small = problem("qwen3-30b-a3b", "h100-hgx", domains=(4, 4, 4, 4))
    assert not rule("deepep-node-size").holds(small, "deepep", 1, 16)
    assert rule("deepep-node-size").holds(small, "deepep", 1, 4)
    assert rule("deepep-node-size").holds(problem("qwen3-30b-a3b", gpus=16), "deepep", 1, 16)


def test_moe_rules_judge_by_the_card() -> None:
    """Tests that a card with biases in dense MLPs only is free in etp."""
    assert rule("moe-bias-needs-etp1").holds(problem(card("toy-dense", mlp_bias=True)), 2)


def test_shared_experts_have_no_biases() -> None:
    """Tests that a card with both is refused, and one with either is not."""
    one = rule("shared-experts-no-bias")
    where = problem(card("toy-moe", shared_ffn=512, mlp_bias=True))
    assert one.applies(where)
    assert not one.holds(where, 1)
    assert "shared_ffn = 512" in one.explain(where, 1)
    assert one.holds(problem(card("toy-moe", shared_ffn=512)), 1)
    assert one.holds(problem("gpt-oss-120b"), 1), "biases, but no shared experts"
