"""What layers save: scores, masks, sequence shards, exchanges, activations on the host."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshplan.constraints.decisions import RECOMPUTE_MODULES
from meshplan.constraints.idle import idle_settings
from meshplan.constraints.layout import Layout
from meshplan.constraints.memory.activations import (
    attention_activation,
    dense_mlp_activation,
    exchange_activation,
    moe_activation,
)
from meshplan.constraints.memory.offloaded import offload_staging, offloaded_activation
from meshplan.constraints.memory.stage import chunk_activation, layer_activation, rank_memory
from meshplan.constraints.memory.working import (
    attention_working,
    full_layer_working,
    layer_saved,
    ring_working,
)
from meshplan.constraints.problem import Problem
from meshplan.scenarios.cards import card_names
from meshplan.scenarios.model_card import LayerKind
from tests.constraints.factories import layout, problem
from tests.constraints.memory_layouts import OFFLOAD_MODULES, cases, laid_out, ranks_of, trained

LLAMA = problem("llama-3.1-8b")
DSV3 = problem("deepseek-v3", gpus=256)
TOY = problem("toy-moe")
DENSE, MOE = LayerKind("gqa", "dense"), LayerKind("gqa", "moe")
MLA_MOE = LayerKind("mla", "moe")
CARDS = {name: problem(name) for name in card_names()}


def _attention(where: Problem, kind: LayerKind, tp: int = 1, core_attn: int = 0) -> int:
    return attention_activation(where, kind, tp, 4096, core_attn, 0, 0, 0)


# -- attention -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("tp", "expected"), [(1, 4096), (4, 1024)])
def test_unfused_attention_keeps_its_scores(tp: int, expected: int) -> None:
    """Tests 2 * tokens * heads/tp * seq_len bytes: 2 * 4096 * 32 * 4096 = 1 GiB = 4096 quanta.

    Recompute of core_attn drops them, and only them.
    """
    unfused = trained(LLAMA, fused_attention=False)
    fused = _attention(LLAMA, DENSE, tp)
    assert _attention(unfused, DENSE, tp) - fused == expected
    assert _attention(unfused, DENSE, tp, core_attn=1) == fused
    assert _attention(LLAMA, DENSE, tp, core_attn=1) == fused


def test_scores_of_a_context_parallel_rank_span_the_sequence() -> None:
    """Tests cp = 4: 1024 query tokens against 4096 keys, 2*1024*32*4096 bytes = 1024 quanta."""
    unfused = trained(LLAMA, fused_attention=False)
    sizes = [attention_activation(w, DENSE, 1, 1024, 0, 0, 0, 0) for w in (LLAMA, unfused)]
    assert sizes[1] - sizes[0] == 1024


@pytest.mark.parametrize("attention", ["gdn", "mamba", "none"])
def test_layers_without_a_core_have_no_scores(attention: str) -> None:
    """Tests that the backend does not touch gated delta nets, Mamba layers and lone MLPs."""
    name = "qwen3-next-80b-a3b" if attention == "gdn" else "nemotron-3-super-120b-a12b"
    where = CARDS[name]
    kind = next(kind for kind in where.kinds if kind.attention == attention)
    assert _attention(where, kind) == _attention(trained(where, fused_attention=False), kind)


def test_without_sequence_parallelism_every_rank_has_the_sequence() -> None:
    """Tests Llama at 8192 tokens, tp = 4: layer input, norms and residual are not divided.

    They are 8h of the formula: 8192 * 8*4096 * (1 - 1/4) bytes = 768 quanta more; tp = 1 is equal.
    """
    alone = trained(LLAMA, sequence_parallel=False)

    def saved(where: Problem, tp: int) -> int:
        mlp = dense_mlp_activation(where, DENSE, tp, 8192, 0, 0)
        return mlp + attention_activation(where, DENSE, tp, 8192, 0, 0, 0, 0)

    assert saved(alone, 4) - saved(LLAMA, 4) == 768
    assert saved(alone, 1) == saved(LLAMA, 1)
    # A checkpoint is the layer input: 8192 * 2*4096 bytes = 256 quanta, a quarter with it.
    sizes = [attention_activation(w, DENSE, 4, 8192, 0, 0, 0, 1) for w in (LLAMA, alone)]
    assert sizes == [64, 256]


def test_dropout_keeps_masks() -> None:
    """Tests one byte an element after attention and MLP: 8192 * 4096 bytes = 128 quanta each."""
    masked = trained(LLAMA, hidden_dropout=0.1)
    for term in (attention_activation, dense_mlp_activation):
        options = (0, 0) if term is dense_mlp_activation else (0, 0, 0, 0)
        sizes = [term(where, DENSE, 1, 8192, *options) for where in (LLAMA, masked)]
        assert sizes[1] - sizes[0] == 128


def test_recompute_of_the_mlp_keeps_its_mask() -> None:
    """Tests that the dropout after the MLP is outside of what ``mlp`` replays: 128 quanta stay.

    Megatron-LM ``transformer_layer.py``: ``mlp_bda`` follows ``tensor_parallel.checkpoint``.
    """
    masked = trained(LLAMA, hidden_dropout=0.1)
    sizes = [dense_mlp_activation(where, DENSE, 1, 8192, 1, 0) for where in (LLAMA, masked)]
    assert sizes[1] - sizes[0] == 128


def test_dropout_after_experts_keeps_a_mask() -> None:
    """Tests that MoE layers drop out as dense ones do: 8192 * 1024 bytes = 32 quanta.

    Megatron-LM ``transformer_layer.py`` ``mlp_bda`` does not ask what the MLP is.
    """
    masked = trained(TOY, hidden_dropout=0.1)
    sizes = [moe_activation(w, MOE, 8192, 1, 1, "alltoall", 0, 0, 0, 0, 0) for w in (TOY, masked)]
    assert sizes[1] - sizes[0] == 32


# -- context parallelism ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("engine", "cp", "cp_comm", "full", "expected"),
    [
        ((2, 8), 2, "a2a", 0, 128),  # 4096 tokens * 4096 elements * 2 bytes
        ((2, 16), 2, "a2a+p2p", 0, 128),
        ((2, 7), 2, "a2a", 0, 0),  # kept from Transformer Engine 2.8 on
        ((2, 16), 2, "p2p", 0, 0),
        ((2, 16), 2, "all_gather", 0, 0),
        ((2, 16), 1, "a2a", 0, 0),
        ((2, 16), 2, "a2a", 1, 0),  # full recompute keeps layer inputs only
    ],
)
def test_all_to_all_keeps_the_output_before_it(
    engine: tuple[int, ...], cp: int, cp_comm: str, full: int, expected: int
) -> None:
    """Tests the attention output before the all-to-all, in quanta, at 4096 tokens of Llama."""
    where = problem("llama-3.1-8b", transformer_engine=engine)
    assert exchange_activation(where, DENSE, 1, 4096, cp, cp_comm, full) == expected


def test_exchange_of_mla_is_of_its_values() -> None:
    """Tests 128 heads of 128, not of q's 192: 4096 * 16384 * 2 bytes = 512 quanta; tp divides."""
    assert exchange_activation(DSV3, MLA_MOE, 1, 4096, 2, "a2a", 0) == 512
    assert exchange_activation(DSV3, MLA_MOE, 4, 4096, 2, "a2a", 0) == 128


def test_ring_holds_a_neighbours_keys_and_values() -> None:
    """Tests a p2p exchange: K and V in flight and in use, 2*2*(2*1024) bytes a token = 128 quanta.

    They come on top of attention running backward; other exchanges and cp = 1 have no ring.
    """
    backward = attention_working(LLAMA, 1, 4096, 0, 0, 0, 0)

    def ring(cp: int, cp_comm: str) -> int:
        return ring_working(LLAMA, 1, 4096, cp, cp_comm, 0, 0, 0, 0)

    assert ring(2, "p2p") == ring(2, "a2a+p2p") == backward + 128
    assert ring(1, "p2p") == ring(2, "a2a") == ring(2, "all_gather") == 0


def test_exchange_shows_in_the_peak() -> None:
    """Tests a whole rank: 32 layers of Llama with a2a keep 128 quanta each beyond all_gather."""
    found = {}
    for cp_comm in ("a2a", "all_gather", "p2p"):
        one = laid_out(LLAMA, (32,), cp=2, mbs=2, cp_comm=cp_comm)
        found[cp_comm] = rank_memory(LLAMA, one, 0).events[0]
    assert found["a2a"].activations - found["all_gather"].activations == 32 * 128
    assert found["p2p"].activations == found["all_gather"].activations
    assert found["p2p"].working >= found["all_gather"].working


# -- recompute -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", card_names())
def test_recompute_never_raises_what_a_card_saves(name: str) -> None:
    """Tests every module added to every set, and full, over all kinds, fused or not, with masks."""
    for changes in ({}, {"fused_attention": False, "hidden_dropout": 0.1}):
        where = trained(CARDS[name], **changes)
        for kind in where.cost_kinds:

            def saved(chosen: frozenset[str], where: Problem = where, k: LayerKind = kind) -> int:
                return layer_activation(where, Layout(recompute=tuple(chosen)), k)

            sizes = {
                frozenset(some): saved(frozenset(some))
                for size in range(len(RECOMPUTE_MODULES) + 1)
                for some in itertools.combinations(RECOMPUTE_MODULES, size)
            }
            full = layer_activation(where, Layout(recompute_full=True), kind)
            assert full <= min(sizes.values())
            for chosen, size in sizes.items():
                assert all(size <= sizes[chosen - {one}] for one in chosen)


def test_uniform_checkpoints_of_several_layers() -> None:
    """Tests 6 layers in one slot: 6, 2 and 1 inputs with 1, 4 and 6 or more layers a checkpoint.

    An input is 4096 * 2*1024 bytes = 32 quanta.
    """
    one = laid_out(TOY, (6,), recompute_full=True)
    for layers, inputs in ((1, 6), (2, 3), (4, 2), (6, 1), (9, 1)):
        where = trained(TOY, recompute_layers=layers)
        assert chunk_activation(where, one, one.slots[0]) == 32 * inputs


def test_uniform_checkpoints_end_with_their_slot() -> None:
    """Tests slots of 4, 2 and 0 layers with checkpoints of 3: 2, 1 and 0 inputs of 32 quanta."""
    where = trained(TOY, recompute_layers=3)
    one = layout("Etttt|tt||L", pp=4, ga=8, gbs=8, recompute_full=True)
    assert [chunk_activation(where, one, slot) for slot in one.slots] == [64, 32, 0, 0]


def test_block_checkpoints_the_first_layers_of_a_slot() -> None:
    """Tests slots of 4 and 2 layers with 3 recomputed in each: the fourth keeps all it saves.

    toy-moe begins with a dense layer; the fourth is of experts.
    """
    where = trained(TOY, recompute_method="block", recompute_layers=3)
    one = layout("Etttt|ttL", pp=2, ga=8, gbs=8, recompute_full=True)
    whole = layer_activation(TOY, dataclasses.replace(one, recompute_full=False), MOE)
    assert [chunk_activation(where, one, slot) for slot in one.slots] == [3 * 32 + whole, 2 * 32]


def test_a_checkpoint_runs_backward_as_a_whole() -> None:
    """Tests that uniform checkpoints of 3 layers bring back what 3 of the largest layers save."""
    largest = max(layer_saved(TOY, kind, 1, 4096, 1, 1, "alltoall") for kind in TOY.kinds)
    one, three = (
        full_layer_working(trained(TOY, recompute_layers=n), 1, 4096, 1, 1, "alltoall", 1)
        for n in (1, 3)
    )
    assert three - one == 2 * largest
    block = trained(TOY, recompute_layers=3, recompute_method="block")
    assert full_layer_working(block, 1, 4096, 1, 1, "alltoall", 1) == one


# -- activations on the host -----------------------------------------------------------------------


@pytest.mark.parametrize("module", OFFLOAD_MODULES)
@pytest.mark.parametrize("name", card_names())
def test_what_leaves_the_gpu_arrives_on_the_host(name: str, module: str) -> None:
    """Tests every kind of layer of every card in bf16, nothing recomputed, tp 1 and 2.

    Either side is rounded up in up to two terms, so they differ by two quanta at most.
    """
    where = CARDS[name]
    offloaded = trained(where, activation_offload=(module,))
    for kind, tp in itertools.product(where.cost_kinds, (1, 2)):
        one = Layout(tp=tp, mbs=2)
        left = layer_activation(where, one, kind) - layer_activation(offloaded, one, kind)
        arrived = offloaded_activation(offloaded, kind, tp, 8192, 1, 1, 0, 0, 0, 0)
        assert left == pytest.approx(arrived, abs=2)


@pytest.mark.parametrize(
    ("module", "per_token"),
    [
        ("attn_norm", 2 * 7168),
        ("qkv_linear", 2 * 7168),
        ("core_attn", 128 * 2 * (192 + 192 + 128)),
        ("attn_proj", 128 * 128 * 2),
        ("mlp_norm", 2 * 7168),
        ("expert_fc1", 8 * 2 * 7168),
        ("moe_act", 8 * 2 * 2 * 2048),
    ],
)
def test_offloaded_modules_of_deepseek_v3(module: str, per_token: int) -> None:
    """Tests the saved input of each module, bf16, tp = 1, at 4096 tokens: 1/64 quantum a byte."""
    where = trained(DSV3, activation_offload=(module,))
    assert offloaded_activation(where, MLA_MOE, 1, 4096, 1, 1, 0, 0, 0, 0) == per_token // 64
    # Two layers' are on the GPU: the last one's and those under way.
    assert offload_staging(where, 1, 4096, 1, 1, 0, 0, 0, 0) == 2 * (per_token // 64)


@pytest.mark.parametrize(
    ("module", "kind", "expected"),
    [
        ("attn_norm", DENSE, 0),
        ("attn_norm", MOE, 0),
        ("attn_norm", LayerKind("gdn", "moe"), 0),
        ("attn_norm", LayerKind("mamba", "none"), 0),
        ("qkv_linear", DENSE, 64),
        ("qkv_linear", LayerKind("gdn", "moe"), 0),
        ("qkv_linear", LayerKind("mamba", "none"), 0),
        ("mlp_norm", DENSE, 0),
        ("mlp_norm", LayerKind("none", "dense"), 0),
        ("mlp_norm", MOE, 32),
        ("mlp_norm", LayerKind("none", "moe"), 32),
    ],
)
def test_fused_norms_leave_with_their_linear(module: str, kind: LayerKind, expected: int) -> None:
    """Tests norms that Transformer Engine fuses into the next linear layer: no module of their own.

    Their offload moves nothing; that of the QKV projection takes the layer input and the normed
    one.  toy-moe: 1024 * 2 bytes * 4096 tokens = 32 quanta.
    """
    where = trained(TOY, activation_offload=(module,))
    assert offloaded_activation(where, kind, 1, 4096, 1, 1, 0, 0, 0, 0) == expected


@pytest.mark.parametrize(
    ("module", "graphs", "kept"),
    [
        ("attn_norm", ("attn",), True),
        ("attn_norm", ("moe_router",), False),
        ("mlp_norm", ("attn",), True),
        ("mlp_norm", ("moe_router",), True),
        ("core_attn", ("attn",), False),
    ],
)
def test_norms_beside_a_graph_stay(module: str, graphs: tuple[str, ...], kept: bool) -> None:
    """Tests that a graph next to a norm keeps its input on the GPU: 224 quanta in DeepSeek-V3."""
    where = trained(DSV3, activation_offload=(module,))
    with_graphs, without = (Layout(cuda_graphs=scopes) for scopes in (graphs, ()))
    more = [
        layer_activation(each, with_graphs, MLA_MOE) - layer_activation(each, without, MLA_MOE)
        for each in (DSV3, where)
    ]
    assert more == [224, 448 if kept else 224]


def test_offload_of_an_fp8_output_moves_the_quantised_copy() -> None:
    """Tests attn_proj with fp8-current: one byte an element leaves, the bf16 output stays.

    128 * 128 bytes a token at 4096 tokens = 256 quanta.
    """
    where = problem("deepseek-v3", gpus=256, precision="fp8-current")
    moved = trained(where, activation_offload=("attn_proj",))
    left = _attention(where, MLA_MOE) - _attention(moved, MLA_MOE)
    assert left == offloaded_activation(moved, MLA_MOE, 1, 4096, 1, 1, 0, 0, 0, 0) == 256


@pytest.mark.parametrize(
    ("module", "recomputed", "layers"),
    [("core_attn", "mla_up_proj", 62), ("qkv_linear", "layernorm", 62), ("moe_act", "moe_act", 59)],
)
def test_what_is_recomputed_is_not_on_the_host(module: str, recomputed: str, layers: int) -> None:
    """Tests DeepSeek-V3: what leaves the GPU arrives on the host under each recompute, too.

    mla_up_proj discards q, k and v; layernorm the norm's output, which is qkv_linear's input in
    MLA.  moe_act keeps its input.  61 layers and one of MTP, three of them dense.
    """
    where = trained(DSV3, activation_offload=(module,))
    one = laid_out(where, (61,), recompute=(recomputed,), ga=1, gbs=1)
    left = layer_activation(DSV3, one, MLA_MOE) - layer_activation(where, one, MLA_MOE)
    assert rank_memory(where, one, 0).host == pytest.approx(layers * left, abs=2 * layers)


def test_layers_outside_the_block_offload_to_the_host() -> None:
    """Tests block recompute of 2 of 6 layers: the other four offload as without recompute.

    core_attn: q, k, v of 8+4+4 heads of 128, 2 bytes, 4096 tokens: 64 quanta a layer.
    """
    where = trained(
        TOY, recompute_method="block", recompute_layers=2, activation_offload=("core_attn",)
    )
    plain = trained(TOY, recompute_method="block", recompute_layers=2)
    one = laid_out(TOY, (6,), recompute_full=True)
    slot = one.slots[0]
    assert chunk_activation(plain, one, slot) - chunk_activation(where, one, slot) == 4 * 64
    assert rank_memory(where, one, 0).host == 4 * 64


def test_host_keeps_every_live_micro_batch() -> None:
    """Tests 1F1B on 2 ranks, 3 layers each: rank 0 keeps 2 micro-batches on the host, rank 1 one.

    core_attn of toy-moe: 64 quanta a layer and micro-batch; no optimizer state is there.
    """
    where = trained(TOY, activation_offload=("core_attn",))
    assert [m.host for m in ranks_of(where, laid_out(where, (3, 3)))] == [2 * 3 * 64, 3 * 64]
    both = ranks_of(where, laid_out(where, (3, 3), offload=100))
    state = ranks_of(TOY, laid_out(TOY, (3, 3), offload=100))
    assert [m.host for m in both] == [state[0].host + 384, state[1].host + 192]


@given(cases(), st.sampled_from(OFFLOAD_MODULES))
def test_offload_of_a_module_never_raises_what_is_saved(
    drawn: tuple[Problem, Layout], module: str
) -> None:
    """Tests one module more: activations do not grow, the host's share does not shrink.

    (The peak may grow: two layers' tensors are staged, whatever few layers there are.)
    """
    where, one = drawn
    modules = tuple(m for m in where.training.activation_offload if m != module)
    fewer = trained(where, activation_offload=modules)
    more = trained(where, activation_offload=(*modules, module))
    for before, after in zip(ranks_of(fewer, one), ranks_of(more, one), strict=True):
        assert after.events[0].activations <= before.events[0].activations
        assert after.host >= before.host
        assert (after.weights, after.optimizer) == (before.weights, before.optimizer)


@pytest.mark.parametrize(
    ("model", "idle"),
    [
        ("llama-3.1-8b", {"attn_norm", "mlp_norm"}),
        ("toy-moe", {"attn_norm"}),
        ("deepseek-v3", set()),
    ],
)
def test_offload_that_moves_nothing_is_told(model: str, idle: set[str]) -> None:
    """Tests norms that are fused everywhere in a model: each is named among the idle settings."""
    modules = ("attn_norm", "mlp_norm", "core_attn")
    told = "; ".join(idle_settings(trained(problem(model), activation_offload=modules), Layout()))
    assert {name for name in modules if name in told} == idle
    assert ("Transformer Engine fuses" in told) == bool(idle)
