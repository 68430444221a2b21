"""Time of what the first and last pipeline stages do besides layers, and of pipeline p2p, us."""

from __future__ import annotations

import math
from functools import lru_cache

from meshplan.constraints.problem import Problem
from meshplan.solver.time.device import (
    elementwise_us,
    gemm_backward_us,
    gemm_flops_per_us,
    gemm_forward_us,
    stream_bytes_per_us,
)
from meshplan.topologies import Tier

#: Share of the p2p transfer that the schedule does not hide, interleaved and plain.
_EXPOSED_P2P = (0.25, 0.60)


@lru_cache(maxsize=65536)
def embedding_us(problem: Problem, tp: int, attention_tokens: int) -> int:
    """Word embedding of one micro-batch, forward and backward."""
    return math.ceil(elementwise_us(problem, attention_tokens / tp * problem.model.hidden * 12))


@lru_cache(maxsize=65536)
def loss_us(problem: Problem, tp: int, attention_tokens: int) -> int:
    """Output layer (always bf16) and cross entropy of one micro-batch, forward and backward."""
    card = problem.model
    elements = attention_tokens * card.padded_vocab(tp) / tp
    compute = 3 * 2 * elements * card.hidden / gemm_flops_per_us(problem, bf16=True)
    return math.ceil(compute + 16 * elements / stream_bytes_per_us(problem))


@lru_cache(maxsize=65536)
def mtp_projection_us(problem: Problem, tp: int, attention_tokens: int) -> int:
    """Projection of [hidden, embedding] to hidden before one MTP layer."""
    h = problem.model.hidden
    shape = (attention_tokens, 2 * h, h / tp)
    return math.ceil(gemm_forward_us(problem, *shape) + gemm_backward_us(problem, *shape))


@lru_cache(maxsize=65536)
def p2p_us(problem: Problem, tp: int, cp: int, mbs: int, pp: int, vpp: int) -> int:
    """Exposed transfer of activations and gradients of one slot and micro-batch."""
    if pp == 1:
        return 0
    cluster = problem.cluster
    bytes_ = problem.tokens(cp, mbs) / tp * problem.model.hidden * 2
    stride = max(1, problem.gpus // pp)
    tier = cluster.group_tier(pp, stride)
    rate = cluster.link_gbps(tier) * (0.7 if tier <= Tier.DOMAIN else 0.85)
    return math.ceil(2 * bytes_ / (rate * 1e3) * _EXPOSED_P2P[0 if vpp > 1 else 1])
