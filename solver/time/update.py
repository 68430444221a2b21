"""Once a step: gradient and parameter exchange over the data-parallel groups, optimizer, in us.

Source: Megatron-LM distributed optimizer (reduce-scatter of gradients, all-gather of parameters);
Megatron-Bridge cpu-offloading card (0.6 G parameters/s per GPU on the host).
"""

from __future__ import annotations

import math
from functools import lru_cache

from meshplan.constraints.memory.formats import gradient_bytes
from meshplan.constraints.problem import Problem
from meshplan.scenarios.model_card import LayerKind
from meshplan.scenarios.parameters import (
    embedding_parameters,
    layer_parameters,
    mtp_parameters,
    output_parameters,
)
from meshplan.solver.time.links import group_bytes_per_us

#: Bytes that the fused optimizer moves per owned parameter, and per local one.
_OWNED_BYTES, _LOCAL_BYTES = 30, 4
#: Parameters per microsecond and GPU of Adam on the host.
_HOST_ADAM_PER_US = 600.0


def _exchange_us(problem: Problem, parameters: float, size: int, stride: int) -> float:
    """Reduce-scatter of gradients and all-gather of parameters over one group."""
    if size == 1:
        return 0.0
    gathered = 1.0 if problem.fp8_parameters and problem.precision != "mxfp8" else 2.0
    bytes_ = parameters * (gradient_bytes(problem) + gathered) * (size - 1) / size
    return bytes_ / group_bytes_per_us(problem, size, stride)


def _optimizer_us(problem: Problem, parameters: float, shards: int, offload: int) -> float:
    owned = parameters / shards
    on_gpu = owned * (100 - offload) / 100
    rate = problem.node_type.hbm_tbps * 1e6 * 0.8
    device = (on_gpu * _OWNED_BYTES + parameters * _LOCAL_BYTES) / rate
    return device + (owned - on_gpu) / _HOST_ADAM_PER_US


@lru_cache(maxsize=65536)
def dense_exchange_us(problem: Problem, kind: LayerKind, tp: int, cp: int, dp: int) -> int:
    """Gradient and parameter exchange of one layer's non-expert parameters over DP x CP."""
    count = layer_parameters(problem.model, kind, tp=tp).dense
    return math.ceil(_exchange_us(problem, count, dp * cp, tp))


@lru_cache(maxsize=65536)
def expert_exchange_us(problem: Problem, kind: LayerKind, ep: int, etp: int, edp: int) -> int:
    """Gradient and parameter exchange of one layer's routed experts over EDP."""
    count = layer_parameters(problem.model, kind, ep=ep, etp=etp).expert
    return math.ceil(_exchange_us(problem, count, edp, ep * etp))


@lru_cache(maxsize=65536)
def dense_optimizer_us(
    problem: Problem, kind: LayerKind, tp: int, cp: int, dp: int, offload: int
) -> int:
    """Optimizer step of one layer's non-expert parameters."""
    count = layer_parameters(problem.model, kind, tp=tp).dense
    return math.ceil(_optimizer_us(problem, count, dp * cp, offload))


@lru_cache(maxsize=65536)
def expert_optimizer_us(
    problem: Problem, kind: LayerKind, ep: int, etp: int, edp: int, offload: int
) -> int:
    """Optimizer step of one layer's routed experts."""
    count = layer_parameters(problem.model, kind, ep=ep, etp=etp).expert
    return math.ceil(_optimizer_us(problem, count, edp, offload))


def _ends(problem: Problem, tp: int) -> tuple[float, float]:
    """Non-expert parameters of the first and of the last stage besides their layers."""
    card = problem.model
    last = output_parameters(card, tp=tp) + card.mtp_copies * mtp_parameters(card, tp=tp).dense
    return embedding_parameters(card, tp=tp), last


@lru_cache(maxsize=65536)
def ends_exchange_us(problem: Problem, tp: int, cp: int, dp: int) -> int:
    """Exchange of embedding or output layer with MTP, whichever is larger."""
    return math.ceil(max(_exchange_us(problem, n, dp * cp, tp) for n in _ends(problem, tp)))


@lru_cache(maxsize=65536)
def ends_optimizer_us(problem: Problem, tp: int, cp: int, dp: int, offload: int) -> int:
    """Optimizer step of embedding or output layer with MTP, whichever is larger."""
    return math.ceil(max(_optimizer_us(problem, n, dp * cp, offload) for n in _ends(problem, tp)))


@lru_cache(maxsize=65536)
def mtp_expert_exchange_us(problem: Problem, ep: int, etp: int, edp: int) -> int:
    """Exchange of the MTP layers' routed experts over EDP."""
    card = problem.model
    if not card.mtp_layers:
        return 0
    count = card.mtp_copies * mtp_parameters(card, ep=ep, etp=etp).expert
    return math.ceil(_exchange_us(problem, count, edp, ep * etp))


@lru_cache(maxsize=65536)
def mtp_expert_optimizer_us(problem: Problem, ep: int, etp: int, edp: int, offload: int) -> int:
    """Optimizer step of the MTP layers' routed experts."""
    card = problem.model
    if not card.mtp_layers:
        return 0
    count = card.mtp_copies * mtp_parameters(card, ep=ep, etp=etp).expert
    return math.ceil(_optimizer_us(problem, count, edp, offload))
