"""Activations that one layer saves for one micro-batch, under the chosen recompute, in quanta.

bf16 with fused attention; inputs of linear layers in the compute precision.  What fine-grained
offload keeps on the host is left out here and counted by :mod:`.offloaded`.  State-space and
linear-attention layers are derived from the tensors that the layer saves: :mod:`.linear_attention`.
Sources: Megatron-LM d98e8a64 ``core/transformer`` (``attention.py``, ``multi_latent_attention.py``,
``moe/``, ``transformer_config.py`` recompute modules); arXiv 2205.05198; arXiv 2603.07685.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from meshplan.constraints.memory.formats import input_bytes
from meshplan.constraints.memory.inputs import (
    captures,
    core_inputs,
    input_and_norm,
    kept,
    kv_width,
    lone_input_norm,
    lone_mlp_norm,
    mlp_input,
)
from meshplan.constraints.memory.linear_attention import gdn_saved, mamba_saved
from meshplan.constraints.problem import Problem, quanta
from meshplan.scenarios.model_card import LayerKind


def _attention_out_bytes(problem: Problem) -> float:
    """Bytes of one attention output: bf16 for its own backward, a quantised copy for proj."""
    copy = input_bytes(problem) if problem.is_fp8 else 0.0
    if problem.is_fp8:
        return 2.0 + kept(problem, "attn_proj", copy)
    return kept(problem, "attn_proj", 2.0)


def _scores(problem: Problem, tp: int, tokens: int) -> float:
    """Bytes of the attention scores, which only unfused attention keeps."""
    if problem.training.fused_attention:
        return 0.0
    return 2.0 * tokens * problem.model.heads / tp * problem.seq_len


def _attention_saved(
    problem: Problem,
    kind: LayerKind,
    tp: int,
    tokens: int,
    *,
    core_attn: bool,
    layernorm: bool,
    mla_up_proj: bool,
) -> float:
    """Bytes saved by norm 1, attention and the residual after it."""
    card, width = problem.model, input_bytes(problem)
    h = card.hidden
    shard = tokens / problem.sequence_shards(tp)  # outside attention and MLP
    saved = input_and_norm(problem, kind, shard * 2 * h, shard * width * h, layernorm=layernorm)
    if problem.training.hidden_dropout:
        saved += shard * h  # one mask byte an element
    if kind.mlp != "none":  # the residual after attention is what norm 2 reads
        saved += mlp_input(problem, kind, shard * 2 * h)
    if kind.attention == "mla":
        saved += _mla_saved(problem, tp, tokens, mla_up_proj=mla_up_proj)
    if kind.attention == "gdn":
        return saved + gdn_saved(problem, tp, tokens)
    if kind.attention == "mamba":
        return saved + mamba_saved(problem, tp, tokens)
    if not core_attn:
        saved += _scores(problem, tp, tokens)
    saved += 4 * tokens * card.heads / tp  # log-sum-exp
    if kind.attention == "mla":
        return saved
    query = card.query_width
    saved += tokens * kept(problem, "core_attn", core_inputs(problem, tp))
    saved += tokens / tp * _attention_out_bytes(problem) * query
    if card.qk_norm:
        saved += tokens / tp * 2 * (query + kv_width(problem, tp))
    if card.attention_output_gate:
        saved += tokens / tp * 2 * query
    return saved


def _mla_saved(problem: Problem, tp: int, tokens: int, *, mla_up_proj: bool) -> float:
    card = problem.model
    shard = tokens / problem.sequence_shards(tp)
    ranks = card.q_lora_rank + card.kv_lora_rank
    saved = shard * 2 * (ranks + card.qk_rope_head_dim)  # latents before their norms
    saved += tokens * card.heads / tp * _attention_out_bytes(problem) * card.v_head_dim
    if not mla_up_proj:  # normed latents, q, k and v
        saved += shard * 2 * ranks
        saved += tokens * kept(problem, "core_attn", core_inputs(problem, tp))
    return saved


@lru_cache(maxsize=65536)
def attention_activation(
    problem: Problem,
    kind: LayerKind,
    tp: int,
    attention_tokens: int,
    rc_core_attn: int,
    rc_layernorm: int,
    rc_mla_up_proj: int,
    rc_full: int,
) -> int:
    """Attention half of one layer and micro-batch; with full recompute only the layer input."""
    if rc_full:
        shard = attention_tokens / problem.sequence_shards(tp)
        return quanta(shard * 2 * problem.model.hidden)
    if kind.attention == "none":
        return 0
    return quanta(
        _attention_saved(
            problem,
            kind,
            tp,
            attention_tokens,
            core_attn=bool(rc_core_attn),
            layernorm=bool(rc_layernorm),
            mla_up_proj=bool(rc_mla_up_proj),
        )
    )


@lru_cache(maxsize=65536)
def exchange_activation(
    problem: Problem,
    kind: LayerKind,
    tp: int,
    attention_tokens: int,
    cp: int,
    cp_comm: str,
    rc_full: int,
) -> int:
    """Attention output before the all-to-all that returns it, from Transformer Engine 2.8 on."""
    if cp == 1 or rc_full or "a2a" not in cp_comm or problem.transformer_engine < (2, 8):
        return 0
    if kind.attention not in ("gqa", "swa", "mla"):
        return 0
    return quanta(attention_tokens / tp * 2 * problem.model.value_width)


@lru_cache(maxsize=65536)
def dense_mlp_activation(
    problem: Problem, kind: LayerKind, tp: int, attention_tokens: int, rc_mlp: int, rc_full: int
) -> int:
    """Dense MLP half (norm 2 output, fc1 and activation outputs) of one layer."""
    if rc_full:
        return 0
    card, width = problem.model, input_bytes(problem)
    shard = attention_tokens / problem.sequence_shards(tp)
    saved = _lone_mlp_input(problem, kind, shard)
    if problem.training.hidden_dropout:
        saved += shard * card.hidden  # behind the MLP, so kept when that is replayed
    if not rc_mlp:
        saved += shard * width * card.hidden
        saved += attention_tokens / tp * (2 * _gate(problem) + width) * (card.ffn or 0)
    return quanta(saved)


def _gate(problem: Problem) -> int:
    return 2 if problem.model.gated else 1


def _lone_mlp_input(problem: Problem, kind: LayerKind, shard: float) -> float:
    """Input of a layer that is only an MLP; otherwise the attention half counts it."""
    if kind.attention != "none":
        return 0.0
    return mlp_input(problem, kind, shard * 2 * problem.model.hidden)


def routed_copies(problem: Problem, moe_tokens: int, ep: int, etp: int) -> float:
    """Token copies that one rank's experts process: tokens x top-k x ETP x imbalance."""
    return moe_tokens * problem.model.topk * etp * problem.expert_imbalance(ep)


def expert_widths(problem: Problem, etp: int) -> tuple[int, float]:
    """Width of a routed token copy, and of one expert's FFN on one rank."""
    card = problem.model
    return card.moe_latent or card.hidden, card.moe_ffn / etp


@lru_cache(maxsize=65536)
def moe_activation(
    problem: Problem,
    kind: LayerKind,
    moe_tokens: int,
    ep: int,
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
    saved = _lone_mlp_input(problem, kind, moe_tokens)
    saved += 0.0 if rc_layernorm else moe_tokens * 2 * card.hidden
    if problem.training.hidden_dropout:
        saved += moe_tokens * card.hidden  # behind the experts, so kept when they are replayed
    if rc_moe:
        return quanta(saved)
    saved += moe_tokens * (9 * card.experts + 8 * card.topk)
    maps = 4 * card.experts if dispatcher != "alltoall" else 4 * (2 * card.experts + 1)
    saved += moe_tokens * maps
    latent, ffn = expert_widths(problem, etp)
    copies, gate = routed_copies(problem, moe_tokens, ep, etp), _gate(problem)
    saved += copies * (
        kept(problem, "expert_fc1", width * latent) + kept(problem, "moe_act", 2 * gate * ffn) + 4
    )
    if not rc_moe_act:
        saved += copies * width * ffn
    if card.shared_ffn and not rc_shared_experts:
        # T/tp tokens' worth: all tokens, the width sharded over TP
        saved += moe_tokens * (2 * gate + width) * card.shared_ffn
    if card.moe_latent:
        saved += moe_tokens * 4 * card.moe_latent
    return quanta(saved)


@lru_cache(maxsize=65536)
def graph_activation(
    problem: Problem,
    kind: LayerKind,
    tp: int,
    attention_tokens: int,
    cg_attn: int,
    cg_mlp: int,
    cg_moe: int,
    cg_moe_router: int,
    cg_mamba: int,
) -> int:
    """Static copy of the input of a layer with a captured part, one for each micro-batch alive.

    A graph reads its input where it was captured.  Parts captured one after the other pass their
    outputs on in such places already, so one copy a layer is what graphs add.  Norms beside a
    captured part keep their inputs: Megatron-Core then leaves out their offload
    (``transformer_layer.py`` ``_set_offload_modules``).
    """
    modules = problem.training.activation_offload
    moe = cg_moe or cg_moe_router
    copies = int(captures(kind, attn=cg_attn, mlp=cg_mlp, moe=moe, mamba=cg_mamba))
    copies += lone_input_norm(kind) and "attn_norm" in modules and bool(cg_attn)
    if lone_mlp_norm(kind) and "mlp_norm" in modules:
        copies += bool(cg_attn or cg_moe_router)
    shard = attention_tokens / problem.sequence_shards(tp)
    return quanta(copies * shard * 2 * problem.model.hidden)


def activation_terms(kind: LayerKind) -> dict[str, tuple[Callable[..., int], ...]]:
    """What a layer of ``kind`` saves, by part of the layer; each term takes ``kind``."""
    terms: dict[str, tuple[Callable[..., int], ...]] = {
        "attention": (attention_activation, exchange_activation),
        "graph inputs": (graph_activation,),
    }
    if kind.mlp == "moe":
        terms["experts"] = (moe_activation,)
    elif kind.mlp == "dense":
        terms["MLP"] = (dense_mlp_activation,)
    return terms
