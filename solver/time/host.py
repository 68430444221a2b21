"""Time that the host needs to launch one layer's kernels for one micro-batch, in us.

Source: 151 kernels per MoE layer and micro-batch at 11-18 us per launch (Megatron-Bridge kernel
counts, dgxc-benchmarking cpu_overhead samples); CUDA graphs 623 -> 484 ms on Qwen3-30B.
"""

from __future__ import annotations

import math
from functools import lru_cache

from meshplan.constraints.problem import Problem
from meshplan.scenarios.model_card import LayerKind
from meshplan.solver.time.device import efficiencies

#: Host time of a forward pass that is run again, of that of the whole layer.
_FORWARD = 0.25
#: And of each module that is run again by itself, with what saves and restores the state around
#: it: 2.0 to 5.2 percent of a launch-bound step of Moonlight-16B (Megatron-Bridge, activation
#: recompute card), of which core_attn 3.9, mla_up_proj 5.2, moe_act 2.0.
_CHECKPOINT = 0.03


@lru_cache(maxsize=65536)
def host_us(
    problem: Problem,
    kind: LayerKind,
    tp: int,
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
) -> int:
    """Launch time of one layer of ``kind``, forward and backward; none in a whole graph."""
    if problem.training.full_iteration_graph:
        return 0
    eff = efficiencies(problem)
    time = eff.host_moe_layer_ms * 1e3
    # The collectives around each block, and the small operations of latent attention.
    more = (eff.host_tensor_factor - 1) * (tp > 1)
    more += (eff.host_mla_factor - 1) * (kind.attention == "mla")
    time *= 1 + more
    if problem.node_type.multi_node_nvlink:
        time *= 1.2  # Grace cores launch more slowly than x86
    if kind.mlp == "moe":
        share = 1.0
        if cg_moe:
            share = 0.3
        elif cg_moe_router:
            share = 0.4 if cg_attn else 0.6
        elif cg_attn:
            share = 0.8
    else:
        share = 0.6
        if cg_attn:
            share -= 0.3
        if cg_mlp:
            share -= 0.2
    if rc_full:
        return math.ceil(time * share * (1 + _FORWARD))
    again = 0 if cg_attn else rc_core_attn * (kind.attention in ("gqa", "swa", "mla"))
    if not cg_attn:
        again += rc_mla_up_proj * (kind.attention == "mla")
        again += rc_layernorm * (kind.attention != "none")
    if kind.mlp == "moe" and not cg_moe:
        again += rc_layernorm + rc_moe_act + rc_moe
        again += rc_shared_experts * bool(problem.model.shared_ffn)
        share += share * rc_moe * _FORWARD
    elif kind.mlp == "dense" and not cg_mlp:
        again += rc_layernorm + rc_mlp
    return math.ceil(time * (share + again * _CHECKPOINT))


#: A layer takes at least ``(gpu*a + host*b) / 1000`` for each pair: tangents of the fourth-power
#: mean of GPU and host time, which neither hides completely behind the other when they are close.
#: The pairs are the gradient of (g^4 + h^4)^(1/4) at g:h = 1:0, 3:2, 1:1, 2:3 and 0:1.
OVERLAP_TANGENTS: tuple[tuple[int, int], ...] = (
    (1000, 0),
    (873, 258),
    (594, 594),
    (258, 873),
    (0, 1000),
)


def layer_time_us(gpu_us: int, host_us_: int) -> int:
    """Time of one layer from its GPU and host times."""
    return max(-(-(a * gpu_us + b * host_us_) // 1000) for a, b in OVERLAP_TANGENTS)
