"""Which field of a Hugging Face configuration is which figure of a model card, by architecture.

Field names and defaults: ``configuration_*.py``, biases and norms: ``modeling_*.py`` of
huggingface/transformers v5.24 ``src/transformers/models``.  A field has a default here only where
the architecture's own class documents one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from meshplan.scenarios.importers.hf_config import Fields
from meshplan.scenarios.importers.hf_hybrid import nemotron_h
from meshplan.scenarios.importers.hf_parts import (
    Figures,
    common,
    dense_ffn,
    every_nth,
    grouped_experts,
    grouped_query,
    head_dim,
    layer_pattern,
    mtp_layers,
    qkv_bias,
    qwen_experts,
    qwen_window,
    windows,
)


@dataclass(frozen=True)
class Family:
    """One architecture: its names, and how its fields become figures.

    Attributes
    ----------
    model_type
        ``model_type`` of the part of the file that holds the decoder.
    architectures
        ``architectures`` of files with this decoder.
    read
        Figures of a card, without its name.
    others
        Further ``model_type`` of the same decoder; those of wrappers with a ``text_config``, too.
    """

    model_type: str
    architectures: tuple[str, ...]
    read: Callable[[Fields], Figures]
    others: tuple[str, ...] = ()


# -- architectures -----------------------------------------------------------------------------


def _llama(fields: Fields) -> Figures:
    figures = common(fields)
    grouped_query(fields, figures, groups_default=True)
    head_dim(fields, figures)
    dense_ffn(fields, figures)
    figures["attention_bias"] = fields.flag("attention_bias", False)
    figures["mlp_bias"] = fields.flag("mlp_bias", False)
    return figures


def _mixtral(fields: Fields) -> Figures:
    figures = common(fields)
    grouped_query(fields, figures)
    head_dim(fields, figures)
    figures["experts"] = fields.whole("num_local_experts", "experts")
    figures["topk"] = fields.whole("num_experts_per_tok", "experts per token")
    figures["moe_ffn"] = fields.whole("intermediate_size", "FFN width of an expert")
    if window := fields.optional("sliding_window", "window"):
        figures["sliding_window"] = window
    return figures


def _qwen2(fields: Fields) -> Figures:
    figures = common(fields)
    grouped_query(fields, figures)
    head_dim(fields, figures)
    dense_ffn(fields, figures)
    qkv_bias(figures)
    qwen_window(fields, figures)
    return figures


def _qwen3(fields: Fields) -> Figures:
    figures = common(fields)
    grouped_query(fields, figures)
    figures["head_dim"] = fields.whole("head_dim", "head dimension", default=128)
    dense_ffn(fields, figures)
    figures["qk_norm"] = True
    figures["attention_bias"] = fields.flag("attention_bias", False)
    qwen_window(fields, figures)
    return figures


def _qwen3_moe(fields: Fields) -> Figures:
    figures = common(fields)
    grouped_query(fields, figures)
    head_dim(fields, figures)
    figures["qk_norm"] = True
    figures["attention_bias"] = fields.flag("attention_bias", False)
    qwen_experts(fields, figures)
    window = fields.optional("sliding_window", "window")
    if window and fields.flag("use_sliding_window", False):
        figures["sliding_window"] = window
    return figures


def _delta_net(fields: Fields) -> Figures:
    """Gated delta nets with a gated full attention now and then (Qwen3-Next, Qwen3.5)."""
    figures = common(fields)
    grouped_query(fields, figures)
    figures["head_dim"] = fields.whole("head_dim", "head dimension", default=256)
    figures["qk_norm"] = True
    fields.only("attn_output_gate", (True,), "full attention without its output gate")
    figures["attention_output_gate"] = True
    figures["attention_bias"] = fields.flag("attention_bias", False)
    every = fields.optional("full_attention_interval", "layers from one full attention to the next")
    default = every_nth(every or 4, figures["layers"], "linear_attention")
    layer_pattern(fields, figures, {"linear_attention": "gdn", "full_attention": "full"}, default)
    if "gdn" in figures.get("layer_pattern", ()):
        figures["gdn_key_heads"] = fields.whole("linear_num_key_heads", "key heads")
        figures["gdn_value_heads"] = fields.whole("linear_num_value_heads", "value heads")
        figures["gdn_key_dim"] = fields.whole("linear_key_head_dim", "key head dim")
        figures["gdn_value_dim"] = fields.whole("linear_value_head_dim", "value head dim")
        figures["gdn_conv"] = fields.whole("linear_conv_kernel_dim", "convolution width")
    mtp_layers(fields, figures, "mtp_num_hidden_layers")
    return figures


def _delta_net_moe(fields: Fields) -> Figures:
    figures = _delta_net(fields)
    qwen_experts(fields, figures)
    shared = fields.optional("shared_expert_intermediate_size", "width of shared experts", low=0)
    if shared:
        figures["shared_ffn"] = shared
        figures["shared_expert_gate"] = True
    return figures


def _delta_net_dense(fields: Fields) -> Figures:
    figures = _delta_net(fields)
    dense_ffn(fields, figures)
    return figures


def _gpt_oss(fields: Fields) -> Figures:
    figures = common(fields)
    grouped_query(fields, figures)
    figures["head_dim"] = fields.whole("head_dim", "head dimension", default=64)
    figures["attention_bias"] = fields.flag("attention_bias", True)
    figures["attention_sinks"] = True
    figures["mlp_bias"] = True
    figures["experts"] = fields.whole("num_local_experts", "experts")
    figures["topk"] = fields.whole("num_experts_per_tok", "experts per token")
    figures["moe_ffn"] = fields.whole("intermediate_size", "FFN width of an expert")
    windows(fields, figures, every_nth(2, figures["layers"], "sliding_attention"))
    return figures


def _glm4_moe(fields: Fields) -> Figures:
    figures = common(fields)
    grouped_query(fields, figures)
    head_dim(fields, figures)
    figures["qk_norm"] = fields.flag("use_qk_norm", False)
    if fields.flag("attention_bias", False):
        qkv_bias(figures)
    grouped_experts(fields, figures)
    mtp_layers(fields, figures, "num_nextn_predict_layers", "num_mtp_layers")
    return figures


def _mla(fields: Fields) -> Figures:
    """Multi-head latent attention with grouped experts (DeepSeek-V2 and V3, Kimi-K2, GLM-5)."""
    figures = common(fields)
    figures["attention"] = "mla"
    figures["kv_groups"] = figures["heads"]  # MLA decompresses its latent for every head
    if "q_lora_rank" not in fields.data:
        raise fields.refuse(
            "q_lora_rank", "q_lora_rank is missing", "add it; null if q is not compressed."
        )
    figures["q_lora_rank"] = fields.optional("q_lora_rank", "rank of the query latent") or 0
    figures["kv_lora_rank"] = fields.whole("kv_lora_rank", "rank of the KV latent")
    figures["qk_nope_head_dim"] = fields.whole("qk_nope_head_dim", "q/k dim without RoPE")
    figures["qk_rope_head_dim"] = fields.whole("qk_rope_head_dim", "q/k dim with RoPE")
    figures["v_head_dim"] = fields.whole("v_head_dim", "head dimension of values")
    figures["head_dim"] = figures["v_head_dim"]  # unused in MLA
    figures["qk_norm"] = True
    fields.only("attention_bias", (False,), "MLA with biases")
    grouped_experts(fields, figures)
    mtp_layers(fields, figures, "num_nextn_predict_layers", "num_mtp_layers")
    if (heads := fields.optional("index_n_heads", "indexer heads")) is not None:
        _sparse_attention(fields, figures, heads)
    return figures


def _dsa(fields: Fields) -> Figures:
    fields.whole("index_n_heads", "heads of the indexer")  # its class has sparse attention always
    return _mla(fields)


def _sparse_attention(fields: Fields, figures: Figures, heads: int) -> None:
    """DeepSeek sparse attention: said, as the card has nothing for it."""
    dim = fields.whole("index_head_dim", "indexer head dimension")
    topk = fields.whole("index_topk", "tokens that the indexer keeps")
    hidden = figures["hidden"]
    count = (figures["q_lora_rank"] or hidden) * heads * dim + hidden * (dim + heads) + 2 * dim
    fields.approximations.append(
        f"DeepSeek sparse attention (index_topk {topk}) is taken as full MLA attention: the "
        f"indexer's {count / 1e6:.1f} M parameters a layer are not counted, and attention to more "
        f"than {topk} tokens costs more time in the card than in the model"
    )


def _gemma(fields: Fields) -> Figures:
    figures = common(fields, tied=True)
    grouped_query(fields, figures)
    figures["head_dim"] = fields.whole("head_dim", "head dimension", default=256)
    dense_ffn(fields, figures)
    figures["attention_bias"] = fields.flag("attention_bias", False)
    return figures


def _gemma2(fields: Fields) -> Figures:
    figures = _gemma(fields)
    windows(fields, figures, every_nth(2, figures["layers"], "sliding_attention"))
    _post_norms(fields, figures)
    return figures


def _gemma3(fields: Fields) -> Figures:
    # The published files leave out what equals the default of Gemma3TextConfig.
    known = {"vocab_size": 262_208, "num_attention_heads": 8, "num_key_value_heads": 4}
    for key, value in known.items():
        if fields.value(key) is None:
            fields.data = {**fields.data, key: value}
            fields.notes.append(f"{key} not given: {value}, the default of {fields.family}")
    figures = _gemma(fields)
    figures["qk_norm"] = True
    every = fields.whole("sliding_window_pattern", "layers from one full attention to the next",
                         default=6) if fields.value("layer_types") is None else 6  # fmt: skip
    windows(fields, figures, every_nth(every, figures["layers"], "sliding_attention"))
    _post_norms(fields, figures)
    return figures


def _post_norms(fields: Fields, figures: Figures) -> None:
    fields.notes.append(
        "the norms behind attention and MLP are not counted: "
        f"{2 * figures['hidden']} parameters in each layer"
    )


FAMILIES: tuple[Family, ...] = (
    Family("llama", ("LlamaForCausalLM",), _llama),
    Family("mixtral", ("MixtralForCausalLM",), _mixtral),
    Family("qwen2", ("Qwen2ForCausalLM",), _qwen2),
    Family("qwen3", ("Qwen3ForCausalLM",), _qwen3),
    Family("qwen3_moe", ("Qwen3MoeForCausalLM",), _qwen3_moe),
    Family("qwen3_next", ("Qwen3NextForCausalLM",), _delta_net_moe),
    Family(
        "qwen3_5_text",
        ("Qwen3_5ForConditionalGeneration", "Qwen3_5ForCausalLM"),
        _delta_net_dense,
        ("qwen3_5",),
    ),
    Family(
        "qwen3_5_moe_text",
        ("Qwen3_5MoeForConditionalGeneration", "Qwen3_5MoeForCausalLM"),
        _delta_net_moe,
        ("qwen3_5_moe",),
    ),
    Family("gpt_oss", ("GptOssForCausalLM",), _gpt_oss),
    Family("glm4_moe", ("Glm4MoeForCausalLM",), _glm4_moe),
    Family("glm_moe_dsa", ("GlmMoeDsaForCausalLM",), _dsa),
    Family("nemotron_h", ("NemotronHForCausalLM",), nemotron_h),
    Family("deepseek_v2", ("DeepseekV2ForCausalLM",), _mla),
    Family("deepseek_v3", ("DeepseekV3ForCausalLM",), _mla, ("kimi_k2",)),
    Family("deepseek_v32", ("DeepseekV32ForCausalLM",), _dsa),
    Family("gemma", ("GemmaForCausalLM",), _gemma),
    Family("gemma2", ("Gemma2ForCausalLM",), _gemma2),
    Family(
        "gemma3_text",
        ("Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"),
        _gemma3,
        ("gemma3",),
    ),
)

#: Architectures that are known, but that a model card cannot hold, and why.
CANNOT: dict[str, str] = {
    "llama4_text": "its layers with and without experts alternate",
    "llama4": "its layers with and without experts alternate",
    "gemma4_text": "its full-attention layers have other heads than its windows",
    "gemma4": "its full-attention layers have other heads than its windows",
    "deepseek_v4": "its attention is neither GQA nor MLA",
}
ARCHITECTURES_THAT_CANNOT = {
    "Llama4ForConditionalGeneration": "llama4",
    "Gemma4ForConditionalGeneration": "gemma4",
    "DeepseekV4ForCausalLM": "deepseek_v4",
}

__all__ = ["ARCHITECTURES_THAT_CANNOT", "CANNOT", "FAMILIES", "Family", "Figures"]
