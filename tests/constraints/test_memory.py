from __future__ import annotations

import dataclasses
import inspect
import itertools

import pytest

from meshplan.constraints.decisions import RECOMPUTE_MODULES
from meshplan.constraints.layout import Layout
from meshplan.constraints.memory.activations import (
    attention_activation,
    dense_mlp_activation,
    moe_activation,
)
from meshplan.constraints.memory.offloaded import offload_staging, offloaded_activation
from meshplan.constraints.memory.overhead import communicator
from meshplan.constraints.memory.stage import PARTS, RankMemory, layer_activation, rank_memory
from meshplan.constraints.memory.static import (
    dense_static,
    embedding_static,
    expert_static,
    output_static,
)
from meshplan.constraints.memory.working import loss_working, moe_working
from meshplan.constraints.pipeline import slots_from_rank_counts
from meshplan.constraints.problem import QUANTUM_BYTES, Problem, quanta
from meshplan.constraints.terms import evaluate, scope_of
from meshplan.scenarios.model_card import LayerKind
from tests.constraints.factories import card, problem
from tests.constraints.memory_layouts import trained

DSV3 = problem("deepseek-v3", gpus=256)
LLAMA = problem("llama-3.1-8b")
TOY = problem("toy-moe")
MLA_MOE, GQA_MOE, GQA_DENSE = (
    LayerKind("mla", "moe"),
    LayerKind("gqa", "moe"),
    LayerKind("gqa", "dense"),
)


def _layout(where: Problem, ranks: tuple[int, ...], vpp: int = 1, **decisions: object) -> Layout:
    """A layout of a model with these decoder layers on each pipeline rank."""
    slots = slots_from_rank_counts(ranks, vpp, mtp=where.model.mtp_layers > 0)
    return Layout(pp=len(ranks), vpp=vpp, slots=slots, **{"ga": 8, "gbs": 8, **decisions})  # type: ignore[arg-type]


def _parts(memory: RankMemory) -> dict[str, int]:
    """The parts of the peak."""
    return {name: getattr(memory, name) for name in PARTS}


# -- figures by hand -------------------------------------------------------------------------------


def test_quanta_round_up() -> None:
    """Tests that memory is counted in whole pieces of 256 KiB, rounded up."""
    assert [quanta(n) for n in (0, 1, QUANTUM_BYTES, QUANTUM_BYTES + 1)] == [0, 1, 1, 2]


def test_mla_activation_of_deepseek_v3() -> None:
    """Tests the MLA half at 4096 tokens, bf16, against the sum by hand.

    h 7168, ranks 1536 and 512, rope 64, 128 heads of q = k = 192, v = 128; bytes per token:
    input, norm and residual 3*2*7168 = 43008; latents 2*(1536+512+64) = 4224 and normed
    2*(1536+512) = 4096; heads 128*2*(192+192+128+128) = 163840; softmax sums 4*128 = 512.
    Together 215680, times 4096 tokens = 883425280 bytes = 3370 quanta of 262144.
    """
    assert attention_activation(DSV3, MLA_MOE, 1, 4096, 0, 0, 0, 0) == 3370


def test_mla_up_projection_recompute() -> None:
    """Tests what mla_up_proj gives back: normed latents, q, k and v.

    2*(1536+512) + 128*2*(192+192+128) = 135168 bytes a token; times 4096 = 2112 quanta.
    """
    saved = attention_activation(DSV3, MLA_MOE, 1, 4096, 0, 0, 0, 0)
    assert saved - attention_activation(DSV3, MLA_MOE, 1, 4096, 0, 0, 1, 0) == 2112


def test_llama_layer_follows_the_dense_formula() -> None:
    """Tests GQA + SwiGLU: (T/t)*(8h + 4q + 4kv + 6f) + 4*T*nh/t bytes.

    Llama-3.1-8B, T = 8192, t = 1: 8*4096 + 4*4096 + 4*1024 + 6*14336 + 4*32 = 139392 bytes a
    token, times 8192 = 1141899264 bytes = 4356 quanta; with t = 4 a quarter, 1089.
    """
    for tp, expected in ((1, 4356), (4, 1089)):
        attention = attention_activation(LLAMA, GQA_DENSE, tp, 8192, 0, 0, 0, 0)
        assert attention + dense_mlp_activation(LLAMA, GQA_DENSE, tp, 8192, 0, 0) == expected


def test_moe_activation_of_deepseek_v3() -> None:
    """Tests the MoE half at 4096 tokens with a fused dispatcher, bf16, by hand.

    Bytes a token: norm 2*7168 = 14336; router 9*256 + 8*8 = 2368; map 4*256 = 1024; 8 copies of
    2*7168 + 4*2048 + 4 + 2*2048 = 26628, together 213024; shared 6*2048 = 12288.  Sum 243040,
    times 4096 = 995491840 bytes = 3797.5 quanta, so 3798.
    """
    assert moe_activation(DSV3, MLA_MOE, 4096, 1, 1, "deepep", 0, 0, 0, 0, 0) == 3798


def test_full_recompute_keeps_the_layer_input() -> None:
    """Tests full recompute: 2*7168 bytes a token times 4096 = 224 quanta, and nothing else."""
    assert attention_activation(DSV3, MLA_MOE, 1, 4096, 0, 0, 0, 1) == 224
    assert moe_activation(DSV3, MLA_MOE, 4096, 1, 1, "deepep", 0, 0, 0, 0, 1) == 0
    assert dense_mlp_activation(DSV3, LayerKind("mla", "dense"), 1, 4096, 0, 1) == 0


def test_static_memory_of_a_llama_layer() -> None:
    """Tests weights (2), gradients (4) and optimizer (12 bytes over DP) of one layer.

    Parameters: 4096*(4096+2048) + 4096*4096 + 3*4096*14336 + 2*4096 = 218112000 (norms included).
    """
    count = 218_112_000
    expected = {"weights": 2 * count, "gradients": 4 * count, "optimizer": 12 * count / 8}
    for part, size in expected.items():
        assert dense_static(LLAMA, part, GQA_DENSE, 1, 1, 8, 0) == quanta(size)


def test_embedding_of_llama() -> None:
    """Tests the embedding in bf16: 128256 (padded to 128) x 4096 x 2 bytes = 4008 quanta."""
    assert embedding_static(LLAMA, "weights", 1, 1, 1, 0) == 4008


def test_logits_of_llama() -> None:
    """Tests the loss at 8192 tokens, native: 10 bytes a logit, and the final norm's 8h a token.

    8192 * (10*128256 + 8*4096) = 10775166976 bytes = 41104 quanta of 262144.
    """
    assert loss_working(LLAMA, 1, 8192) == 41104


def test_tied_embeddings_are_held_once_on_one_stage() -> None:
    """Tests that with pp = 1 a tied head costs no second copy, and with pp > 1 it does."""
    tied = problem(card("toy-moe", tied_embeddings=True))
    copy = embedding_static(tied, "weights", 1, 1, 1, 0)
    alone = output_static(tied, "weights", 1, 1, 1, 1, 0)
    # 32000 x 1024 x 2 bytes = 250 quanta; what is left is the final norm, below one quantum.
    assert (copy, alone) == (250, 1)
    assert output_static(tied, "weights", 1, 1, 1, 2, 0) in (250, 251)


# -- metamorphic -----------------------------------------------------------------------------------


def test_expert_parallelism_leaves_activations_alone() -> None:
    """Tests that EP moves experts, not tokens: what layers save depends on TP, CP and MBS.

    The experts' term reads EP for the load imbalance alone, which is 1 here.
    """
    for term in (attention_activation, dense_mlp_activation, moe_activation):
        assert not {"edp", "dp", "pp"} & set(scope_of(term))
    assert not {"ep"} & {*scope_of(attention_activation), *scope_of(dense_mlp_activation)}
    one = _layout(TOY, (6,), ep=1, edp=8, dp=8)
    for kind in TOY.kinds:
        saved = layer_activation(TOY, one, kind)
        assert saved == layer_activation(TOY, dataclasses.replace(one, ep=8, edp=1), kind)


@pytest.mark.parametrize(("ep", "factor"), [(1, 1), (2, 2), (4, 3), (8, 3)])
def test_the_busiest_rank_has_all_tokens_at_most(ep: int, factor: int) -> None:
    """Tests an imbalance of 3: a rank gets all tokens of its group at most, ep times the mean.

    So one rank alone has what it always has.  Saved, at work and on the host alike.
    """
    even = trained(TOY, activation_offload=("moe_act",))
    uneven = trained(even, load_imbalance=3.0)
    scaled = trained(even, load_imbalance=float(factor))
    for term in (moe_activation, moe_working, offloaded_activation, offload_staging):
        constants = {"kind": GQA_MOE} if "kind" in inspect.signature(term).parameters else {}
        sizes = [
            evaluate(term, where, _layout(TOY, (6,), ep=group, etp=2), **constants)
            for where, group in ((uneven, ep), (scaled, 8), (even, ep))
        ]
        assert sizes[0] == sizes[1]
        assert (sizes[0] > sizes[2]) == (factor > 1)


@pytest.mark.parametrize(("ep", "etp"), [(2, 1), (8, 1), (1, 4), (4, 2)])
def test_experts_shard_over_ep_and_etp(ep: int, etp: int) -> None:
    """Tests weights of routed experts over ep*etp: 8 * 3*1024*1024 * 2 bytes = 192 quanta."""
    assert expert_static(TOY, "weights", GQA_MOE, 1, 1, 1, 0) == 192
    assert expert_static(TOY, "weights", GQA_MOE, ep, etp, 1, 0) == 192 // (ep * etp)


@pytest.mark.parametrize("edp", [1, 2, 4, 8])
def test_expert_optimizer_shards_over_edp(edp: int) -> None:
    """Tests that EDP divides the experts' optimizer (12 bytes) and not weights or gradients."""
    assert expert_static(TOY, "optimizer", GQA_MOE, 1, 1, edp, 0) == 192 * 6 // edp
    assert expert_static(TOY, "weights", GQA_MOE, 1, 1, edp, 0) == 192
    assert expert_static(TOY, "gradients", GQA_MOE, 1, 1, edp, 0) == 192 * 2


@pytest.mark.parametrize("name", ["deepseek-v3", "toy-moe", "qwen3-next-80b-a3b", "toy-dense"])
def test_recompute_never_raises_what_a_layer_saves(name: str) -> None:
    """Tests every set of modules against each set with one module more, and full recompute."""
    where = problem(name)
    layers = where.model.layers
    modules = [m for m in RECOMPUTE_MODULES if m != "core_attn"]
    for size in range(len(modules)):
        for chosen in itertools.combinations(modules, size):
            fewer = _layout(where, (layers,), recompute=chosen)
            full = dataclasses.replace(fewer, recompute=(), recompute_full=True)
            for kind in where.kinds:
                saved = layer_activation(where, fewer, kind)
                assert layer_activation(where, full, kind) <= saved
                for added in set(modules) - set(chosen):
                    more = dataclasses.replace(fewer, recompute=(*chosen, added))
                    assert layer_activation(where, more, kind) <= saved, (chosen, added)


def test_more_dp_shrinks_the_optimizer_only() -> None:
    """Tests that DP divides the dense optimizer and changes nothing else but communicators."""
    before = _parts(rank_memory(TOY, _layout(TOY, (3, 3), dp=2, edp=2), 0))
    after = _parts(rank_memory(TOY, _layout(TOY, (3, 3), dp=4, edp=2), 0))
    assert after.pop("optimizer") < before.pop("optimizer")
    # The communicators of two ranks and of more differ.
    assert after.pop("overhead") - before.pop("overhead") == communicator(4) - communicator(2)
    assert after == before


def test_offload_shrinks_the_optimizer_only() -> None:
    """Tests that all optimizer state moves to the host at 100 %, half of it at 50 %."""
    sizes = {}
    for offload in (0, 50, 100):
        parts = _parts(rank_memory(TOY, _layout(TOY, (6,), offload=offload), 0))
        sizes[offload] = parts.pop("optimizer")
        assert parts == {
            k: v
            for k, v in _parts(rank_memory(TOY, _layout(TOY, (6,)), 0)).items()
            if k != "optimizer"
        }
    assert sizes[100] == 0
    assert sizes[50] == pytest.approx(sizes[0] / 2, abs=20)  # rounded up term by term


@pytest.mark.parametrize("name", ["deepseek-v3", "toy-moe", "qwen3-next-80b-a3b"])
@pytest.mark.parametrize(("pp", "vpp"), [(1, 1), (2, 1), (2, 2)])
def test_peak_is_the_sum_of_the_parts(name: str, pp: int, vpp: int) -> None:
    """Tests that nothing in the peak is outside the reported parts, and none is negative."""
    where = problem(name)
    rest = where.model.layers // pp
    layout = _layout(where, (where.model.layers - rest * (pp - 1), *[rest] * (pp - 1)), vpp)
    for rank in range(pp):
        memory = rank_memory(where, layout, rank)
        parts = _parts(memory)
        assert memory.peak == sum(parts.values())
        assert min(parts.values()) >= 0
        assert (memory.logits > 0) == (memory.event == "loss")
        assert memory.event == "backward" or rank == pp - 1


def test_weights_of_all_ranks_do_not_depend_on_the_split() -> None:
    """Tests that moving layers between ranks moves their weights, gradients and optimizer."""
    totals = set()
    for ranks in ((3, 3), (1, 5), (6, 0), (0, 6)):
        memory = [rank_memory(TOY, _layout(TOY, ranks), rank) for rank in range(2)]
        totals.add(
            (
                sum(m.weights for m in memory),
                sum(m.gradients for m in memory),
                sum(m.optimizer for m in memory),
            )
        )
    assert len(totals) == 1


def test_activations_scale_with_live_micro_batches() -> None:
    """Tests 1F1B: rank 0 of 2 keeps two micro-batches of its layers, the last rank one."""
    layout = _layout(TOY, (3, 3))
    first, last = (rank_memory(TOY, layout, rank) for rank in range(2))
    dense, moe = (layer_activation(TOY, layout, kind) for kind in TOY.kinds)
    assert first.activations == 2 * (dense + 2 * moe)
    assert last.activations == 3 * moe


@pytest.mark.parametrize("tp", [2, 4, 8])
def test_more_tp_never_raises_weights_or_activations(tp: int) -> None:
    """Tests that splitting a layer over TP leaves each rank less, KV replication included."""
    for where in (DSV3, LLAMA, TOY):
        for kind in where.kinds:
            less = dense_static(where, "weights", kind, tp, 1, 1, 0)
            assert less <= dense_static(where, "weights", kind, tp // 2, 1, 1, 0)
            saved = attention_activation(where, kind, tp, 4096, 0, 0, 0, 0)
            assert saved <= attention_activation(where, kind, tp // 2, 4096, 0, 0, 0, 0)
