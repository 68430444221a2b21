from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshplan.scenarios import InputError, from_mapping, load_card, resolve_model
from meshplan.scenarios.importers import import_model, model_from_config
from meshplan.scenarios.importers.hf_families import FAMILIES
from meshplan.scenarios.loader import load
from meshplan.scenarios.parameters import active_parameters, total_parameters
from tests.scenarios.importers.configs import (
    DEEPSEEK_V3,
    GEMMA2,
    GEMMA3_4B,
    GLM_4_5,
    GLM_5,
    GPT_OSS,
    KIMI_K2,
    MIXTRAL,
    MOONLIGHT,
    NEMOTRON_H,
    QWEN2,
    QWEN3,
    QWEN3_5,
    QWEN3_NEXT,
    Config,
    imported,
    llama,
    qwen3_moe,
)

ALL: dict[str, Config] = {
    "deepseek-v3": DEEPSEEK_V3,
    "kimi-k2": KIMI_K2,
    "moonlight-16b-a3b": MOONLIGHT,
    "mixtral-8x7b": MIXTRAL,
    "nemotron-3-nano-30b-a3b": NEMOTRON_H,
    "qwen2.5-7b": QWEN2,
    "qwen3-8b": QWEN3,
    "qwen3.5-397b-a17b": QWEN3_5,
    "gpt-oss-120b": GPT_OSS,
    "qwen3-next-80b-a3b": QWEN3_NEXT,
    "qwen3-235b-a22b": qwen3_moe(94, 4096, 64, 4, 1536),
    "qwen3-30b-a3b": qwen3_moe(48, 2048, 32, 4, 768),
    "llama-3.1-8b": llama(32, 4096, 14336, 32),
    "llama-3.1-70b": llama(80, 8192, 28672, 64),
    "llama-3.1-405b": llama(126, 16384, 53248, 128),
}
#: Not in a config.json, or (kv_channels of MLA) without any use.
NOT_IN_FILE = {"name", "title", "published", "sources", "vocab_divisor"}


@pytest.mark.parametrize("name", ALL)
def test_shipped_cards_come_back(name: str) -> None:
    """Tests that the config.json of each shipped card gives that card, figure by figure."""
    card, made = load_card(name), imported(ALL[name], name).card
    without = NOT_IN_FILE | ({"head_dim"} if card.attention == "mla" else set())
    assert made.model_dump(exclude=without) == card.model_dump(exclude=without)
    assert total_parameters(made) == total_parameters(card)


@pytest.mark.parametrize(
    ("config", "total_b", "active_b"),
    [
        (MIXTRAL, 46.70, 12.88),  # Mixtral 8x7B: announced with 46.7 B and 12.9 B
        (GLM_4_5, 352.8, 33.1),  # GLM-4.5: 355 B and 32 B, MTP layer included
        (GLM_5, 742.4, 40.9),  # GLM-5: 743.2 B with 0.7 B in its indexers
        (QWEN3_5, 396.3, 17.4),  # Qwen3.5-397B-A17B without vision and MTP
        (QWEN2, 7.62, 7.62),  # Qwen2.5-7B: 7.61 B
        (QWEN3, 8.19, 8.19),  # Qwen3-8B: 8.2 B
        (GEMMA2, 9.24, 9.24),  # Gemma 2 9B: 9.24 B
        (GEMMA3_4B, 3.88, 3.88),  # Gemma 3 4B: 3.88 B without its vision part
    ],
    ids=lambda value: value["model_type"] if isinstance(value, dict) else "",
)
def test_sizes_are_the_announced_ones(config: Config, total_b: float, active_b: float) -> None:
    """Tests parameter counts of imported models against what their makers announced, within 0.5 %.

    Active parameters count as the card's own do, which differs a little from some makers' way.
    """
    card = imported(config).card
    assert total_parameters(card) / 1e9 == pytest.approx(total_b, rel=5e-3)
    assert active_parameters(card) / 1e9 == pytest.approx(active_b, rel=5e-2)


def test_layers_that_differ() -> None:
    """Tests layer patterns: gemma 3 has five windows to one full layer, gemma 2 one to one."""
    assert imported(GEMMA3_4B).card.layer_pattern == ("swa",) * 5 + ("full",)
    assert imported(GEMMA3_4B).card.sliding_window == 1024
    assert imported(GEMMA2).card.layer_pattern == ("swa", "full")
    card = imported(QWEN3_5).card
    assert card.layer_pattern == ("gdn", "gdn", "gdn", "full")
    assert card.kind_counts[card.layer_kinds[0]] == 45  # 60 layers, three of four
    window = {**QWEN2, "use_sliding_window": True, "max_window_layers": 14}
    assert imported(window).card.layer_pattern == ("full",) * 14 + ("swa",) * 14


def test_notes_tell_what_was_decided() -> None:
    """Tests that defaults, uncounted parts, MTP layers, vision and quantisation are told."""
    told = "\n".join(imported(GEMMA3_4B).notes)
    assert "vocab_size not given: 262208, the default of gemma3_text" in told
    assert "only the language model" in told
    assert "5120 parameters in each layer" in told  # two norms of 2560
    told = "\n".join(imported(DEEPSEEK_V3).notes)
    assert "num_nextn_predict_layers is 1" in told and "quantised" in told
    assert imported(DEEPSEEK_V3).approximations == ()


def test_hybrid_patterns_in_letters_and_in_words() -> None:
    """Tests that Nemotron's layers are read from either form, and MTP layers with two parts."""
    words = {"M": "mamba", "E": "moe", "*": "attention"}
    letters = NEMOTRON_H["hybrid_override_pattern"]
    spelt = {key: value for key, value in NEMOTRON_H.items() if key != "hybrid_override_pattern"}
    del spelt["num_hidden_layers"]
    spelt["layers_block_type"] = [words[letter] for letter in letters]
    assert imported(spelt).card == imported(NEMOTRON_H).card
    prediction = {"num_nextn_predict_layers": 1, "mtp_hybrid_override_pattern": "*E"}
    model = imported({**NEMOTRON_H, **prediction, "moe_latent_size": 1024})
    assert (model.card.mtp_layers, model.card.moe_latent) == (1, 1024)
    assert any("mtp_repeated" in note for note in model.notes)
    dense = {**NEMOTRON_H, "hybrid_override_pattern": "M-M*", "num_hidden_layers": 4}
    assert (imported(dense).card.ffn, imported(dense).card.experts) == (1856, 0)


def test_sparse_attention_is_said(tmp_path: Path) -> None:
    """Tests that GLM-5 imports with a word on its indexer, and that a scenario refuses to hide it.

    An indexer of 32 heads of 128 has 2048*32*128 + 6144*(128+32) + 256 = 9.4 M parameters.
    """
    (said,) = imported(GLM_5).approximations
    assert "index_topk 2048" in said and "9.4 M parameters" in said
    (tmp_path / "config.json").write_text(json.dumps(GLM_5), "utf-8")
    with pytest.raises(InputError, match=r"holds only in part.*sparse attention") as caught:
        resolve_model(load(_scenario(tmp_path)))
    assert "meshplan import model" in (caught.value.advice or "")
    without = {key: value for key, value in GLM_5.items() if key != "index_n_heads"}
    with pytest.raises(InputError, match="index_n_heads is missing"):
        imported(without)  # its class has sparse attention whatever the file says


def _scenario(folder: Path) -> Path:
    path = folder / "case.yaml"
    path.write_text(
        "meshplan: 1\nname: case\nmodel: {huggingface: config.json}\n"
        "cluster: {preset: h100-hgx, gpus: 256}\n"
        "workload: {seq_len: 4096, global_batch_size: 256}\n",
        "utf-8",
    )
    return path


def test_scenario_names_a_config(tmp_path: Path) -> None:
    """Tests that ``model: {huggingface: ...}`` is read from the folder of the scenario."""
    (tmp_path / "config.json").write_text(json.dumps(KIMI_K2), "utf-8")
    card = resolve_model(load(_scenario(tmp_path)))
    assert (card.experts, card.layers, card.dense_layers) == (384, 61, 1)
    (tmp_path / "config.json").write_text('{"model_type": "rwkv"}', "utf-8")
    with pytest.raises(InputError, match="model_type is 'rwkv'") as caught:
        resolve_model(load(_scenario(tmp_path)))
    assert (caught.value.file, caught.value.line) == (str(tmp_path / "case.yaml"), 3)


def test_figures_fit_into_a_scenario() -> None:
    """Tests that the printed card, put under ``model:``, is the imported card."""
    model = imported(QWEN3_NEXT)
    scenario = from_mapping(
        {
            "meshplan": 1,
            "name": "case",
            "model": model.figures(),
            "cluster": {"preset": "h100-hgx", "gpus": 64},
            "workload": {"seq_len": 4096, "global_batch_size": 64},
        }
    )
    assert resolve_model(scenario) == model.card


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model_type": "falcon"}, "model_type is 'falcon': no architecture that is known"),
        ({"model_type": None, "architectures": None}, "model_type is missing"),
        ({"architectures": ["LlamaForCausalLM"]}, "model_type is 'deepseek_v3', but arch"),
        ({"model_type": None, "architectures": ["Own"]}, "architectures is the list ['Own']"),
        ({"hidden_size": None}, "hidden_size is missing, which deepseek_v3 needs (hidden size)"),
        ({"hidden_size": "7168"}, "hidden_size is '7168', but must be an integer"),
        ({"hidden_size": 7168.0}, "hidden_size is 7168.0"),
        ({"hidden_size": True}, "hidden_size is true"),
        ({"num_hidden_layers": -1}, "num_hidden_layers is -1"),
        ({"vocab_size": 10**9}, "vocab_size is 1000000000"),
        ({"moe_layer_freq": 2}, "moe_layer_freq is 2, which a model card cannot hold"),
        ({"attention_bias": True}, "attention_bias is true, which a model card cannot hold"),
        ({"num_experts_per_tok": 300}, "topk (300) exceeds experts (256)"),
        ({"num_experts_per_tok": 300}, "config.json: the model card: topk"),
        ({"tie_word_embeddings": "no"}, "tie_word_embeddings is 'no', but must be true or false"),
        ({"n_group": 7}, "no multiple of router_groups (7)"),
        ({"first_k_dense_replace": None}, "first_k_dense_replace is missing"),
    ],
)
def test_slips_are_refused(change: dict[str, Any], words: str) -> None:
    """Tests that a missing, wrong or contradicting field is refused by name and value."""
    config = {key: value for key, value in {**DEEPSEEK_V3, **change}.items() if value is not None}
    with pytest.raises(InputError) as caught:
        imported(config)
    assert words in str(caught.value)
    assert caught.value.advice or "Maybe" in str(caught.value)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({**qwen3_moe(48, 2048, 32, 4, 768), "decoder_sparse_step": 2}, "decoder_sparse_step is 2"),
        ({**qwen3_moe(48, 2048, 32, 4, 768), "mlp_only_layers": [5]}, "dense layers first"),
        ({**GPT_OSS, "layer_types": ["full_attention"]}, "layer_types has 1 entries"),
        ({**GPT_OSS, "layer_types": ["x"] * 36}, "layer_types names 'x'"),
        ({**MIXTRAL, "num_key_value_heads": 5}, r"heads \(32\) is no .* num_key_value_heads \(5\)"),
        ({**GPT_OSS, "layer_types": 7}, "layer_types is 7, but must be a list"),
        ({**MIXTRAL, "num_attention_heads": 30, "num_key_value_heads": 6}, "head_dim is missing"),
        ({**NEMOTRON_H, "hybrid_override_pattern": None}, "hybrid_override_pattern is missing"),
        ({**NEMOTRON_H, "hybrid_override_pattern": "MX"}, "hybrid_override_pattern names 'X'"),
        ({**NEMOTRON_H, "hybrid_override_pattern": ""}, "has 0 layers"),
        ({**NEMOTRON_H, "hybrid_override_pattern": "ME"}, "is 52, but the pattern has 2 layers"),
        ({**NEMOTRON_H, "mlp_hidden_act": "silu"}, "mlp_hidden_act is 'silu'"),
        ({**NEMOTRON_H, "mamba_proj_bias": True}, "mamba_proj_bias is true"),
        ({**NEMOTRON_H, "num_nextn_predict_layers": 1}, "an MTP layer is not given"),
        ({"architectures": ["Llama4ForConditionalGeneration"]}, "alternate"),
        ({"model_type": "llama4", "text_config": {"model_type": "llama4_text"}}, "alternate"),
        ({"model_type": "llava", "text_config": llama(1, 64, 64, 8)}, "model_type is 'llava'"),
        ({"model_type": "gemma3", "text_config": llama(1, 64, 64, 8)}, "several architectures"),
    ],
)
def test_what_a_card_cannot_hold_is_refused(config: Config, words: str) -> None:
    """Tests refusals of layers in another order, and of architectures that a card cannot hold."""
    with pytest.raises(InputError, match=words):
        imported(config)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "malformed JSON"),
        ("[1, 2]", "is an object"),
        ("null", "the file holds null, but"),
        ("{", "malformed JSON"),
        ('{"a": 1, "a": 2}', "'a' stands twice"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a": ' + "9" * 5000 + "}", "malformed JSON"),
        ("\0", "NUL"),
        (" " * (1 << 20) + "{}", "longer than"),
    ],
)
def test_hostile_text_is_refused(text: str, words: str) -> None:
    """Tests that broken, deep, huge or binary text is refused in words."""
    with pytest.raises(InputError, match=words):
        model_from_config(text, "config.json")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    """Tests that a missing file, a folder, bytes that are no text and 2 MiB are refused."""
    binary, large = tmp_path / "binary", tmp_path / "large"
    binary.write_bytes(b'{"a":\n"\xff"}')
    large.write_bytes(b" " * (2 << 20))
    for path, words in (
        (tmp_path / "none", "does not exist"),
        (tmp_path, "is a folder"),
        (binary, "0xff at offset 7 is not UTF-8"),
        (large, "larger than 1048576 bytes"),
        ("a\0b", "not a possible path"),
    ):
        with pytest.raises(InputError, match=words):
            import_model(path)


def test_name_of_the_card(tmp_path: Path) -> None:
    """Tests that the name comes from the option, the file, its folder, or the architecture."""
    folder = tmp_path / "Kimi_K2-Instruct"
    folder.mkdir()
    path = folder / "config.json"
    path.write_text(json.dumps(KIMI_K2), "utf-8")
    assert import_model(path).card.name == "kimi-k2-instruct"
    assert import_model(path, "mine").card.name == "mine"
    path.write_text(json.dumps({**KIMI_K2, "_name_or_path": "moonshotai/Kimi-K2/"}), "utf-8")
    assert import_model(path).card.name == "kimi-k2"
    assert model_from_config(json.dumps(KIMI_K2)).card.name == "deepseek-v3"


KEYS = sorted({key for config in ALL.values() for key in config} | set(QWEN3_5["text_config"]))
VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-5, 5000)
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.lists(st.sampled_from(["full_attention", "sliding_attention", "dense"]), max_size=5)
    | st.dictionaries(st.sampled_from(KEYS), st.integers(0, 99), max_size=3)
)


@given(
    st.sampled_from([*ALL.values(), GLM_5, GLM_4_5, GEMMA3_4B]),
    st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=4),
    st.lists(st.sampled_from(KEYS), max_size=3),
)
def test_changed_configs_import_or_are_refused(
    config: Config, changes: dict[str, Any], removed: list[str]
) -> None:
    """Tests that whatever a field holds, the outcome is a card or an InputError."""
    changed = {k: v for k, v in {**config, **changes}.items() if k not in removed}
    try:
        model = imported(changed)
    except InputError as error:
        assert str(error)
    else:
        assert model.card.layers >= 1


@given(st.text(max_size=200) | st.binary(max_size=200).map(lambda b: b.decode("latin-1")))
def test_any_text_is_refused_in_words(text: str) -> None:
    """Tests that no text makes the reader fail in another way than by InputError."""
    with pytest.raises(InputError):
        model_from_config(text)


def test_every_family_is_tested() -> None:
    """Tests that no family is added without a configuration here."""
    tested = {imported(config).family for config in ALL.values()}
    tested |= {imported(c).family for c in (GLM_5, GLM_4_5)}
    tested |= {imported(c).family for c in (GEMMA2, GEMMA3_4B)}
    dense = {
        **QWEN3_5,
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        "model_type": "qwen3_5",
        "text_config": {
            **QWEN3_5["text_config"],
            "model_type": "qwen3_5_text",
            "intermediate_size": 17408,
        },
    }
    tested.add(imported(dense).family)
    assert imported(dense).card.is_moe is False
    gemma = {**GEMMA2, "model_type": "gemma", "architectures": ["GemmaForCausalLM"]}
    assert imported(gemma).card.sliding_window is None
    tested.add(imported(gemma).family)
    for kind, architecture in (
        ("deepseek_v2", "DeepseekV2ForCausalLM"),
        ("deepseek_v32", "DeepseekV32ForCausalLM"),
    ):
        tested.add(imported({**GLM_5, "model_type": kind, "architectures": [architecture]}).family)
    assert tested == {family.model_type for family in FAMILIES}
