"""Rules on recompute, graphs, overlap and offload: holds, is violated, a neighbour holds."""

from __future__ import annotations

from meshplan.constraints.decisions import GRAPH_SCOPES, RECOMPUTE_MODULES
from meshplan.constraints.problem import Training
from meshplan.constraints.rules import rule
from tests.constraints.factories import assert_triple, card, problem

OVERLAP = problem(training=Training(overlap_expert_communication=True))


def _flags(names: tuple[str, ...], *chosen: str) -> tuple[int, ...]:
    return tuple(int(name in chosen) for name in names)


def modules(*chosen: str) -> tuple[int, ...]:
    """Recompute flags in canonical order."""
    return _flags(RECOMPUTE_MODULES, *chosen)


def scopes(*chosen: str) -> tuple[int, ...]:
    """Graph flags in canonical order."""
    return _flags(GRAPH_SCOPES, *chosen)


def test_full_excludes_selective() -> None:
    """Tests that full recompute cannot name modules."""
    assert_triple(
        "recompute-full-xor-selective",
        problem(),
        good=(1, *modules()),
        bad=(1, *modules("moe", "layernorm")),
        neighbour=(0, *modules("moe", "layernorm")),
        says=("[layernorm, moe]",),
    )


def test_mla_up_proj_needs_mla() -> None:
    """Tests that the module is refused with GQA and accepted with MLA."""
    one, where = rule("recompute-mla-up"), problem()
    assert one.holds(where, 0)
    assert not one.holds(where, 1)
    assert "toy-moe has gqa attention" in one.explain(where, 1)
    assert one.holds(problem("deepseek-v3"), 1)


def test_moe_act_needs_grouped_experts() -> None:
    """Tests that a dense model cannot recompute moe_act."""
    one, where = rule("recompute-moe-act"), problem("toy-dense")
    assert one.holds(where, 0)
    assert not one.holds(where, 1)
    assert "toy-dense has none" in one.explain(where, 1)
    assert one.holds(problem(), 1)


def test_graphs_need_fixed_shapes() -> None:
    """Tests that variable lengths refuse every scope, and none without."""
    one = rule("graphs-need-static-shapes")
    assert_triple(
        "graphs-need-static-shapes",
        problem(variable_length=True),
        good=scopes(),
        bad=scopes("attn", "moe_router"),
        neighbour=scopes(),
        says=("[attn, moe_router]", "workload.variable_length is true"),
    )
    assert one.holds(problem(), *scopes("attn", "moe_router"))


def test_graph_of_moe_contains_the_router() -> None:
    """Tests that moe and moe_router exclude each other."""
    assert_triple(
        "cg-moe-xor-router",
        problem(),
        good=(0, 1),
        bad=(1, 1),
        neighbour=(1, 0),
        says=("moe and moe_router",),
    )


def test_graph_of_preprocess_needs_the_router() -> None:
    """Tests that moe_preprocess comes with moe_router."""
    assert_triple(
        "cg-preprocess-needs-router",
        problem(),
        good=(1, 1),
        bad=(1, 0),
        neighbour=(0, 1),
        says=("add moe_router",),
    )


def test_graph_of_router_needs_experts() -> None:
    """Tests that a dense model has no router to capture."""
    assert_triple(
        "cg-moe-needs-experts",
        problem("toy-dense"),
        good=(0, 0),
        bad=(0, 1),
        neighbour=(0, 0),
        says=("[moe_router]", "toy-dense has 0"),
    )
    assert rule("cg-moe-needs-experts").holds(problem(), 0, 1)


def test_graph_of_mlp_needs_dense_layers() -> None:
    """Tests that scope mlp is refused with 48 MoE layers and accepted with one dense layer."""
    one, where = rule("cg-mlp-needs-dense"), problem("qwen3-30b-a3b")
    assert one.holds(where, 0)
    assert not one.holds(where, 1)
    assert "all 48 layers" in one.explain(where, 1)
    assert one.holds(problem("toy-moe"), 1)


def test_graph_of_moe_needs_padding() -> None:
    """Tests that dropless routing refuses scope moe."""
    one = rule("cg-moe-drop-pad")
    assert one.holds(problem(), 0)
    assert not one.holds(problem(), 1)
    assert "moe_router" in one.explain(problem(), 1)


def test_graphs_exclude_full_recompute() -> None:
    """Tests that partial graphs and full recompute exclude each other."""
    assert_triple(
        "cg-full-recompute",
        problem(),
        good=(1, *scopes()),
        bad=(1, *scopes("attn")),
        neighbour=(0, *scopes("attn")),
        says=("[attn]",),
    )


def test_recompute_of_moe_excludes_graph_of_router() -> None:
    """Tests that a captured router cannot be replayed; moe_act instead is legal."""
    assert_triple(
        "cg-moe-recompute-router",
        problem(),
        good=(1, 0),
        bad=(1, 1),
        neighbour=(0, 1),
        says=("moe_act",),
    )


def test_overlap_needs_ep() -> None:
    """Tests that overlap is refused with ep = 1, and free where it is off."""
    assert_triple(
        "ep-overlap-ep", OVERLAP, good=(8,), bad=(1,), neighbour=(2,), says=("ep = 1", "overlap")
    )
    assert not rule("ep-overlap-ep").applies(problem())


def test_overlap_needs_vpp_in_a_pipeline() -> None:
    """Tests that overlap with pp = 4 needs vpp, and not with pp = 1."""
    assert_triple(
        "ep-overlap-vpp",
        OVERLAP,
        good=(4, 2),
        bad=(4, 1),
        neighbour=(1, 1),
        says=("pp = 4", "vpp = 1"),
    )


def test_overlap_knows_one_mtp_layer() -> None:
    """Tests that two MTP layers are refused whatever ep is."""
    one = rule("ep-overlap-mtp")
    two = problem(card("toy-moe", mtp_layers=2), training=OVERLAP.training)
    assert not one.holds(two, 8)
    assert "trains 2" in one.explain(two, 8)
    assert one.holds(problem(card("toy-moe", mtp_layers=1), training=OVERLAP.training), 8)


def test_overlap_excludes_recompute_of_the_dispatch() -> None:
    """Tests that neither full nor moe recompute goes with overlap."""
    assert_triple(
        "ep-overlap-recompute",
        OVERLAP,
        good=(0, 0),
        bad=(0, 1),
        neighbour=(0, 0),
        says=("[moe]", "moe_act"),
    )
    assert not rule("ep-overlap-recompute").holds(OVERLAP, 1, 0)
    assert rule("ep-overlap-recompute").holds(problem(), 0, 1)


def test_overlap_excludes_graphs_of_mlps() -> None:
    """Tests that scope mlp is refused with overlap only."""
    assert_triple(
        "cg-ep-overlap", OVERLAP, good=(0, 0), bad=(0, 1), neighbour=(0, 0), says=("[mlp]",)
    )
    assert rule("cg-ep-overlap").holds(problem(), 0, 1)


def test_offload_needs_the_precision_aware_optimizer() -> None:
    """Tests that an optimizer explicitly without it cannot offload; left open it can."""
    assert_triple(
        "opt-offload-pao",
        problem(training=Training(precision_aware=False)),
        good=(0,),
        bad=(100,),
        neighbour=(0,),
        says=("100 %", "precision_aware_optimizer is false"),
    )
    assert rule("opt-offload-pao").holds(problem(), 100)
    assert rule("opt-offload-pao").holds(problem(training=Training(precision_aware=True)), 50)


def test_host_optimizer_needs_bf16_weights_or_delayed_scaling() -> None:
    """Tests the refusal of FP8 weights that are asked for; left open they follow the offload."""
    asked = Training(fp8_parameters=True)
    assert_triple(
        "opt-offload-fp8-gather",
        problem(precision="fp8-block", training=asked),
        good=(0,),
        bad=(50,),
        neighbour=(0,),
        says=("50 %", "training.fp8_parameters is true", "fp8-block"),
    )
    one = rule("opt-offload-fp8-gather")
    assert one.holds(problem(precision="fp8-block"), 100), "auto keeps bf16 weights then"
    assert one.holds(problem(precision="fp8-tensor", training=asked), 100)
    assert one.holds(problem(precision="nvfp4", training=asked), 100)


def test_small_moments_need_the_precision_aware_optimizer() -> None:
    """Tests that bf16 moments are refused where that optimizer is switched off, only there."""
    one = rule("state-dtypes-need-pao")
    where = problem(training=Training(precision_aware=False, moment_bytes=2))
    assert one.applies(where)
    assert not one.holds(where, 0)
    assert "moments of 2 bytes" in one.explain(where, 0)
    assert one.holds(problem(training=Training(precision_aware=False)), 0)
    assert one.holds(problem(training=Training(moment_bytes=2)), 0)


def test_delayed_scaling_excludes_modules_that_discard_their_output() -> None:
    """Tests that moe_act and layernorm are refused with fp8-tensor, not with other recipes."""
    assert_triple(
        "recompute-fp8-delayed",
        problem(precision="fp8-tensor"),
        good=(0, 0),
        bad=(1, 1),
        neighbour=(0, 0),
        says=("[moe_act, layernorm]", "fp8-tensor"),
    )
    assert not rule("recompute-fp8-delayed").holds(problem(precision="fp8-tensor"), 0, 1)
    assert rule("recompute-fp8-delayed").holds(problem(precision="fp8-block"), 1, 1)


# -- activations on the host -----------------------------------------------------------------------


def test_offload_inside_the_moe_layer_excludes_its_recompute() -> None:
    """Tests expert_fc1 and moe_act with recompute of moe; modules outside go with it."""
    where = problem(training=Training(activation_offload=("core_attn", "expert_fc1", "moe_act")))
    assert_triple(
        "fg-offload-moe-recompute",
        where,
        good=(0,),
        bad=(1,),
        neighbour=(0,),
        says=("recompute of moe", "[expert_fc1, moe_act]"),
    )
    outside = problem(training=Training(activation_offload=("core_attn", "mlp_norm")))
    assert not rule("fg-offload-moe-recompute").applies(outside)
    assert rule("fg-offload-moe-recompute").holds(outside, 1)


def test_offload_excludes_a_graph_of_moe() -> None:
    """Tests that any offloaded module refuses scope moe, and none allows it."""
    assert_triple(
        "fg-offload-graph-moe",
        problem(training=Training(activation_offload=("mlp_norm",))),
        good=(0,),
        bad=(1,),
        neighbour=(0,),
        says=("CUDA graph of moe", "[mlp_norm]"),
    )
    assert not rule("fg-offload-graph-moe").applies(problem())
    assert rule("fg-offload-graph-moe").holds(problem(), 1)


# -- training choices that forbid degrees or options -----------------------------------------------


def test_experts_on_tp_ranks_need_sequence_parallelism() -> None:
    """Tests that without it a mixture of experts takes tp = 1 only, and a dense model any."""
    alone = Training(sequence_parallel=False)
    assert_triple(
        "moe-tp-needs-sp",
        problem(training=alone),
        good=(1,),
        bad=(2,),
        neighbour=(1,),
        says=("tp = 2", "training.sequence_parallel, which is false"),
    )
    one = rule("moe-tp-needs-sp")
    assert not one.applies(problem())
    assert one.holds(problem(), 8)
    assert not one.applies(problem("toy-dense", training=alone))
    assert one.holds(problem("toy-dense", training=alone), 8)


def test_sequences_are_split_with_sequence_parallelism_only() -> None:
    """Tests 4098 tokens on tp = 4: refused (remainder 2) unless every rank has the sequence."""
    one = rule("sp-seq-divisible")
    assert not one.holds(problem("toy-dense", seq_len=4098), 4, 1)
    alone = problem("toy-dense", seq_len=4098, training=Training(sequence_parallel=False))
    assert one.holds(alone, 4, 1)


def test_precision_aware_optimizer_is_a_distributed_one() -> None:
    """Tests whole optimizer state: no offload, no small moments; plain fp32 Adam is fine."""
    whole = Training(distributed_optimizer=False)
    assert_triple(
        "pao-needs-distributed-optimizer",
        problem(training=whole),
        good=(0,),
        bad=(100,),
        neighbour=(0,),
        says=("optimizer_offload = 100 %", "training.distributed_optimizer"),
    )
    one = rule("pao-needs-distributed-optimizer")
    assert not one.applies(problem())
    small = problem(training=Training(distributed_optimizer=False, moment_bytes=2))
    assert not one.holds(small, 0)
    assert "training.moment_dtype" in one.explain(small, 0)
    asked = problem(training=Training(distributed_optimizer=False, precision_aware=True))
    assert not one.holds(asked, 0)
    assert "training.precision_aware_optimizer = true" in one.explain(asked, 0)
    refused = problem(training=Training(distributed_optimizer=False, precision_aware=False))
    assert one.holds(refused, 100)


def test_fp8_weights_need_a_distributed_optimizer() -> None:
    """Tests that weights in FP8 are refused with whole optimizer state, bf16 weights are not."""
    one = rule("fp8-params-need-distributed-optimizer")
    whole = Training(distributed_optimizer=False)
    where = problem(precision="fp8-block", training=whole)
    assert one.applies(where)
    assert not one.holds(where, 0)
    assert "fp8-block need training.distributed_optimizer" in one.explain(where, 0)
    kept = Training(distributed_optimizer=False, fp8_parameters=False)
    for fine in (
        problem(precision="fp8-block"),
        problem(precision="fp8-block", training=kept),
        problem(training=whole),
    ):
        assert not one.applies(fine)
        assert one.holds(fine, 0)


def test_mamba_heads_and_groups_split_over_tp_and_cp() -> None:
    """Tests Nemotron 3 Super: 128 heads over tp*cp, 8 groups over tp; CP ranks repeat groups.

    tp = 16 would cut 8 groups; tp = 8 with cp = 3 leaves 128 heads a remainder of 8.
    """
    assert_triple(
        "mamba-heads-tpcp",
        problem("nemotron-3-super-120b-a12b"),
        good=(8, 16),
        bad=(16, 1),
        neighbour=(8, 1),
        says=("128 heads in 8 groups", "tp = 16", "tp = 8"),
    )
    one, where = rule("mamba-heads-tpcp"), problem("nemotron-3-super-120b-a12b")
    assert not one.holds(where, 8, 3)
    assert one.holds(where, 2, 8)  # 4 groups a rank, each on two of the 8 CP ranks
    assert one.holds(where, 2, 2)
    assert not one.applies(problem())
