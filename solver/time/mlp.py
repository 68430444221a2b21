"""Time of the MLP half of a layer for one micro-batch, forward and backward, in us."""

from __future__ import annotations

import math
from functools import lru_cache

from meshplan.constraints.problem import Problem
from meshplan.solver.time.device import (
    efficiencies,
    elementwise_us,
    gemm_backward_us,
    gemm_forward_us,
)
from meshplan.solver.time.dispatch import expected_groups
from meshplan.solver.time.links import Exchange, tp_exchange_us

#: Bytes of the activation function per element of its output, forward and backward.
_ACTIVATION_BYTES = (6, 10)
#: Traffic of an activation that is not fused: GPT-OSS clamps, gates and adds a bias in steps.
_UNFUSED_ACTIVATION = 5.0
#: Traffic of the permutation with the all-to-all dispatcher, over that of one fused kernel.
_PLAIN_PERMUTATION = 2.0


@lru_cache(maxsize=65536)
def dense_mlp_us(
    problem: Problem, tp: int, attention_tokens: int, rc_mlp: int, rc_full: int
) -> int:
    """Dense MLP of one layer with its TP communication; recompute replays its forward."""
    return math.ceil(
        _mlp_us(problem, tp, attention_tokens, problem.model.ffn or 0, replay=rc_mlp or rc_full)
    )


@lru_cache(maxsize=65536)
def shared_experts_us(
    problem: Problem,
    tp: int,
    attention_tokens: int,
    rc_moe: int,
    rc_shared_experts: int,
    rc_full: int,
) -> int:
    """Shared experts of one MoE layer (none: 0); also replayed by ``moe`` recompute."""
    width = problem.model.shared_ffn
    if not width:
        return 0
    replay = rc_moe or rc_shared_experts or rc_full
    return math.ceil(_mlp_us(problem, tp, attention_tokens, width, replay=replay))


def dense_mlp_exchange_us(
    problem: Problem, tp: int, attention_tokens: int, rc_mlp: int, rc_full: int
) -> int:
    """How much of :func:`dense_mlp_us` is exposed TP communication, rounded down."""
    return int(_exchange(problem, tp, attention_tokens).replayed(rc_mlp or rc_full))


def shared_experts_exchange_us(
    problem: Problem,
    tp: int,
    attention_tokens: int,
    rc_moe: int,
    rc_shared_experts: int,
    rc_full: int,
) -> int:
    """How much of :func:`shared_experts_us` is exposed TP communication, rounded down."""
    if not problem.model.shared_ffn:
        return 0
    replay = rc_moe or rc_shared_experts or rc_full
    return int(_exchange(problem, tp, attention_tokens).replayed(replay))


def _exchange(problem: Problem, tp: int, tokens: int) -> Exchange:
    return tp_exchange_us(problem, tp, tokens, problem.model.hidden)


def _activation_bytes(problem: Problem) -> tuple[float, float]:
    """Bytes of the activation function per element, forward and backward."""
    ahead, back = _ACTIVATION_BYTES
    card = problem.model
    factor = _UNFUSED_ACTIVATION if card.mlp_bias and card.gated else 1.0
    return ahead * factor, back * factor


def _mlp_us(problem: Problem, tp: int, tokens: int, ffn: int, *, replay: int) -> float:
    card, h = problem.model, problem.model.hidden
    gate = 2 if card.gated else 1
    shapes = ((tokens, h, gate * ffn / tp), (tokens, ffn / tp, h))
    elements = tokens * ffn / tp
    ahead, back = _activation_bytes(problem)
    forward = sum(gemm_forward_us(problem, *shape) for shape in shapes)
    forward += elementwise_us(problem, elements * ahead)
    backward = sum(gemm_backward_us(problem, *shape) for shape in shapes)
    backward += elementwise_us(problem, elements * back)
    work = forward + backward + (forward if replay else 0.0)
    return work + _exchange(problem, tp, tokens).replayed(replay)


@lru_cache(maxsize=65536)
def experts_us(
    problem: Problem,
    moe_tokens: int,
    ep: int,
    etp: int,
    dispatcher: str,
    rc_moe: int,
    rc_moe_act: int,
    rc_full: int,
) -> int:
    """Routed experts: grouped GEMMs by rows per expert, activation, permutation.

    Few rows per expert make the weight and gradient traffic weigh more than the FLOPs, and many
    experts on a rank the start and the tail of each GEMM, which run one after another.
    """
    card = problem.model
    latent = card.moe_latent or card.hidden
    local = -(-card.experts // ep)
    rows = moe_tokens * card.topk * etp * problem.expert_imbalance(ep)
    per_expert = rows / local
    ffn = card.moe_ffn / etp
    gate = 2 if card.gated else 1
    shapes = ((per_expert, latent, gate * ffn), (per_expert, ffn, latent))
    forward = sum(gemm_forward_us(problem, *shape, count=local) for shape in shapes)
    backward = sum(gemm_backward_us(problem, *shape, count=local) for shape in shapes)
    if not problem.training.fused_grouped_mlp:
        each = local * len(shapes) * efficiencies(problem).expert_gemm_us
        forward, backward = forward + each, backward + 2 * each
    activation = elementwise_us(problem, rows * ffn * _activation_bytes(problem)[0])
    # A fused dispatcher sends each token once to every rank that it goes to, and copies it there.
    sent = moe_tokens * expected_groups(card.experts, card.topk, ep)
    permutation = elementwise_us(problem, 2 * (sent + rows) * latent * 2)
    if dispatcher == "alltoall":
        permutation *= _PLAIN_PERMUTATION
    router = gemm_forward_us(problem, moe_tokens, card.hidden, card.experts, bf16=True)
    if card.moe_latent:
        shape = (moe_tokens, card.hidden, latent)
        forward += 2 * gemm_forward_us(problem, *shape)
        backward += 2 * gemm_backward_us(problem, *shape)
    forward += activation + permutation + router
    backward += activation * _ACTIVATION_BYTES[1] / _ACTIVATION_BYTES[0] + permutation + 2 * router
    total = forward + backward
    if rc_moe or rc_full:
        total += forward
    elif rc_moe_act:
        total += activation
    return math.ceil(total)


@lru_cache(maxsize=65536)
def mlp_norm_us(
    problem: Problem, tp: int, attention_tokens: int, rc_layernorm: int, rc_full: int
) -> int:
    """Norm before the MLP and its residual; half of the layer's norm traffic."""
    norm = elementwise_us(problem, attention_tokens / tp * 20 * problem.model.hidden) / 2
    total = norm * 2.2
    if rc_full:
        total += norm
    elif rc_layernorm:
        total += 0.4 * norm
    return math.ceil(total)
