"""Time that the host needs to launch one layer's work for one micro-batch, in us.

That of its kernels is here, that of its collectives in :mod:`meshplan.solver.time.launches`.
Source: 151 kernels per MoE layer and micro-batch at 11-18 us per launch (Megatron-Bridge kernel
counts, dgxc-benchmarking cpu_overhead samples); CUDA graphs 623 -> 484 ms on Qwen3-30B.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

from meshplan.constraints.problem import Problem
from meshplan.scenarios.model_card import LayerKind
from meshplan.solver.time.device import efficiencies, launch_slowdown
from meshplan.solver.time.launches import (
    attention_blocks_us,
    context_calls_us,
    dispatch_calls_us,
    mlp_blocks_us,
)

#: Host time of the attention half, and of a dense MLP, of that of a layer with experts: about 30 of
#: its 151 kernels each.
_HALF = 0.2
#: And of the half with the experts: by itself, with the router in a CUDA graph, and whole in one.
_EXPERTS, _ROUTER_CAPTURED, _EXPERTS_CAPTURED = 1 - _HALF, 0.4, 0.1
#: Host time of a forward pass that is run again, of that of the whole layer.
_FORWARD = 0.25
#: And of each module that is run again by itself, with what saves and restores the state around
#: it: 2.0 to 5.2 percent of a launch-bound step of Moonlight-16B (Megatron-Bridge, activation
#: recompute card), of which core_attn 3.9, mla_up_proj 5.2, moe_act 2.0.
_CHECKPOINT = 0.03


@lru_cache(maxsize=65536)
def kernels_us(
    problem: Problem,
    kind: LayerKind,
    rc_full: int,
    rc_core_attn: int,
    rc_layernorm: int,
    rc_mla_up_proj: int,
    rc_mlp: int,
    rc_moe: int,
    rc_moe_act: int,
    rc_shared_experts: int,
    cg_attn: int,
    cg_mlp: int,
    cg_moe: int,
    cg_moe_router: int,
    cg_mamba: int,
) -> int:
    """Launch time of the kernels of one layer, forward and backward; none in a whole graph."""
    if problem.training.full_iteration_graph:
        return 0
    time = efficiencies(problem).host_moe_layer_ms * 1e3 * launch_slowdown(problem)
    linear = kind.attention in ("gdn", "mamba")
    share, again = 0.0, 0
    if kind.attention != "none" and not (cg_mamba if linear else cg_attn):
        share += _HALF
        again += rc_layernorm + rc_core_attn * (not linear)
        again += rc_mla_up_proj * (kind.attention == "mla")
    if kind.mlp == "moe":
        half = _EXPERTS_CAPTURED if cg_moe else _ROUTER_CAPTURED if cg_moe_router else _EXPERTS
        share += half * (1 + rc_moe * _FORWARD)
        if not cg_moe:
            again += rc_layernorm + rc_moe_act + rc_moe
            again += rc_shared_experts * bool(problem.model.shared_ffn)
    elif kind.mlp == "dense" and not cg_mlp:
        share += _HALF
        again += rc_layernorm + rc_mlp
    if rc_full:
        return math.ceil(time * share * (1 + _FORWARD))
    return math.ceil(time * (share + again * _CHECKPOINT))


#: What the host does for a layer; each takes the kind of the layer as a constant.
HOST_TERMS: tuple[Callable[..., int], ...] = (
    kernels_us,
    attention_blocks_us,
    mlp_blocks_us,
    context_calls_us,
    dispatch_calls_us,
)


#: A layer with experts takes at least ``(gpu*a + host*b) / 1000`` for each pair: tangents of the
#: fourth-power mean of GPU and host time, which neither hides completely behind the other when
#: they are close: the host waits in each such layer for the number of tokens that its experts got.
#: The pairs are the gradient of (g^4 + h^4)^(1/4) at g:h = 1:0, 3:2, 1:1, 2:3 and 0:1.
_OVERLAP_TANGENTS: tuple[tuple[int, int], ...] = (
    (1000, 0),
    (873, 258),
    (594, 594),
    (258, 873),
    (0, 1000),
)
#: In all other layers nothing stops the host from running ahead: the slower of the two decides.
_RUNS_AHEAD = (_OVERLAP_TANGENTS[0], _OVERLAP_TANGENTS[-1])


def overlap_tangents(kind: LayerKind) -> tuple[tuple[int, int], ...]:
    """Pairs ``a, b``: a layer takes the most of all ``(gpu*a + host*b) / 1000``."""
    return _OVERLAP_TANGENTS if kind.mlp == "moe" else _RUNS_AHEAD


def layer_time_us(kind: LayerKind, gpu_us: int, host_us: int) -> int:
    """Time of one layer from its GPU and host times."""
    return max(-(-(a * gpu_us + b * host_us) // 1000) for a, b in overlap_tangents(kind))
