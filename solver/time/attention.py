"""Time of the attention half of a layer for one micro-batch, forward and backward, in us.

Projections, norms and TP communication (:func:`attention_us`); the attention core with its
context-parallel communication (:func:`core_us`).  Recompute adds what it replays.  What of them is
communication :func:`attention_exchange_us` and :func:`context_exchange_us` tell.
"""

from __future__ import annotations

import math
from functools import lru_cache

from meshplan.constraints.context import inner_a2a
from meshplan.constraints.problem import Problem
from meshplan.scenarios.flops import attended_tokens
from meshplan.scenarios.model_card import LayerKind
from meshplan.solver.time.device import (
    attention_flops_per_us,
    elementwise_us,
    gemm_backward_us,
    gemm_flops_per_us,
    gemm_forward_us,
)
from meshplan.solver.time.links import Exchange, group_bytes_per_us, tp_exchange_us

#: Backward FLOPs of fused attention over forward ones (it recomputes the scores).
_BACKWARD_CORE = 2.5
#: Start-up of one ring step of context parallelism.
_RING_STEP_US = 20.0
#: Share of the bf16 GEMM rate that the gated-delta-net scan reaches (estimate).
_GDN_CORE_SHARE = 0.25


def _projections(problem: Problem, kind: LayerKind, tp: int, tokens: int) -> list[tuple]:  # type: ignore[type-arg]
    """GEMMs (m, k, n) of the projections that no recompute module covers."""
    card, h = problem.model, problem.model.hidden
    if kind.attention == "mla":
        shard = tokens / tp
        shapes = [(shard, h, card.kv_lora_rank + card.qk_rope_head_dim)]
        if card.q_lora_rank:
            shapes.append((shard, h, card.q_lora_rank))
        return [*shapes, (tokens, card.value_width / tp, h)]
    if kind.attention in ("gdn", "mamba"):
        keys = card.gdn_key_heads * card.gdn_key_dim
        values = card.gdn_value_heads * card.gdn_value_dim
        width = 2 * keys + 2 * values + 2 * card.gdn_value_heads
        if kind.attention == "mamba":
            values = card.mamba_heads * card.mamba_head_dim
            width = 2 * values + 2 * card.mamba_groups * card.mamba_state + card.mamba_heads
        return [(tokens, h, width / tp), (tokens, values / tp, h)]
    kv = card.kv_width * max(1.0, tp / card.kv_groups)
    gate = card.query_width if card.attention_output_gate else 0
    return [
        (tokens, h, (card.query_width + gate + 2 * kv) / tp),
        (tokens, card.query_width / tp, h),
    ]


def _up_projections(problem: Problem, tp: int, tokens: int) -> list[tuple]:  # type: ignore[type-arg]
    """MLA up-projections (what ``mla_up_proj`` recompute replays)."""
    card = problem.model
    heads = card.heads / tp
    q_in = card.q_lora_rank or card.hidden
    return [
        (tokens, q_in, heads * card.qk_head_dim),
        (tokens, card.kv_lora_rank, heads * (card.qk_nope_head_dim + card.v_head_dim)),
    ]


def _rope_bytes(problem: Problem, kind: LayerKind, tp: int, tokens: int) -> float:
    """Bytes of what lies between projections and core, forward.

    Attention: RoPE and QK-norm.  MLA: the fused kernels turn the RoPE part of the queries in
    place, and write keys and values out of the up-projected latents.  Gated delta net:
    convolution, reading and writing of the scan, and the gated norm; 4 + 4 + 6 bytes an element
    of the inner width.  Mamba: twice that, as the states of all chunks are written and read in
    fp32 (estimates).
    """
    card = problem.model
    if kind.attention == "mla":
        latent = card.qk_nope_head_dim + card.v_head_dim
        made = card.qk_head_dim + card.v_head_dim
        return tokens / tp * card.heads * (4 * card.qk_rope_head_dim + 2 * (latent + made))
    if kind.attention == "gdn":
        return tokens / tp * 14 * card.gdn_value_heads * card.gdn_value_dim
    if kind.attention == "mamba":
        return tokens / tp * 28 * card.mamba_heads * card.mamba_head_dim
    return tokens / tp * 6 * (card.query_width + 2 * card.kv_width)


@lru_cache(maxsize=65536)
def attention_us(
    problem: Problem,
    kind: LayerKind,
    tp: int,
    attention_tokens: int,
    rc_layernorm: int,
    rc_mla_up_proj: int,
    rc_full: int,
) -> int:
    """Everything of the attention half but its core: GEMMs, norms, RoPE, TP communication."""
    if kind.attention == "none":
        return 0
    card = problem.model
    tokens = attention_tokens
    shapes = _projections(problem, kind, tp, tokens)
    ups = _up_projections(problem, tp, tokens) if kind.attention == "mla" else []
    norms = elementwise_us(problem, tokens / tp * 10 * card.hidden)  # of two such halves
    rope = elementwise_us(problem, _rope_bytes(problem, kind, tp, tokens))
    forward = sum(gemm_forward_us(problem, *shape) for shape in shapes + ups) + norms + rope
    total = forward + _tensor_exchange(problem, kind, tp, tokens).replayed(rc_full)
    total += sum(gemm_backward_us(problem, *shape) for shape in shapes + ups)
    total += norms * 1.2 + rope * 1.5
    if rc_full:
        total += forward
    else:
        if rc_mla_up_proj:
            total += sum(gemm_forward_us(problem, *shape) for shape in ups) + rope
        if rc_layernorm:
            total += 0.4 * norms
    return math.ceil(total)


def _tensor_exchange(problem: Problem, kind: LayerKind, tp: int, tokens: int) -> Exchange:
    card = problem.model
    gather = card.hidden
    if kind.attention == "mla":  # only the latents are gathered over TP
        gather = card.q_lora_rank + card.kv_lora_rank + card.qk_rope_head_dim or card.hidden
    return tp_exchange_us(problem, tp, tokens, gather)


def attention_exchange_us(
    problem: Problem, kind: LayerKind, tp: int, attention_tokens: int, rc_full: int
) -> int:
    """How much of :func:`attention_us` is exposed TP communication, rounded down."""
    if kind.attention == "none":
        return 0
    return int(_tensor_exchange(problem, kind, tp, attention_tokens).replayed(rc_full))


def _core_forward_us(problem: Problem, kind: LayerKind, tp: int, tokens: int) -> float:
    """Attention core of one layer, forward, without communication."""
    card = problem.model
    if kind.attention in ("gdn", "mamba"):
        if kind.attention == "gdn":
            macs = 4 * card.gdn_value_heads * card.gdn_value_dim**2
        else:
            macs = 7 * card.hidden * card.mamba_state
        rate = gemm_flops_per_us(problem, bf16=True) * _GDN_CORE_SHARE
        return 2 * tokens / tp * macs / rate
    context = attended_tokens(card, kind, problem.seq_len)
    width = card.query_width + card.value_width
    flops = 2 * tokens * context * width / tp
    rate = attention_flops_per_us(
        problem, card.qk_head_dim, 2 * context, mla=kind.attention == "mla"
    )
    return flops / rate


@lru_cache(maxsize=65536)
def core_us(
    problem: Problem,
    kind: LayerKind,
    tp: int,
    cp: int,
    mbs: int,
    cp_comm: str,
    rc_core_attn: int,
    rc_full: int,
) -> int:
    """Attention core with the exposed context-parallel communication, forward and backward."""
    if kind.attention == "none":
        return 0
    replay = rc_core_attn or rc_full
    core = _core_forward_us(problem, kind, tp, problem.tokens(cp, mbs))
    exchange = _context_exchange(problem, kind, tp, cp, mbs, cp_comm)
    return math.ceil(core * ((2 if replay else 1) + _BACKWARD_CORE) + exchange.replayed(replay))


def context_exchange_us(
    problem: Problem,
    kind: LayerKind,
    tp: int,
    cp: int,
    mbs: int,
    cp_comm: str,
    rc_core_attn: int,
    rc_full: int,
) -> int:
    """How much of :func:`core_us` is exposed context-parallel communication, rounded down."""
    if kind.attention == "none":
        return 0
    exchange = _context_exchange(problem, kind, tp, cp, mbs, cp_comm)
    return int(exchange.replayed(rc_core_attn or rc_full))


def _context_exchange(
    problem: Problem, kind: LayerKind, tp: int, cp: int, mbs: int, cp_comm: str
) -> Exchange:
    tokens = problem.tokens(cp, mbs)
    ahead = _core_forward_us(problem, kind, tp, tokens)
    back = ahead * _BACKWARD_CORE
    return Exchange(
        _context_us(problem, kind, tp, cp, tokens, cp_comm, ahead, 1.0),
        _context_us(problem, kind, tp, cp, tokens, cp_comm, back, 2.0),
    )


def _context_us(
    problem: Problem,
    kind: LayerKind,
    tp: int,
    cp: int,
    tokens: int,
    cp_comm: str,
    core: float,
    volume: float,
) -> float:
    """Exposed context-parallel communication; ``volume`` is 2 for backward.

    Rings hide behind the core of each step; all-to-all and all-gather do not.  Gated delta net
    exchanges sequence for heads, whatever ``cp_comm`` says.
    """
    if cp == 1:
        return 0.0
    card = problem.model
    kv, qo = _exchanged_bytes(problem, kind, tp)
    if kind.attention in ("gdn", "mamba"):
        return volume * _a2a_us(problem, tp, cp, tokens * (qo + kv))
    if cp_comm == "p2p":
        return _ring_us(problem, tokens * kv * volume, cp, core / cp, _ring_rate(problem, tp, cp))
    if cp_comm == "all_gather":
        rate = group_bytes_per_us(problem, cp, tp)
        return volume * tokens * kv * (cp - 1) / rate
    inner = cp if cp_comm == "a2a" else inner_a2a(problem, tp, cp)
    exchanged = volume * _a2a_us(problem, tp, inner, tokens * (qo + kv))
    outer = cp // max(inner, 1)
    if outer <= 1 or card.heads == 0:
        return exchanged
    # After the inner exchange each GPU holds 1/inner of the heads of inner times the tokens, so
    # a step of the outer ring carries the same bytes as before; between domains each GPU has its
    # own NIC for that.
    rate = _ring_rate(problem, tp, cp)
    return exchanged + _ring_us(problem, tokens * kv * volume, outer, core / outer, rate)


def _exchanged_bytes(problem: Problem, kind: LayerKind, tp: int) -> tuple[float, float]:
    """Bytes per token of keys and values, and of queries and outputs, on one TP rank."""
    card = problem.model
    if kind.attention == "gdn":
        keys = card.gdn_key_heads * card.gdn_key_dim / tp
        values = card.gdn_value_heads * card.gdn_value_dim / tp
        return 2 * (keys + values), 2 * (keys + values)
    if kind.attention == "mamba":
        inner = card.mamba_heads * card.mamba_head_dim / tp
        return 2 * inner, 2 * inner
    if kind.attention == "mla":
        width = card.heads / tp * (card.qk_head_dim + card.v_head_dim) * 2
        return width, width
    kv = max(1.0, card.kv_groups / tp) * 2 * card.head_dim * 2
    return kv, card.heads / tp * 2 * card.head_dim * 2


def _ring_rate(problem: Problem, tp: int, cp: int) -> float:
    """Bytes per us of the slowest hop of a ring: one NIC carries the edge between domains."""
    return problem.cluster.ring_gbps(cp, tp) * 1e3 * 0.8


def _ring_us(problem: Problem, bytes_: float, steps: int, hidden_us: float, rate: float) -> float:
    step = bytes_ / rate
    return (steps - 1) * max(0.0, step - hidden_us) + _RING_STEP_US * steps


def _a2a_us(problem: Problem, tp: int, size: int, bytes_: float) -> float:
    """All-to-all of ``bytes_`` bytes per GPU over a CP group of ``size`` ranks."""
    if size <= 1:
        return 0.0
    node, cluster = problem.node_type, problem.cluster
    local = min(size, cluster.ranks_per_domain(size, tp))
    nvlink = bytes_ * (local - 1) / size / (node.nvlink_gbps * 1e3 * 0.75)
    nic = bytes_ * (size - local) / size / (cluster.exchange_gbps(size, tp) * 1e3 * 0.9)
    return max(nvlink, nic)
