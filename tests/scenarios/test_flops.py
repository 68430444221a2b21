"""FLOPs per token: against published runs, by hand, and how they grow."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshplan.scenarios.cards import card_names, load_card
from meshplan.scenarios.flops import (
    COUNTINGS,
    Counting,
    FlopsBreakdown,
    attended_tokens,
    flash_backward_flops,
    flops_per_token,
    full_recompute_flops,
    head_flops_per_token,
    layer_flops_per_token,
    mtp_flops_per_token,
    otherwise_counted,
)
from meshplan.scenarios.model_card import LayerKind, ModelCard
from meshplan.scenarios.parameters import active_parameters

#: GFLOP per token of published runs (TFLOP/s over tokens/s of the Megatron-Bridge performance
#: tables), lowest and highest row.  GPT-OSS is counted as releases from 26.06 on count it.
PUBLISHED = [
    ("llama-3.1-8b", 8192, 51.45, 51.50),
    ("llama-3.1-70b", 8192, 449.0, 449.6),
    ("llama-3.1-70b", 4096, 432.2, 435.3),
    ("llama-3.1-405b", 8192, 2521.0, 2530.0),
    ("deepseek-v3", 4096, 259.6, 260.6),
    ("kimi-k2", 4096, 204.2, 204.6),
    ("qwen3-30b-a3b", 4096, 22.8, 23.1),
    ("qwen3-235b-a22b", 4096, 147.7, 148.3),
    ("gpt-oss-120b", 4096, 32.6, 32.6),
    ("nemotron-3-nano-30b-a3b", 8192, 22.1, 22.6),
    ("nemotron-3-super-120b-a12b", 8192, 84.3, 85.4),
]


@pytest.mark.parametrize(("name", "seq_len", "lowest", "highest"), PUBLISHED)
def test_flops_are_those_of_published_runs(
    name: str, seq_len: int, lowest: float, highest: float
) -> None:
    """Tests that the count falls among the published rows, with 0.1 % for their rounding."""
    gflop = flops_per_token(load_card(name), seq_len).total / 1e9
    assert lowest * 0.999 <= gflop <= highest * 1.001


def test_deepseek_v3_without_mtp() -> None:
    """Tests that switching MTP off lowers DeepSeek-V3 from 260.0 to 249.8 GFLOP per token."""
    card = load_card("deepseek-v3")
    bare = card.model_copy(update={"mtp_layers": 0})
    assert flops_per_token(card, 4096).total / 1e9 == pytest.approx(260.0, rel=1e-3)
    assert flops_per_token(bare, 4096).total / 1e9 == pytest.approx(249.8, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "gflop_4k", "gflop_8k"),
    [
        ("moonlight-16b-a3b", 17.15, 18.85),
        ("qwen3-next-80b-a3b", 22.74, 23.95),
        ("qwen3-8b", 49.03, 52.66),
        ("qwen3-vl-235b-a22b", 148.03, 166.96),
        ("qwen3.5-397b-a17b", 109.35, 112.57),
        ("qwen3.5-122b-a10b", 63.02, 65.63),
        ("qwen3.5-35b-a3b", 22.47, 23.58),
        ("qwen3.8-27b", 167.39, 169.96),
        ("gpt-oss-20b", 22.91, 24.12),
        ("nemotron-3-nano-30b-a3b", 21.67, 22.28),
        ("nemotron-3.5-lightning-30b-a3b", 27.34, 28.15),
        ("nemotron-3-super-120b-a12b", 83.72, 84.73),
        ("nemotron-3-ultra-550b-a55b", 356.10, 358.91),
        ("nemotron-3-nano-4b", 20.56, 21.06),
    ],
)
def test_flops_of_models_with_one_published_row_or_none(
    name: str, gflop_4k: float, gflop_8k: float
) -> None:
    """Tests the other kinds of layers against Megatron-Bridge's formulas, to their rounding."""
    card = load_card(name)
    assert flops_per_token(card, 4096).total / 1e9 == pytest.approx(gflop_4k, rel=1e-3)
    assert flops_per_token(card, 8192).total / 1e9 == pytest.approx(gflop_8k, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "percent"),
    [
        ("qwen3-235b-a22b", (13, 54, 82, 90)),
        ("qwen3-30b-a3b", (21, 68, 90, 94)),
        ("deepseek-v3", (12, 52, 81, 90)),
        ("kimi-k2", (8, 39, 72, 84)),
        ("gpt-oss-120b", (6, 32, 65, 79)),
        ("qwen3-next-80b-a3b", (5, 31, 64, 78)),
    ],
)
def test_attention_core_takes_over_at_long_context(name: str, percent: tuple[int, ...]) -> None:
    """Tests the share of the attention core at 4K, 32K, 128K and 256K tokens, in whole percent."""
    card = load_card(name)
    for seq_len, expected in zip((4096, 32768, 131072, 262144), percent, strict=True):
        flops = flops_per_token(card, seq_len)
        assert 100 * flops.attention_core / flops.total == pytest.approx(expected, abs=0.6)


def test_toy_by_hand() -> None:
    """Tests the toy at 64 tokens: 6 FLOPs per multiply-accumulate, half the score matrix."""
    card = load_card("toy-moe")
    flops = flops_per_token(card, 64)
    assert flops == FlopsBreakdown(
        attention_projections=6 * 6 * (1024 * (1024 + 2 * 512) + 1024 * 1024),
        attention_core=6 * 6 * 2 * 1024 * 64 / 2,
        dense_mlp=6 * 1 * 3 * 1024 * 4096,
        routed_experts=6 * 5 * 2 * 3 * 1024 * 1024,
        logits=6 * 1024 * 32_000,
    )
    assert flops.total == sum(flops.as_dict().values())


def test_window_band_is_exact() -> None:
    """Tests the mean number of tokens in a causal window against counting them."""
    card, kind = load_card("gpt-oss-120b"), LayerKind("swa", "moe")
    for seq_len in (1, 100, 128, 129, 1000):
        counted = sum(min(position + 1, 128) for position in range(seq_len)) / seq_len
        assert attended_tokens(card, kind, seq_len) == pytest.approx(counted)


def test_layers_without_a_score_matrix_attend_to_none() -> None:
    """Tests that a gated delta net costs the same per token at any length."""
    card, kind = load_card("qwen3-next-80b-a3b"), LayerKind("gdn", "moe")
    assert attended_tokens(card, kind, 4096) == 0
    assert layer_flops_per_token(card, kind, 4096) == layer_flops_per_token(card, kind, 262144)


def test_latent_experts_and_mamba_by_hand() -> None:
    """Tests the parts of a hybrid model by hand, against Megatron-LM's formula."""
    card = ModelCard.model_validate(
        {
            "name": "hybrid", "layers": 2, "hidden": 8, "vocab": 128, "heads": 2, "kv_groups": 1,
            "head_dim": 4, "attention": "gqa", "layer_pattern": ["mamba", "full"],
            "experts": 4, "topk": 2, "moe_ffn": 16, "moe_latent": 4, "shared_ffn": 32,
            "gated": False, "mamba_heads": 2, "mamba_head_dim": 8, "mamba_state": 4,
            "mamba_groups": 1, "mamba_conv": 4,
        }
    )  # fmt: skip
    mamba = layer_flops_per_token(card, LayerKind("mamba", "none"), 64)
    assert mamba.total == 6 * (8 * (4 * 8 + 2 * 4 + 2) + 3.5 * 2 * 8 * 4 + 2 * 8 * 8)
    moe = layer_flops_per_token(card, LayerKind("gqa", "moe"), 64)
    assert moe.routed_experts == 6 * (2 * 4 * 16 * 2 + 2 * 8 * 4)
    assert moe.shared_experts == 6 * 2 * 8 * 32


def test_mtp_adds_a_layer_a_merge_and_logits() -> None:
    """Tests that one MTP layer adds what it is made of, and nothing else."""
    card = load_card("toy-moe")
    with_mtp = card.model_copy(update={"mtp_layers": 1})
    added = flops_per_token(with_mtp, 128).total - flops_per_token(card, 128).total
    layer = layer_flops_per_token(card, card.mtp_kind, 128).total
    merge = 6 * (2 * 1024 * 1024 + 3 * 1024)
    assert added == pytest.approx(layer + merge + head_flops_per_token(card))


def test_hybrid_mtp_adds_its_two_parts_and_logits() -> None:
    """Tests Nemotron 3 Super: an MTP step is attention, experts and logits, without the merge."""
    card = load_card("nemotron-3-super-120b-a12b")
    bare = card.model_copy(update={"mtp_layers": 0, "mtp_repeated": False})
    parts = (LayerKind("gqa", "none"), LayerKind("none", "moe"))
    step = sum(layer_flops_per_token(card, part, 4096).total for part in parts)
    added = flops_per_token(card, 4096).total - flops_per_token(bare, 4096).total
    assert added == pytest.approx(2 * (step + head_flops_per_token(card)))


def test_mtp_is_what_switching_it_off_takes_away() -> None:
    """Tests the share of MTP: 260.0 - 249.8 GFLOP of DeepSeek-V3, and none of Llama."""
    card = load_card("deepseek-v3")
    bare = card.model_copy(update={"mtp_layers": 0})
    difference = flops_per_token(card, 4096).total - flops_per_token(bare, 4096).total
    assert mtp_flops_per_token(card, 4096).total == pytest.approx(difference)
    assert difference / 1e9 == pytest.approx(10.18, abs=0.01)
    assert mtp_flops_per_token(load_card("llama-3.1-8b"), 4096) == FlopsBreakdown()


def test_gpt_oss_as_counted_before_26_06() -> None:
    """Tests both counts of GPT-OSS-120B: 27.16 GFLOP per token up to 26.04, then 32.63.

    Two of three expert matrices are 2/3; in 18 of 36 layers 127 tokens become 2048 of 4096.
    """
    card = load_card("gpt-oss-120b")
    now, before = flops_per_token(card, 4096), otherwise_counted(card, 4096, "before_26_06")
    assert now.total / 1e9 == pytest.approx(32.63, abs=0.01)
    assert before.total / 1e9 == pytest.approx(27.16, abs=0.01)
    assert before.routed_experts == pytest.approx(now.routed_experts * 2 / 3)
    assert before.attention_core == 6 * 36 * 2 * 64 * 64 * 2048
    assert (before.logits, before.attention_projections) == (now.logits, now.attention_projections)


def test_a_window_before_26_06_is_full_attention() -> None:
    """Tests a model of SwiGLU with a window in every layer: only the attention core changes."""
    plain = load_card("llama-3.1-8b")
    windowed = plain.model_copy(update={"sliding_window": 1024})
    now, before = flops_per_token(windowed, 8192), otherwise_counted(windowed, 8192, "before_26_06")
    assert before == flops_per_token(plain, 8192)
    # Mean context in the window: 1024 - 1024*1023/16384 = 960.06 tokens of 4096.
    assert now.attention_core / before.attention_core == pytest.approx(960.0625 / 4096)


def test_whole_matrix_doubles_the_core() -> None:
    """Tests Llama-3-8B as NeMo 2.x counted it: 51.47 GFLOP and 6 * 32 * 32 * 128 * 8192 more."""
    card = load_card("llama-3.1-8b")
    whole = otherwise_counted(card, 8192, "whole_matrix").total
    assert whole - flops_per_token(card, 8192).total == 6 * 32 * 32 * 128 * 8192


@pytest.mark.parametrize("name", [n for n in card_names() if "gpt-oss" not in n])
def test_other_cards_were_counted_alike_before_26_06(name: str) -> None:
    """Tests that the change of 26.06 is about windows and GPT-OSS alone."""
    card = load_card(name)
    assert otherwise_counted(card, 4096, "before_26_06") == flops_per_token(card, 4096)


def test_what_is_executed_besides() -> None:
    """Tests the toy at 64 tokens, by hand.

    Scores once more are one product in each of six layers; full recompute is a third of forward
    and backward, without the logits.
    """
    flops = flops_per_token(load_card("toy-moe"), 64)
    assert flash_backward_flops(flops) == 6 * 2 * 1024 * 32
    assert full_recompute_flops(flops) == (flops.total - 6 * 1024 * 32_000) / 3


@pytest.mark.parametrize("counting", COUNTINGS)
def test_other_countings_need_a_sequence_too(counting: Counting) -> None:
    """Tests that they refuse a sequence without tokens by name and value."""
    with pytest.raises(ValueError, match=r"seq_len \(0\)"):
        otherwise_counted(load_card("toy-moe"), 0, counting)


@pytest.mark.parametrize("seq_len", [0, -4096])
def test_sequence_must_be_positive(seq_len: int) -> None:
    """Tests that a sequence without tokens is refused by name and value."""
    with pytest.raises(ValueError, match=rf"seq_len \({seq_len}\)"):
        flops_per_token(load_card("toy-moe"), seq_len)


def _inner_is_usual(name: str) -> bool:
    """Whether Mamba layers, if any, have the inner width 2 h that the published count takes."""
    card = load_card(name)
    return card.mamba_heads * card.mamba_head_dim in (0, 2 * card.hidden)


@given(
    name=st.sampled_from(card_names()),
    seq_len=st.integers(1, 1 << 20),
    more=st.integers(1, 1 << 20),
)
def test_only_the_core_grows_with_the_sequence(name: str, seq_len: int, more: int) -> None:
    """Tests that longer sequences cost more per token, all of it in the attention core."""
    card = load_card(name)
    short, long = (flops_per_token(card, length).as_dict() for length in (seq_len, seq_len + more))
    assert long.pop("attention_core") > short.pop("attention_core")
    assert long == short


@pytest.mark.parametrize("name", [name for name in card_names() if _inner_is_usual(name)])
def test_flops_approach_six_per_active_parameter(name: str) -> None:
    """Tests the rule of thumb 6 N at one token: embedding has no FLOPs, routers are not counted.

    GPT-OSS and the MoE models with many experts lose up to 3 % to routers and norms; the delta
    rule of Qwen3-Next has FLOPs without parameters.
    """
    card = load_card(name).model_copy(update={"mtp_layers": 0, "mtp_repeated": False})
    linear = active_parameters(card)
    linear -= 0 if card.tied_embeddings else card.vocab * card.hidden
    assert flops_per_token(card, 1).total / (6 * linear) == pytest.approx(1, abs=0.03)
