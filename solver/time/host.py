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


@lru_cache(maxsize=65536)
def host_us(
    problem: Problem,
    kind: LayerKind,
    tp: int,
    rc_full: int,
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
        share *= 1.25
    return math.ceil(time * share)


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
