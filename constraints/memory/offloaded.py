"""Activations that fine-grained offload keeps in host memory, in quanta.

A module's saved input travels to the host after its forward pass and back before its backward
pass, except in the last layer, which needs it at once.  So the GPU holds those of two layers: the
last one's and the ones under way.  Source: Megatron-LM d98e8a64
``core/pipeline_parallel/fine_grained_activation_offload.py``.
"""

from __future__ import annotations

from functools import lru_cache

from meshplan.constraints.memory.activations import expert_widths, routed_copies
from meshplan.constraints.memory.formats import input_bytes
from meshplan.constraints.memory.inputs import core_inputs, lone_input_norm, lone_mlp_norm
from meshplan.constraints.problem import Problem, quanta
from meshplan.scenarios.model_card import LayerKind

#: Layers whose offloaded tensors are on the GPU nevertheless.
_STAGED_LAYERS = 2


@lru_cache(maxsize=65536)
def offloaded_activation(
    problem: Problem,
    kind: LayerKind,
    tp: int,
    attention_tokens: int,
    ep: int,
    etp: int,
    rc_layernorm: int,
    rc_mla_up_proj: int,
    rc_moe: int,
    rc_full: int,
) -> int:
    """What one layer and micro-batch keeps on the host, as if no CUDA graph kept it from that."""
    modules = problem.training.activation_offload
    if not modules or rc_full:
        return 0
    card, width = problem.model, input_bytes(problem)
    shard = attention_tokens / problem.sequence_shards(tp)
    total = 0.0
    if lone_input_norm(kind):
        total += shard * 2 * card.hidden * ("attn_norm" in modules)
        if not rc_layernorm:  # that discards the norm's output
            total += shard * width * card.hidden * ("qkv_linear" in modules)
    elif kind.attention in ("gqa", "swa"):
        total += shard * (2 + width) * card.hidden * ("qkv_linear" in modules)
    if kind.attention in ("gqa", "swa", "mla"):
        if "core_attn" in modules and not (kind.attention == "mla" and rc_mla_up_proj):
            total += attention_tokens * core_inputs(problem, tp)
        out = width if problem.is_fp8 else 2.0
        total += attention_tokens / tp * out * card.value_width * ("attn_proj" in modules)
    if lone_mlp_norm(kind):
        total += shard * 2 * card.hidden * ("mlp_norm" in modules)
    if kind.mlp == "moe" and not rc_moe:
        latent, ffn = expert_widths(problem, etp)
        copies = routed_copies(problem, -(-attention_tokens // tp), ep, etp)
        total += copies * width * latent * ("expert_fc1" in modules)
        total += copies * 2 * (2 if card.gated else 1) * ffn * ("moe_act" in modules)
    return quanta(total)


@lru_cache(maxsize=65536)
def offload_staging(
    problem: Problem,
    tp: int,
    attention_tokens: int,
    ep: int,
    etp: int,
    rc_layernorm: int,
    rc_mla_up_proj: int,
    rc_moe: int,
    rc_full: int,
) -> int:
    """Offloaded tensors that are on the GPU at the peak: the last layer's and those under way."""
    return _STAGED_LAYERS * max(
        offloaded_activation(
            problem,
            kind,
            tp,
            attention_tokens,
            ep,
            etp,
            rc_layernorm,
            rc_mla_up_proj,
            rc_moe,
            rc_full,
        )
        for kind in problem.cost_kinds
    )
