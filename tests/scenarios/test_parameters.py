"""Parameter counts: against published weights, by hand, and over the ranks that share them."""

from __future__ import annotations

from decimal import Decimal
from typing import NamedTuple

import pytest
from hypothesis import assume, given
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


def _vision(hidden: int) -> int:
    """Elements of the vision encoder of Qwen3.5: 27 blocks of 1,152, and what leads to ``hidden``.

    Patches are 3 x 2 x 16 x 16 pixels, positions 48 x 48; four patches of 1,152 become a token.
    """
    width, ffn, merged = 1152, 4304, 4 * 1152
    linears = ((width, 3 * width), (width, width), (width, ffn), (ffn, width))
    block = sum(rows * columns + columns for rows, columns in linears) + 4 * width
    patches = 3 * 2 * 16 * 16 * width + width + 48 * 48 * width
    merger = 2 * width + merged * merged + merged + merged * hidden + hidden
    return 27 * block + patches + merger


class Released(NamedTuple):
    """What the weights that people download have.

    Attributes
    ----------
    elements
        Elements of all tensors.
    others
        How many of them the count leaves out on purpose, beside the expert biases (one for each
        expert and MoE layer), which are no parameters.
    bias_layers
        MoE layers with expert biases, MTP layers included.
    mtp
        Whether an MTP layer is among them.
    """

    elements: int
    others: int = 0
    bias_layers: int = 0
    mtp: bool = False


#: Sizes of the released weights.  Moonlight has 1,728 elements more that we cannot name; GLM-4.5's
#: MTP layer comes with copies of embedding and head; Qwen3.5 comes with its vision encoder.  Counts
#: of Nemotron 3 are those of llama.cpp, whose conversion of Super leaves the MTP layer out.
RELEASED = {
    "deepseek-v3": Released(671_026_419_200, bias_layers=58),
    "glm-4.5-air": Released(110_468_824_832, 2 * 151_552 * 4096, 46, mtp=True),
    "gpt-oss-120b": Released(116_829_156_672),
    "gpt-oss-20b": Released(20_914_757_184),
    "kimi-k2": Released(1_026_408_232_448, bias_layers=60),
    "llama-3.1-8b": Released(8_030_261_248),
    "llama-3.1-70b": Released(70_553_706_496),
    "llama-3.1-405b": Released(405_853_388_800),
    "mixtral-8x7b": Released(46_702_792_704),
    "mixtral-8x22b": Released(140_620_634_112),
    "moonlight-16b-a3b": Released(15_960_111_936, 1_728, 26),
    "nemotron-3-nano-30b-a3b": Released(31_577_940_288, bias_layers=23),
    "nemotron-3-nano-4b": Released(3_973_556_832),
    "nemotron-3-super-120b-a12b": Released(120_668_707_840, bias_layers=40),
    "nemotron-3.5-lightning-30b-a3b": Released(32_913_266_240, bias_layers=24, mtp=True),
    "qwen1.5-moe-a2.7b": Released(14_315_784_192),
    "qwen2-57b-a14b": Released(57_408_658_944),
    "qwen2.5-7b": Released(7_615_616_512),
    "qwen2.5-14b": Released(14_770_033_664),
    "qwen2.5-72b": Released(72_706_203_648),
    "qwen3-4b": Released(4_022_468_096),
    "qwen3-8b": Released(8_190_735_360),
    "qwen3-14b": Released(14_768_307_200),
    "qwen3-32b": Released(32_762_123_264),
    "qwen3-235b-a22b": Released(235_093_634_560),
    "qwen3-30b-a3b": Released(30_532_122_624),
    "qwen3-next-80b-a3b": Released(79_674_391_296),
    "qwen3-vl-235b-a22b": Released(235_093_634_560),
    "qwen3.5-35b-a3b": Released(35_951_822_704, _vision(2048), mtp=True),
    "qwen3.5-122b-a10b": Released(125_086_497_008, _vision(3072), mtp=True),
    "qwen3.5-397b-a17b": Released(403_397_928_944, _vision(4096), mtp=True),
    "qwen3.8-27b": Released(27_781_427_952, _vision(5120), mtp=True),
}
#: Models whose makers give a rounded total only.
ROUNDED = {"nemotron-3-ultra-550b-a55b", "nemotron-h-56b"}
REAL = tuple(name for name in card_names() if not name.startswith("toy-"))
MOE = tuple(name for name in card_names() if load_card(name).is_moe)
DEGREES = st.sampled_from((1, 2, 4, 8))


@pytest.mark.parametrize("name", RELEASED)
def test_total_is_that_of_the_released_weights(name: str) -> None:
    """Tests that the count agrees to the last element with the weights people download."""
    card, released = load_card(name), RELEASED[name]
    biases = released.bias_layers * card.experts
    counted = total_parameters(card, with_mtp=released.mtp)
    assert counted == released.elements - released.others - biases


def test_every_real_model_is_held_to_its_weights() -> None:
    """Tests that no card escapes the test above, but for those without an exact total."""
    assert set(REAL) == set(RELEASED) | ROUNDED


@pytest.mark.parametrize("name", REAL)
def test_total_is_what_the_card_calls_published(name: str) -> None:
    """Tests ``published``: within 0.1 % if it has four digits, else half a unit of its last digit.

    Digits are those written, without zeros at the end: 550 B is 545 to 555 B.
    """
    card = load_card(name)
    assert card.published is not None
    published = Decimal(repr(card.published.parameters_b)).normalize()
    unit = published.as_tuple().exponent
    assert isinstance(unit, int)
    exact = len(published.as_tuple().digits) >= 4
    allowed = published / 1000 if exact else Decimal(10) ** unit / 2
    assert abs(Decimal(total_parameters(card)) / 10**9 - published) <= allowed


@pytest.mark.parametrize(
    ("name", "published_b", "without_embedding"),
    [
        # DeepSeek and OpenAI say that they leave the embedding out and count the head.
        ("deepseek-v3", 37.0, True),
        ("gpt-oss-120b", 5.13, True),
        ("qwen3-235b-a22b", 22.0, False),
        ("qwen3-30b-a3b", 3.3, False),
        ("kimi-k2", 32.0, True),
        # Nemotron's reports say how much the embedding is of it.
        ("nemotron-3-nano-30b-a3b", 3.6, False),
        ("nemotron-3-nano-30b-a3b", 3.2, True),
        ("nemotron-3-super-120b-a12b", 12.7, False),
        ("mixtral-8x7b", 12.9, False),
        ("mixtral-8x22b", 39.0, False),
        ("qwen1.5-moe-a2.7b", 2.7, False),
        ("qwen2-57b-a14b", 14.0, False),
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


def test_kv_heads_are_cut_beyond_their_number() -> None:
    """Tests Qwen3-235B at TP 8: each rank holds an eighth of the weights of 4 KV groups."""
    card, kind = load_card("qwen3-235b-a22b"), LayerKind("gqa", "moe")
    expected = 4096 * (8 * 128 + 2 * 4 * 128 // 8) + 8 * 128 * 4096 + 2 * 128 + 4096
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


HYBRID = ModelCard.model_validate(
    {
        "name": "hybrid", "layers": 4, "hidden": 8, "ffn": 16, "vocab": 128, "heads": 2,
        "kv_groups": 1, "head_dim": 4, "attention": "gqa", "gated": False, "experts": 4, "topk": 2,
        "moe_ffn": 6, "layer_pattern": ["mamba", "attention", "mlp", "moe"], "mamba_heads": 2,
        "mamba_head_dim": 8, "mamba_state": 4, "mamba_groups": 1, "mamba_conv": 4,
        "mtp_layers": 2, "mtp_repeated": True,
    }
)  # fmt: skip


def test_layers_of_a_single_part_by_hand() -> None:
    """Tests that attention, MLP and experts alone have one norm each, and nothing of the others."""
    attention = 8 * (8 + 2 * 4) + 8 * 8
    assert layer_parameters(HYBRID, LayerKind("gqa", "none")) == Shards(attention + 8)
    assert layer_parameters(HYBRID, LayerKind("none", "dense")) == Shards(2 * 8 * 16 + 8)
    experts = Shards(4 * 8 + 8, 4 * 2 * 8 * 6)
    assert layer_parameters(HYBRID, LayerKind("none", "moe")) == experts


def test_repeated_mtp_layers_count_once() -> None:
    """Tests that two MTP layers which share weights are attention, experts and a merge, once."""
    layer = sum(
        (layer_parameters(HYBRID, kind).total)
        for kind in (LayerKind("gqa", "none"), LayerKind("none", "moe"))
    )
    assert mtp_parameters(HYBRID).total == layer + 2 * 8 * 8 + 3 * 8
    added = total_parameters(HYBRID, with_mtp=True) - total_parameters(HYBRID)
    assert added == mtp_parameters(HYBRID).total


def test_bias_of_qkv_alone() -> None:
    """Tests Qwen2.5-7B: 28 query and 2 x 4 KV heads of 128 have biases, the output has none."""
    card, kind = load_card("qwen2.5-7b"), LayerKind("gqa", "dense")
    bare = card.model_copy(update={"qkv_bias": False})
    for tp in (1, 2, 4):
        added = attention_parameters(card, kind, tp=tp) - attention_parameters(bare, kind, tp=tp)
        assert added == (28 + 8) * 128 // tp


@given(name=st.sampled_from(MOE), ep=DEGREES, etp=DEGREES, tp=DEGREES)
def test_experts_are_divided_exactly(name: str, ep: int, etp: int, tp: int) -> None:
    """Tests that EP x ETP ranks hold each expert weight once, whatever TP is."""
    card = load_card(name)
    assume(card.experts % ep == 0)  # Qwen1.5-MoE has 60 experts
    kind = next(kind for kind in card.kinds if kind.mlp == "moe")
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
    stages -= embedding_parameters(card) if card.tied_embeddings else 0
    # All shipped vocabularies are multiples of their divisor, so padding adds nothing at TP 1.
    assert stages == total_parameters(card)
