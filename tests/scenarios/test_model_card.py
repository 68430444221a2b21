"""Model cards: bounds, contradictions, layer kinds, and the files that are shipped."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from meshplan.scenarios.cards import card_names, cards, load_card
from meshplan.scenarios.errors import InputError
from meshplan.scenarios.model_card import AttentionKind, LayerKind, MlpKind, ModelCard

#: A small dense model; tests change or add single figures.
DENSE: dict[str, Any] = {
    "name": "small", "layers": 4, "hidden": 64, "ffn": 256, "vocab": 1000, "heads": 4,
    "kv_groups": 2, "head_dim": 16, "attention": "gqa",
}  # fmt: skip
#: The same with experts in all layers but the first.
MOE: dict[str, Any] = {**DENSE, "experts": 8, "topk": 2, "moe_ffn": 32, "dense_layers": 1}
#: The same with multi-head latent attention.
MLA: dict[str, Any] = {
    **DENSE, "attention": "mla", "kv_lora_rank": 32, "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8, "v_head_dim": 12,
}  # fmt: skip
MAMBA: dict[str, Any] = {
    "mamba_heads": 4, "mamba_head_dim": 8, "mamba_state": 8, "mamba_groups": 2, "mamba_conv": 4,
}  # fmt: skip
#: Layers of a single part each, one of them with experts.
HYBRID: dict[str, Any] = {
    **DENSE, **MAMBA, "experts": 8, "topk": 2, "moe_ffn": 32,
    "layer_pattern": ["mamba", "attention", "mlp", "moe"],
}  # fmt: skip
GDN: dict[str, Any] = {
    "gdn_key_heads": 2, "gdn_value_heads": 4, "gdn_key_dim": 8, "gdn_value_dim": 8, "gdn_conv": 4,
}  # fmt: skip


@pytest.mark.parametrize(
    "base", [DENSE, MOE, MLA, HYBRID, {**DENSE, **GDN, "layer_pattern": ["gdn", "full"]}]
)
def test_sound_figures_are_accepted(base: dict[str, Any]) -> None:
    """Tests that the bases which the refusals below change are sound themselves."""
    assert ModelCard.model_validate(base).layers == 4


@pytest.mark.parametrize("value", [0, -1, 1.5, 10**12, float("nan"), float("inf"), "4", True, None])
@pytest.mark.parametrize("figure", ["layers", "hidden", "heads", "vocab", "head_dim"])
def test_numbers_out_of_bounds_are_refused(figure: str, value: object) -> None:
    """Tests that a figure is a whole positive number of a size that a model can have."""
    with pytest.raises(ValidationError, match=figure):
        ModelCard.model_validate({**DENSE, figure: value})


@pytest.mark.parametrize(
    ("base", "change", "message"),
    [
        (DENSE, {"layer": 3}, "layer"),
        (DENSE, {"kv_groups": 3}, r"heads \(4\) is no multiple of kv_groups \(3\)"),
        (DENSE, {"ffn": None}, "ffn is not given"),
        (DENSE, {"topk": 2}, r"topk \(2\) given, but experts is 0"),
        (DENSE, {"dense_layers": 1}, r"dense_layers \(1\) given, but experts is 0"),
        (DENSE, {"kv_lora_rank": 8}, r"kv_lora_rank \(8\) given, but attention is gqa"),
        (MLA, {"kv_lora_rank": 0}, "attention is mla, but kv_lora_rank is not given"),
        (MLA, {"sliding_window": 8}, r"sliding_window \(8\) given, but mla has none"),
        (MOE, {"topk": 0, "moe_ffn": 0}, "topk, moe_ffn are not given"),
        (MOE, {"topk": 9}, r"topk \(9\) exceeds experts \(8\)"),
        (MOE, {"dense_layers": 4}, r"dense_layers \(4\) leaves none of 4 layers"),
        (MOE, {"ffn": None}, "dense_layers is 1, but ffn is not given"),
        (MOE, {"router_groups": 4}, "must be given together"),
        (MOE, {"router_groups": 3, "router_topk_groups": 1}, r"router_groups \(3\)"),
        (MOE, {"router_groups": 4, "router_topk_groups": 5}, r"router_topk_groups \(5\) exceeds"),
        (MOE, {"router_groups": 8, "router_topk_groups": 1}, r"topk \(2\) exceeds the 1 experts"),
        (MOE, {"shared_expert_gate": True}, "shared_ffn is not given"),
        (DENSE, {"layer_pattern": ["swa"]}, "sliding_window is not given"),
        (DENSE, {"layer_pattern": ["full"], "sliding_window": 8}, "has no swa layer"),
        (DENSE, {"layer_pattern": ["gdn"]}, "gdn_key_heads, gdn_value_heads"),
        (DENSE, {"layer_pattern": ["full"] * 5}, "5 entries for 4 layers"),
        (DENSE, {"layer_pattern": []}, "layer_pattern"),
        (DENSE, GDN, "layer_pattern has no gdn layer"),
        (DENSE, {**GDN, "gdn_key_heads": 3, "layer_pattern": ["gdn"]}, "no multiple of"),
        (
            DENSE,
            {"layer_pattern": ["moe"]},
            "layer_pattern has moe layers, but experts is not given",
        ),
        (HYBRID, {"ffn": None}, "layer_pattern has mlp layers, but ffn is not given"),
        (
            {**HYBRID, "layer_pattern": ["mamba", "mlp"]},
            {},
            r"experts \(8\) given, but layer_pattern has no layer with experts",
        ),
        (
            HYBRID,
            {"dense_layers": 1},
            r"dense_layers \(1\) given, but layer_pattern has none of full, gdn, swa",
        ),
        (DENSE, {"mtp_repeated": True}, "mtp_repeated is true, but mtp_layers is 0"),
        (
            DENSE,
            {"attention_bias": True, "qkv_bias": True},
            r"qkv_bias \(True\) given, but attention_bias is true",
        ),
        (MLA, {"qkv_bias": True}, r"qkv_bias \(True\) given, but mla has none"),
        (DENSE, {"sources": {"layres": "x"}}, "'layres', which is no figure"),
        (
            DENSE,
            {"published": {"parameters_b": 1.0, "active_b": 2.0, "source": "x"}},
            r"active_b \(2.0\) exceeds",
        ),
        (
            DENSE,
            {"published": {"parameters_b": float("nan"), "active_b": 2.0, "source": "x"}},
            "parameters_b",
        ),
    ],
)
def test_contradictions_are_refused(
    base: dict[str, Any], change: dict[str, Any], message: str
) -> None:
    """Tests that figures which contradict each other are refused with both of them named."""
    with pytest.raises(ValidationError, match=message):
        ModelCard.model_validate({**base, **change})


def test_all_contradictions_are_told_at_once() -> None:
    """Tests that a person sees every contradiction in one go, not one a run."""
    with pytest.raises(ValidationError) as refusal:
        ModelCard.model_validate({**MOE, "kv_groups": 3, "topk": 9})
    assert "kv_groups (3)" in str(refusal.value)
    assert "topk (9)" in str(refusal.value)


def test_null_stands_for_an_absent_part() -> None:
    """Tests that null, as Hugging Face writes a q that is not compressed, is read as 0."""
    assert ModelCard.model_validate({**MLA, "q_lora_rank": None}).q_lora_rank == 0


def test_card_is_frozen_and_hashable() -> None:
    """Tests that a card cannot change after its check and can be the key of a cache."""
    card = ModelCard.model_validate(DENSE)
    with pytest.raises(ValidationError, match="frozen"):
        card.layers = 5
    assert hash(card) == hash(ModelCard.model_validate(DENSE))


def test_copy_with_other_layers_has_other_kinds() -> None:
    """Tests that the cache of the layer kinds does not leak into a changed copy."""
    card = ModelCard.model_validate(DENSE)
    assert len(card.layer_kinds) == 4
    assert len(card.model_copy(update={"layers": 7}).layer_kinds) == 7


def test_layer_kinds_of_deepseek_v3() -> None:
    """Tests that 3 dense layers come first, 58 MoE layers follow, and MTP copies the last."""
    card = load_card("deepseek-v3")
    dense, moe = LayerKind("mla", "dense"), LayerKind("mla", "moe")
    assert card.layer_kinds == (dense,) * 3 + (moe,) * 58
    assert card.kinds == (dense, moe)
    assert card.kind_counts == {dense: 3, moe: 58}
    assert card.mtp_kind == moe


def test_pattern_repeats_over_the_layers() -> None:
    """Tests that Qwen3-Next has a full-attention layer after every 3 gated delta nets: 12 of 48."""
    card = load_card("qwen3-next-80b-a3b")
    gdn, full = LayerKind("gdn", "moe"), LayerKind("gqa", "moe")
    assert card.layer_kinds == (gdn, gdn, gdn, full) * 12
    assert card.kind_counts == {gdn: 36, full: 12}


def test_window_without_a_pattern_spans_all_layers() -> None:
    """Tests that a window alone makes all 4 layers sliding-window layers."""
    card = ModelCard.model_validate({**DENSE, "sliding_window": 8})
    assert card.kind_counts == {LayerKind("swa", "dense"): 4}


def test_mamba_layer_has_no_mlp() -> None:
    """Tests that a Mamba layer stands without an MLP while its neighbours have theirs."""
    mamba = {f"mamba_{part}": 4 for part in ("heads", "head_dim", "state", "groups", "conv")}
    card = ModelCard.model_validate({**DENSE, **mamba, "layer_pattern": ["mamba", "full"]})
    assert card.kinds == (LayerKind("mamba", "none"), LayerKind("gqa", "dense"))
    assert [str(kind) for kind in card.kinds] == ["mamba", "gqa+dense"]


def test_layers_of_a_single_part() -> None:
    """Tests that attention, MLP and experts can each be a layer of their own, and read so."""
    card = ModelCard.model_validate(HYBRID)
    assert card.is_hybrid and not ModelCard.model_validate(MOE).is_hybrid
    assert card.layer_kinds == (
        LayerKind("mamba", "none"), LayerKind("gqa", "none"), LayerKind("none", "dense"),
        LayerKind("none", "moe"),
    )  # fmt: skip
    assert [str(kind) for kind in card.kinds] == ["mamba", "gqa", "dense", "moe"]


def test_kind_without_a_part_is_refused() -> None:
    """Tests that a layer must be something."""
    with pytest.raises(ValueError, match="both are 'none'"):
        LayerKind("none", "none")


def test_attention_alone_is_that_of_the_card() -> None:
    """Tests that ``attention`` stands for MLA in a model with MLA."""
    pattern = {"layer_pattern": ["attention", "mlp"]}
    card = ModelCard.model_validate({**MLA, **pattern})
    assert card.kinds == (LayerKind("mla", "none"), LayerKind("none", "dense"))


@pytest.mark.parametrize(
    ("base", "kind"), [(HYBRID, ("gqa", "moe")), (DENSE, ("gqa", "dense")), (MLA, ("mla", "dense"))]
)
def test_mtp_layer_of_a_hybrid_has_two_parts(
    base: dict[str, Any], kind: tuple[AttentionKind, MlpKind]
) -> None:
    """Tests that MTP is attention and experts, or an MLP without them, whatever comes last."""
    pattern = ["attention", "mlp", "moe", "mamba"] if "experts" in base else ["attention", "mlp"]
    card = ModelCard.model_validate({**base, "layer_pattern": pattern, "mtp_layers": 1})
    assert card.mtp_kind == LayerKind(*kind)


@pytest.mark.parametrize(
    ("layers", "repeated", "copies"), [(0, False, 0), (2, False, 2), (2, True, 1)]
)
def test_repeated_mtp_layers_have_one_copy_of_weights(
    layers: int, repeated: bool, copies: int
) -> None:
    """Tests how many MTP layers hold weights."""
    card = ModelCard.model_validate({**DENSE, "mtp_layers": layers, "mtp_repeated": repeated})
    assert card.mtp_copies == copies


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("nemotron-3-nano-30b-a3b", (23, 6, 0, 23)),
        ("nemotron-3.5-lightning-30b-a3b", (23, 6, 0, 23)),
        ("nemotron-3-super-120b-a12b", (40, 8, 0, 40)),
        ("nemotron-3-ultra-550b-a55b", (48, 12, 0, 48)),
        ("nemotron-3-nano-4b", (21, 4, 17, 0)),
        ("nemotron-h-56b", (54, 10, 54, 0)),
    ],
)
def test_layers_of_nemotron(name: str, counts: tuple[int, ...]) -> None:
    """Tests how many Mamba, attention, MLP and MoE layers the hybrid models have."""
    parts = (
        LayerKind("mamba", "none"), LayerKind("gqa", "none"), LayerKind("none", "dense"),
        LayerKind("none", "moe"),
    )  # fmt: skip
    found = load_card(name).kind_counts
    assert tuple(found.get(part, 0) for part in parts) == counts


def test_kinds_have_an_order() -> None:
    """Tests that kinds sort by attention, then MLP, so that reports are stable."""
    assert sorted(
        [LayerKind("mla", "moe"), LayerKind("gqa", "moe"), LayerKind("gqa", "dense")]
    ) == [
        LayerKind("gqa", "dense"),
        LayerKind("gqa", "moe"),
        LayerKind("mla", "moe"),
    ]


def test_widths_of_latent_attention() -> None:
    """Tests DeepSeek-V3: 128 heads of 128 + 64 for q and k, of 128 for v."""
    card = load_card("deepseek-v3")
    assert card.qk_head_dim == 192
    assert card.query_width == 128 * 192
    assert 2 * card.kv_width == 128 * (192 + 128)
    assert card.value_width == 128 * 128


def test_widths_of_grouped_attention() -> None:
    """Tests Qwen3-235B: 64 query heads and 4 KV groups of 128, wider than its hidden size."""
    card = load_card("qwen3-235b-a22b")
    assert (card.query_width, card.kv_width, card.value_width) == (8192, 512, 8192)
    assert card.query_width > card.hidden


@pytest.mark.parametrize(("tp", "padded"), [(1, 1024), (4, 1024), (8, 1024), (16, 2048)])
def test_vocabulary_is_padded_to_the_divisor_times_tp(tp: int, padded: int) -> None:
    """Tests 1,000 words: the next multiple of 128 * tp, which 1,024 is up to TP 8."""
    assert ModelCard.model_validate(DENSE).padded_vocab(tp) == padded


def test_shipped_cards_are_the_promised_ones() -> None:
    """Tests that all 34 models and two toys are there, each under its own name."""
    assert card_names() == (
        "deepseek-v3", "glm-4.5-air", "gpt-oss-120b", "gpt-oss-20b", "kimi-k2",
        "llama-3.1-405b", "llama-3.1-70b", "llama-3.1-8b", "mixtral-8x22b",
        "mixtral-8x7b", "moonlight-16b-a3b", "nemotron-3-nano-30b-a3b",
        "nemotron-3-nano-4b", "nemotron-3-super-120b-a12b", "nemotron-3-ultra-550b-a55b",
        "nemotron-3.5-lightning-30b-a3b", "nemotron-h-56b", "qwen1.5-moe-a2.7b",
        "qwen2-57b-a14b", "qwen2.5-14b", "qwen2.5-72b", "qwen2.5-7b", "qwen3-14b",
        "qwen3-235b-a22b", "qwen3-30b-a3b", "qwen3-32b", "qwen3-4b", "qwen3-8b",
        "qwen3-next-80b-a3b", "qwen3-vl-235b-a22b", "qwen3.5-122b-a10b",
        "qwen3.5-35b-a3b", "qwen3.5-397b-a17b", "qwen3.8-27b", "toy-dense", "toy-moe",
    )  # fmt: skip
    assert tuple(card.name for card in cards()) == card_names()


@pytest.mark.parametrize("name", card_names())
def test_every_figure_has_its_source(name: str) -> None:
    """Tests that each figure a shipped card states names where it comes from, and no other."""
    card = load_card(name)
    figures = card.model_fields_set - {"name", "title", "published", "sources"}
    assert set(card.sources) == figures
    assert all(card.sources.values())
    assert card.published is not None or name.startswith("toy-")


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("deepseek-v4", "Maybe you mean deepseek-v3"),
        ("deepseek-ai/DeepSeek_V3", "Maybe you mean deepseek-v3"),
        ("qwen", "Maybe you mean qwen3-"),
        ("../models/toy-moe", "Maybe you mean toy-moe"),
        ("zzz", "Maybe choose one of deepseek-v3, glm-4.5-air"),
        ("", "Maybe choose one of"),
    ],
)
def test_unknown_name_is_refused_with_the_nearest(name: str, advice: str) -> None:
    """Tests that a wrong name is one plain error that offers the nearest names."""
    with pytest.raises(InputError) as refusal:
        load_card(name)
    assert f"model {name!r}" in str(refusal.value)
    assert advice in str(refusal.value)
