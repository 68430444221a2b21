"""Time that the host needs for the collectives of one layer and micro-batch, in us.

Each collective that is called by itself costs ``host_collective_us``: its launch, the operations
around it (views, events, the partial attention of a ring), and the wait for the slowest host
of the group, which matters where launches decide.  Source of the counts: Megatron-LM d98e8a64
``tensor_parallel/mappings.py``, ``transformer/moe/token_dispatcher.py``; TransformerEngine d0067d0
``context_parallel.py``.  What a CUDA graph captures costs nothing.
"""

from __future__ import annotations

import math
from functools import lru_cache

from meshplan.constraints.context import inner_a2a
from meshplan.constraints.problem import Problem
from meshplan.scenarios.model_card import LayerKind
from meshplan.solver.time.device import efficiencies, launch_slowdown

#: Calls forward and backward of a block with sequence parallelism: gather and scatter, the same
#: in reverse, and the input gathered again for the weight gradient.
_BLOCK = (2, 3)
#: Latent attention gathers the latents of keys and values apart from those of queries.
_LATENTS = (1, 2)
#: A step of a ring: keys and values go on together, backward with their gradients.
_RING_STEP = (1, 1)
#: All-to-all of queries, keys, values and output, one after another.
_A2A = (4, 4)
#: Keys and values gathered; backward gathered again, and their gradients scattered.
_ALL_GATHER = (2, 4)
#: Linear attention changes sequence for heads, and back.
_LINEAR = (2, 2)
#: What the all-to-all dispatcher calls beyond a fused one, which is in the time of the layer: the
#: counts are gathered, and probabilities sent beside the tokens.
_PLAIN_DISPATCH = (2, 1)
#: Tokens gathered and results scattered over the ranks of a sharded expert.
_EXPERT_SHARDS = (2, 2)


def _calls_us(problem: Problem, calls: tuple[int, int], replay: int) -> int:
    if problem.training.full_iteration_graph:
        return 0
    number = calls[0] * (2 if replay else 1) + calls[1]
    each = efficiencies(problem).host_collective_us * launch_slowdown(problem)
    return math.ceil(number * each)


def _captured(kind: LayerKind, cg_attn: int, cg_mamba: int) -> int:
    """Whether a graph holds the attention half."""
    return cg_mamba if kind.attention in ("gdn", "mamba") else cg_attn


def _overlapped(problem: Problem, tp: int) -> bool:
    """Whether no block calls a collective: with overlap the matrix product does the exchange."""
    return tp == 1 or problem.training.overlap_tensor_communication


@lru_cache(maxsize=65536)
def attention_blocks_us(
    problem: Problem, kind: LayerKind, tp: int, rc_full: int, cg_attn: int, cg_mamba: int
) -> int:
    """Tensor-parallel collectives around the attention half."""
    if _overlapped(problem, tp) or kind.attention == "none" or _captured(kind, cg_attn, cg_mamba):
        return 0
    ahead, back = _BLOCK
    if kind.attention == "mla":
        ahead, back = ahead + _LATENTS[0], back + _LATENTS[1]
    return _calls_us(problem, (ahead, back), rc_full)


@lru_cache(maxsize=65536)
def mlp_blocks_us(
    problem: Problem,
    kind: LayerKind,
    tp: int,
    rc_full: int,
    rc_mlp: int,
    rc_moe: int,
    rc_shared_experts: int,
    cg_mlp: int,
    cg_moe: int,
    cg_moe_router: int,
) -> int:
    """Tensor-parallel collectives around a dense MLP, or around shared experts.

    The graph of the router holds the shared experts as well (Megatron-LM
    ``transformer_layer.py``: their output is one of the graph's).
    """
    if _overlapped(problem, tp):
        return 0
    if kind.mlp == "dense":
        return 0 if cg_mlp else _calls_us(problem, _BLOCK, rc_full or rc_mlp)
    if kind.mlp != "moe" or not problem.model.shared_ffn or cg_moe or cg_moe_router:
        return 0
    return _calls_us(problem, _BLOCK, rc_full or rc_moe or rc_shared_experts)


@lru_cache(maxsize=65536)
def context_calls_us(
    problem: Problem,
    kind: LayerKind,
    tp: int,
    cp: int,
    cp_comm: str,
    rc_full: int,
    rc_core_attn: int,
    cg_attn: int,
    cg_mamba: int,
) -> int:
    """Collectives of context parallelism, and the steps that a ring takes one by one."""
    if cp == 1 or kind.attention == "none" or _captured(kind, cg_attn, cg_mamba):
        return 0
    replay = rc_full or rc_core_attn
    if kind.attention in ("gdn", "mamba"):
        return _calls_us(problem, _LINEAR, replay)
    if cp_comm == "all_gather":
        return _calls_us(problem, _ALL_GATHER, replay)
    inner = {"p2p": 1, "a2a": cp}.get(cp_comm) or inner_a2a(problem, tp, cp)
    exchanges, steps = int(inner > 1), cp // inner - 1
    ahead, back = (exchanges * _A2A[i] + steps * _RING_STEP[i] for i in (0, 1))
    return _calls_us(problem, (ahead, back), replay)


@lru_cache(maxsize=65536)
def dispatch_calls_us(
    problem: Problem,
    kind: LayerKind,
    ep: int,
    etp: int,
    dispatcher: str,
    rc_full: int,
    rc_moe: int,
    cg_moe: int,
) -> int:
    """Collectives of the exchange of tokens beyond those of a fused dispatcher."""
    if kind.mlp != "moe" or cg_moe:
        return 0
    ahead = back = 0
    if ep > 1 and dispatcher == "alltoall":
        ahead, back = _PLAIN_DISPATCH
    if etp > 1:
        ahead, back = ahead + _EXPERT_SHARDS[0], back + _EXPERT_SHARDS[1]
    return _calls_us(problem, (ahead, back), rc_full or rc_moe)
