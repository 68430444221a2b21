"""Activations that one layer saves for one micro-batch, under the chosen recompute, in quanta.

bf16 with flash attention; inputs of linear layers in the compute precision.  Checked against
published allocator figures in the project's memory notes; linear-attention layers are derived
from the tensors that the layer saves and are estimates.  Sources: Megatron-LM d98e8a64
``core/transformer`` (``attention.py``, ``multi_latent_attention.py``, ``moe/``,
``transformer_config.py`` recompute modules); arXiv 2205.05198; arXiv 2603.07685.
"""

from __future__ import annotations

from functools import lru_cache

from meshplan.constraints.memory.formats import input_bytes
from meshplan.constraints.problem import Problem, quanta
from meshplan.scenarios.model_card import LayerKind

#: Width of the chunks in which gated delta net keeps its recurrent state.
_GDN_CHUNK = 64


def _attention_saved(
    problem: Problem,
    kind: LayerKind,
    tp: int,
    tokens: int,
    *,
    layernorm: bool,
    mla_up_proj: bool,
) -> float:
    """Bytes saved by norm 1, attention and the residual after it."""
    card, width = problem.model, input_bytes(problem)
    h = card.hidden
    shard = tokens / tp  # sequence parallelism shards everything outside attention and MLP
    saved = shard * 2 * h + shard * 2 * h  # layer input, residual after attention
    norm_out = shard * width * h
    if kind.attention == "mla":
        saved += _mla_saved(problem, tp, tokens, mla_up_proj=mla_up_proj)
        saved += 0 if layernorm else norm_out
        return saved
    saved += norm_out  # fused into the QKV projection: never discarded
    if kind.attention in ("gdn", "mamba"):
        return saved + _gdn_saved(problem, tp, tokens)
    query = card.query_width
    kv = card.kv_width * max(1.0, tp / card.kv_groups)  # replicated when tp > kv_groups
    saved += tokens / tp * 2 * (query + 2 * kv)
    saved += tokens / tp * _attention_out_bytes(problem) * query
    saved += 4 * tokens * card.heads / tp
    if card.qk_norm:
        saved += tokens / tp * 2 * (query + kv)
    if card.attention_output_gate:
        saved += tokens / tp * 2 * query
    return saved


def _attention_out_bytes(problem: Problem) -> float:
    """Bytes of one attention output: bf16 for its own backward, a quantised copy for proj."""
    return 2.0 if not problem.is_fp8 else 2.0 + input_bytes(problem)


def _mla_saved(problem: Problem, tp: int, tokens: int, *, mla_up_proj: bool) -> float:
    card = problem.model
    shard = tokens / tp
    heads = card.heads / tp
    q_rank = card.q_lora_rank or 0
    kv_rank = card.kv_lora_rank or 0
    rope = card.qk_rope_head_dim or 0
    v_dim = card.v_head_dim or 0
    saved = shard * 2 * (q_rank + kv_rank + rope)  # latents before their norms
    saved += tokens * heads * _attention_out_bytes(problem) * v_dim + 4 * tokens * heads
    if not mla_up_proj:  # normed latents, q, k and v
        saved += shard * 2 * (q_rank + kv_rank)
        saved += tokens * heads * (2 * card.qk_head_dim * 2 + 2 * v_dim)
    return saved


def _gdn_saved(problem: Problem, tp: int, tokens: int) -> float:
    """Gated delta net (estimate): projections, convolution, core output, norm, chunk states."""
    card = problem.model
    keys = (card.gdn_key_heads or 0) * (card.gdn_key_dim or 0)
    values = (card.gdn_value_heads or 0) * (card.gdn_value_dim or 0)
    per_token = 2 * (2 * keys + 2 * values + 2 * (card.gdn_value_heads or 0))
    per_token += 2 * (2 * keys + values)  # after the convolution
    per_token += 2 * values + 2 * values  # core output, gated norm output
    states = 4 * values * (card.gdn_key_dim or 0) / _GDN_CHUNK
    return tokens / tp * (per_token + states)


@lru_cache(maxsize=65536)
def attention_activation(
    problem: Problem,
    kind: LayerKind,
    tp: int,
    attention_tokens: int,
    rc_layernorm: int,
    rc_mla_up_proj: int,
    rc_full: int,
) -> int:
    """Attention half of one layer and micro-batch; with full recompute only the layer input."""
    if rc_full:
        return quanta(attention_tokens / tp * 2 * problem.model.hidden)
    return quanta(
        _attention_saved(
            problem,
            kind,
            tp,
            attention_tokens,
            layernorm=bool(rc_layernorm),
            mla_up_proj=bool(rc_mla_up_proj),
        )
    )


@lru_cache(maxsize=65536)
def dense_mlp_activation(
    problem: Problem, tp: int, attention_tokens: int, rc_mlp: int, rc_full: int
) -> int:
    """Dense MLP half (norm 2 output, fc1 and activation outputs) of one layer."""
    if rc_mlp or rc_full:
        return 0
    card, width = problem.model, input_bytes(problem)
    gate = 2 if card.gated else 1
    saved = attention_tokens / tp * width * card.hidden
    saved += attention_tokens / tp * (2 * gate + width) * (card.ffn or 0)
    return quanta(saved)


def routed_copies(problem: Problem, moe_tokens: int, etp: int) -> float:
    """Token copies that one rank's experts process: tokens x top-k x ETP x imbalance."""
    card = problem.model
    return moe_tokens * (card.topk or 0) * etp * problem.training.load_imbalance


@lru_cache(maxsize=65536)
def moe_activation(
    problem: Problem,
    moe_tokens: int,
    etp: int,
    dispatcher: str,
    rc_layernorm: int,
    rc_moe: int,
    rc_moe_act: int,
    rc_shared_experts: int,
    rc_full: int,
) -> int:
    """MoE half of one layer: norm 2, router, permutation, routed and shared experts."""
    if rc_full:
        return 0
    card, width = problem.model, input_bytes(problem)
    saved = 0.0 if rc_layernorm else moe_tokens * 2 * card.hidden
    if rc_moe:
        return quanta(saved)
    experts, topk = card.experts or 0, card.topk or 0
    saved += moe_tokens * (9 * experts + 8 * topk)
    saved += moe_tokens * (4 * experts if dispatcher != "alltoall" else 4 * (2 * experts + 1))
    latent = card.moe_latent or card.hidden
    ffn = (card.moe_ffn or 0) / etp
    gate = 2 if card.gated else 1
    copies = routed_copies(problem, moe_tokens, etp)
    saved += copies * (width * latent + 2 * gate * ffn + 4)
    if not rc_moe_act:
        saved += copies * width * ffn
    if card.shared_ffn and not rc_shared_experts:
        # T/tp tokens' worth: all tokens, the width sharded over TP
        saved += moe_tokens * (2 * gate + width) * card.shared_ffn
    if card.moe_latent:
        saved += moe_tokens * 4 * card.moe_latent
    return quanta(saved)
