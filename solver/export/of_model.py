"""Flags of Megatron-LM for the model itself, from its card."""

from __future__ import annotations

from collections.abc import Iterator

from meshplan.scenarios.model_card import ModelCard
from meshplan.solver.export.setting import flag


def model_words(model: ModelCard) -> tuple[str, ...]:
    """The flags of a model: layers, widths, attention, experts."""
    parts = (_body(model), _attention(model), _delta_net(model), _experts(model))
    return tuple(word for part in parts for words in part for word in words)


def _body(model: ModelCard) -> Iterator[tuple[str, ...]]:
    yield flag("num-layers", model.layers)
    yield flag("hidden-size", model.hidden)
    yield flag("vocab-size", model.vocab)
    yield flag("make-vocab-size-divisible-by", model.vocab_divisor)
    if model.ffn is not None:
        yield flag("ffn-hidden-size", model.ffn)
    if model.gated:
        yield flag("swiglu")
    if not model.tied_embeddings:
        yield flag("untie-embeddings-and-output-weights")
    if not model.mlp_bias:
        yield flag("disable-bias-linear")
    if model.mtp_layers:
        yield flag("mtp-num-layers", model.mtp_layers)


def _attention(model: ModelCard) -> Iterator[tuple[str, ...]]:
    yield flag("num-attention-heads", model.heads)
    yield flag("kv-channels", model.head_dim)
    if model.attention == "mla":
        yield flag("multi-latent-attention")
        yield flag("kv-lora-rank", model.kv_lora_rank)
        if model.q_lora_rank:
            yield flag("q-lora-rank", model.q_lora_rank)
        yield flag("qk-head-dim", model.qk_nope_head_dim)
        yield flag("qk-pos-emb-head-dim", model.qk_rope_head_dim)
        yield flag("v-head-dim", model.v_head_dim)
    else:
        yield flag("group-query-attention")
        yield flag("num-query-groups", model.kv_groups)
    if model.attention_bias:
        yield flag("add-qkv-bias")
    if model.attention_sinks:
        yield flag("softmax-type", "learnable")
    if model.attention_output_gate:
        yield flag("attention-output-gate")


def _delta_net(model: ModelCard) -> Iterator[tuple[str, ...]]:
    kinds = [kind.attention for kind in model.layer_kinds]
    if "gdn" not in kinds:
        return
    yield flag("experimental-attention-variant", "gated_delta_net")
    frequency = ",".join(str(int(kind == "gdn")) for kind in kinds)
    yield flag("linear-attention-freq", f"[{frequency}]")
    yield flag("linear-num-key-heads", model.gdn_key_heads)
    yield flag("linear-num-value-heads", model.gdn_value_heads)
    yield flag("linear-key-head-dim", model.gdn_key_dim)
    yield flag("linear-value-head-dim", model.gdn_value_dim)


def _experts(model: ModelCard) -> Iterator[tuple[str, ...]]:
    if not model.is_moe:
        return
    yield flag("num-experts", model.experts)
    yield flag("moe-router-topk", model.topk)
    yield flag("moe-ffn-hidden-size", model.moe_ffn)
    if model.topk == 1:  # softmax over one expert alone would have no gradient
        yield flag("moe-router-pre-softmax")
    if model.dense_layers:
        frequency = f"([0]*{model.dense_layers}+[1]*{model.layers - model.dense_layers})"
        yield flag("moe-layer-freq", frequency)
    if model.shared_ffn is not None:
        yield flag("moe-shared-expert-intermediate-size", model.shared_ffn)
    if model.shared_expert_gate:
        yield flag("moe-shared-expert-gate")
    if model.router_groups is not None:
        yield flag("moe-router-num-groups", model.router_groups)
        yield flag("moe-router-group-topk", model.router_topk_groups)


__all__ = ["model_words"]
