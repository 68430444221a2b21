"""Parameter counts: against published weights, by hand, and over the ranks that share them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshplan.scenarios.cards import card_names, load_card
from meshplan.scenarios.model_card import LayerKind, ModelCard
from meshplan.scenarios.parameters import (
    Shards,
    active_parameters,
    attention_parameters,
    embedding_parameters,
    expert_parameters,
    layer_parameters,
    mlp_parameters,
    mtp_parameters,
    output_parameters,
    total_parameters,
)

#: Elements of the tensors in the released weights, without MTP layers, and how many of them the
#: count leaves out on purpose: the expert biases (one per expert and MoE layer) are no parameters.
#: Moonlight has 1,728 elements more that we cannot name.
RELEASED = {
    "deepseek-v3": (671_026_419_200, 58 * 256),
    "gpt-oss-120b": (116_829_156_672, 0),
    "kimi-k2": (1_026_408_232_448, 60 * 384),
    "llama-3.1-8b": (8_030_261_248, 0),
    "llama-3.1-70b": (70_553_706_496, 0),
    "llama-3.1-405b": (405_853_388_800, 0),
    "moonlight-16b-a3b": (15_960_111_936, 26 * 64 + 1_728),
    "qwen3-235b-a22b": (235_093_634_560, 0),
    "qwen3-30b-a3b": (30_532_122_624, 0),
    "qwen3-next-80b-a3b": (79_674_391_296, 0),
}
REAL = tuple(name for name in card_names() if not name.startswith("toy-"))
MOE = tuple(name for name in card_names() if load_card(name).is_moe)
DEGREES = st.sampled_from((1, 2, 4, 8))


@pytest.mark.parametrize("name", REAL)
def test_total_is_that_of_the_released_weights(name: str) -> None:
    """Tests that the count agrees to the last element with the weights people download."""
    released, left_out = RELEASED[name]
    assert total_parameters(load_card(name)) == released - left_out


@pytest.mark.parametrize("name", REAL)
def test_total_is_what_the_card_calls_published(name: str) -> None:
    """Tests that ``published`` rounds the same total: within 0.1 %."""
    card = load_card(name)
    assert card.published is not None
    assert total_parameters(card) / 1e9 == pytest.approx(card.published.parameters_b, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "published_b", "without_embedding"),
    [
        # DeepSeek and OpenAI say that they leave the embedding out and count the head.
        ("deepseek-v3", 37.0, True),
        ("gpt-oss-120b", 5.13, True),
        ("qwen3-235b-a22b", 22.0, False),
        ("qwen3-30b-a3b", 3.3, False),
        ("kimi-k2", 32.0, True),
    ],
)
def test_active_is_what_was_announced(
    name: str, published_b: float, without_embedding: bool
) -> None:
    """Tests active parameters against announcements, which round to two digits: within 2 %."""
    card = load_card(name)
    active = active_parameters(card)
    if without_embedding:
        active -= card.vocab * card.hidden
    assert active / 1e9 == pytest.approx(published_b, rel=0.02)


def test_dense_model_is_all_active() -> None:
    """Tests that each token uses every parameter of a dense model."""
    card = load_card("llama-3.1-70b")
    assert active_parameters(card) == total_parameters(card)


def test_mtp_makes_deepseek_v3_the_announced_685_billion() -> None:
    """Tests that the released 685 B are the model, one MTP layer and its copies of both tables."""
    card = load_card("deepseek-v3")
    copies = 2 * card.vocab * card.hidden
    assert total_parameters(card, with_mtp=True) + copies == pytest.approx(685e9, rel=1e-3)


def test_mtp_layer_of_deepseek_v3_by_hand() -> None:
    """Tests that an MTP layer is an MoE layer, 2 h x h to merge, and three norms of h."""
    card = load_card("deepseek-v3")
    extra = mtp_parameters(card).total - layer_parameters(card, LayerKind("mla", "moe")).total
    assert extra == 2 * 7168 * 7168 + 3 * 7168


def test_toy_layer_by_hand() -> None:
    """Tests the toy's shapes: h 1024, q 1024, k and v 512, 8 experts of 1024, FFN 4096."""
    card = load_card("toy-moe")
    attention = 1024 * (1024 + 2 * 512) + 1024 * 1024 + 1024
    dense, moe = LayerKind("gqa", "dense"), LayerKind("gqa", "moe")
    assert attention_parameters(card, moe) == attention
    assert layer_parameters(card, dense) == Shards(attention + 3 * 1024 * 4096 + 1024)
    assert layer_parameters(card, moe) == Shards(
        attention + 1024 * 8 + 1024, 8 * 3 * 1024 * 1024
    )  # router and norm are dense; experts are not
    assert embedding_parameters(card) == 32_000 * 1024
    assert output_parameters(card) == 32_000 * 1024 + 1024


def test_latent_down_projections_are_whole_on_each_tp_rank() -> None:
    """Tests that only the up projections and the output of MLA shrink with TP."""
    card, kind = load_card("deepseek-v3"), LayerKind("mla", "moe")
    whole = 7168 * (1536 + 512 + 64) + (1536 + 512 + 7168)  # down projections and norms
    one, eight = (attention_parameters(card, kind, tp=tp) for tp in (1, 8))
    assert (one - whole) == 8 * (eight - whole)
    assert eight > one / 8


def test_kv_heads_are_replicated_beyond_their_number() -> None:
    """Tests Qwen3-235B at TP 8: 4 KV groups, so each rank holds one whole group, not a half."""
    card, kind = load_card("qwen3-235b-a22b"), LayerKind("gqa", "moe")
    expected = 4096 * (8 * 128 + 2 * 128) + 8 * 128 * 4096 + 2 * 128 + 4096
    assert attention_parameters(card, kind, tp=8) == expected


def test_tied_head_counts_once_in_the_total_and_fully_on_its_stage() -> None:
    """Tests that tying saves one table of the model but no memory on a separate loss stage."""
    card = load_card("toy-dense")
    tied = card.model_copy(update={"tied_embeddings": True})
    assert total_parameters(card) - total_parameters(tied) == 32_000 * 1024
    assert output_parameters(card) == output_parameters(tied)


def test_latent_experts_work_in_the_latent_width() -> None:
    """Tests that routed experts shrink to the latent width and two projections are added."""
    card = load_card("toy-moe")
    latent = ModelCard.model_validate({**card.model_dump(), "moe_latent": 256, "sources": {}})
    kind = LayerKind("gqa", "moe")
    plain, small = (mlp_parameters(c, kind) for c in (card, latent))
    assert small.expert * 4 == plain.expert
    assert small.dense - plain.dense == 2 * 1024 * 256


def test_mamba_layer_by_hand() -> None:
    """Tests one Mamba-2 layer: inner width 2 x 8, states 1 x 4, convolution 4 with bias."""
    card = ModelCard.model_validate(
        {
            "name": "hybrid", "layers": 2, "hidden": 8, "ffn": 16, "vocab": 128, "heads": 2,
            "kv_groups": 1, "head_dim": 4, "attention": "gqa", "layer_pattern": ["mamba", "full"],
            "mamba_heads": 2, "mamba_head_dim": 8, "mamba_state": 4, "mamba_groups": 1,
            "mamba_conv": 4,
        }
    )  # fmt: skip
    projections = 8 * (2 * 16 + 2 * 4 + 2) + 16 * 8
    rest = (4 + 1) * (16 + 2 * 4) + 3 * 2 + 16 + 8
    assert layer_parameters(card, LayerKind("mamba", "none")) == Shards(projections + rest)


@given(name=st.sampled_from(MOE), ep=DEGREES, etp=DEGREES, tp=DEGREES)
def test_experts_are_divided_exactly(name: str, ep: int, etp: int, tp: int) -> None:
    """Tests that EP x ETP ranks hold each expert weight once, whatever TP is."""
    card = load_card(name)
    kind = card.mtp_kind
    whole = layer_parameters(card, kind).expert
    share = layer_parameters(card, kind, tp=tp, ep=ep, etp=etp).expert
    # A bias after a row-parallel linear is whole on each ETP rank; GPT-OSS has one per expert.
    bias = card.hidden if card.mlp_bias else 0
    assert ep * etp * share == whole + (etp - 1) * card.experts * bias
    assert whole == card.experts * expert_parameters(card)


@given(name=st.sampled_from(card_names()), tp=DEGREES, ep=DEGREES, etp=DEGREES)
def test_ranks_together_hold_at_least_the_model(name: str, tp: int, ep: int, etp: int) -> None:
    """Tests that no parameter is lost by sharding: the ranks' sum is the model or more."""
    card = load_card(name)
    for kind in card.kinds:
        whole = layer_parameters(card, kind)
        share = layer_parameters(card, kind, tp=tp, ep=ep, etp=etp)
        assert tp * share.dense >= whole.dense
        assert ep * etp * share.expert >= whole.expert
    assert tp * embedding_parameters(card, tp=tp) >= card.vocab * card.hidden
    assert tp * output_parameters(card, tp=tp) >= card.vocab * card.hidden + card.hidden


@given(
    name=st.sampled_from(card_names()),
    tp=st.integers(1, 64),
    ep=st.integers(1, 64),
    etp=st.integers(1, 8),
)
def test_more_ranks_never_hold_more_each(name: str, tp: int, ep: int, etp: int) -> None:
    """Tests that a rank's layer share shrinks or stays as TP, EP or ETP grow, divisible or not."""
    card = load_card(name)
    for kind in card.kinds:
        here = layer_parameters(card, kind, tp=tp, ep=ep, etp=etp)
        wider = layer_parameters(card, kind, tp=tp + 1, ep=ep, etp=etp)
        assert wider.dense <= here.dense
        assert wider.expert == here.expert
        for more in ({"ep": ep + 1, "etp": etp}, {"ep": ep, "etp": etp + 1}):
            spread = layer_parameters(card, kind, tp=tp, **more)
            assert spread.expert <= here.expert
            assert spread.dense == here.dense


@pytest.mark.parametrize("name", card_names())
def test_parts_add_up_to_the_total(name: str) -> None:
    """Tests that stages of one rank hold the whole model: layers, embedding, norm and head."""
    card = load_card(name)
    layers = sum(layer_parameters(card, kind).total for kind in card.layer_kinds)
    stages = layers + embedding_parameters(card) + output_parameters(card)
    # All shipped vocabularies are multiples of their divisor, so padding adds nothing at TP 1.
    assert stages == total_parameters(card)
