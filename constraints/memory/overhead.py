"""Memory outside the layers: CUDA context, communicators, workspaces, dispatcher, graph pools.

All in quanta.  Two groups: what lies outside PyTorch's allocator (context, communicators,
dispatcher buffers), and what it hands out besides the layers (workspaces, graph pools, dummy
gradients).  Sources: DeepEP ``csrc/legacy/config.hpp`` and branch hybrid-ep
``csrc/buffer/intranode.cu``; NCCL issue 964; Megatron-LM pull request 6429; Megatron-Bridge CUDA
graph guide.
"""

from __future__ import annotations

from functools import lru_cache

from meshplan.constraints.memory.inputs import captures
from meshplan.constraints.problem import Problem, quanta

_GIB = 1 << 30
#: CUDA context and libraries.
_CONTEXT_GIB = 1.5
#: One communicator of two ranks, and of more.
_COMMUNICATOR_GIB = (0.50, 0.64)
#: cuBLAS and grouped-GEMM workspaces.
_WORKSPACE_GIB = {"dense": 0.10, "moe": 0.25}
#: What a pool of partial graphs takes besides the copies of inputs.
_GRAPH_POOL_GIB = 2.0


#: Memory that the allocator reserves over what it hands out, in the median of published runs
#: (1.02 to 1.21, 1.13 at the 90th percentile; Megatron-LM pull request 6429, SimuMax).
RESERVED_OVER_ALLOCATED = 1.06


@lru_cache(maxsize=4096)
def context(problem: Problem) -> int:
    """CUDA context and the world communicator, outside the allocator."""
    return quanta(_CONTEXT_GIB * _GIB) + communicator(problem.gpus)


@lru_cache(maxsize=4096)
def workspaces(problem: Problem) -> int:
    """Workspaces of the matrix products."""
    return quanta(_WORKSPACE_GIB["moe" if problem.model.is_moe else "dense"] * _GIB)


@lru_cache(maxsize=4096)
def communicator(ranks: int) -> int:
    """Buffers of one communicator of ``ranks`` ranks (none for a single rank)."""
    if ranks == 1:
        return 0
    return quanta(_COMMUNICATOR_GIB[ranks > 2] * _GIB)


@lru_cache(maxsize=65536)
def mesh_overhead(problem: Problem, tp: int, cp: int, dp: int) -> int:
    """Communicators of the attention mesh: TP, CP and DP x CP."""
    return communicator(tp) + communicator(cp) + communicator(dp * cp)


@lru_cache(maxsize=65536)
def expert_overhead(problem: Problem, ep: int, etp: int, edp: int) -> int:
    """Communicators of the expert mesh: ETP, EP and EDP."""
    return communicator(ep) + communicator(etp) + communicator(edp)


@lru_cache(maxsize=65536)
def dispatcher_buffers(
    problem: Problem, moe_tokens: int, ep: int, etp: int, dispatcher: str
) -> int:
    """Buffers that the token dispatcher keeps outside the allocator.

    DeepEP: independent of the token count.  HybridEP: sized for the worst case, so it grows
    with tokens per rank x ranks of the group.
    """
    card = problem.model
    if not card.is_moe or dispatcher == "alltoall" or ep * etp == 1:
        return 0
    ranks, h = ep * etp, card.hidden
    domain = min(problem.cluster.domain_gpus, ranks)
    if dispatcher == "deepep":
        receive = 256 if ranks <= 8 else 288 if ranks <= 64 else 560
        total = 10.0 * min(ranks, 8) * receive * (2 * h + 2056)
        if ranks > 8:
            total += 10 * (ranks // 8) * 128 * 2 * (2 * h + 2072)
        return quanta(total)
    experts_per_rank = (card.experts or 0) / ep
    most = max(moe_tokens, 512)
    per_token = 2 * h + 4 * experts_per_rank * domain
    domains = -(-ranks // domain)
    total = ranks * most * (per_token + h / 32)
    if domains > 1:
        total += 3 * most * (domains - 1) * per_token
    return quanta(total)


@lru_cache(maxsize=4096)
def graph_pools(
    problem: Problem, cg_attn: int, cg_mlp: int, cg_moe: int, cg_moe_router: int,
    cg_moe_preprocess: int, cg_mamba: int,
) -> int:  # fmt: skip
    """What the pool of partial CUDA graphs takes besides the inputs of the captured layers.

    Those are :func:`~meshplan.constraints.memory.activations.graph_activation`.  Together they
    make 6.5 GiB for DeepSeek-V3 on four stages of four chunks, where 6.5 to 7 GB were measured
    (arXiv 2603.07685), and a few GiB without a pipeline (Megatron-Bridge CUDA graph guide).
    """
    moe = cg_moe or cg_moe_router or cg_moe_preprocess
    captured = any(
        captures(kind, attn=cg_attn, mlp=cg_mlp, moe=moe, mamba=cg_mamba)
        for kind in problem.cost_kinds
    )
    return quanta(_GRAPH_POOL_GIB * _GIB) if captured else 0


@lru_cache(maxsize=65536)
def dummy_gradients(problem: Problem, tp: int, etp: int) -> int:
    """One bf16 dummy weight gradient for each distinct weight shape of the layers.

    Transformer Engine ``get_dummy_wgrad`` keeps them when gradient accumulation is fused.
    """
    if not problem.training.fused_gradients:
        return 0
    card = problem.model
    h = card.hidden
    gate = 2 if card.gated else 1
    elements = 0.0
    if card.attention == "mla":
        heads = card.heads / tp
        elements += h * ((card.q_lora_rank or 0) + (card.kv_lora_rank or 0))
        elements += (card.q_lora_rank or h) * heads * card.qk_head_dim
        elements += (card.kv_lora_rank or 0) * heads * 2 * (card.v_head_dim or 0)
        elements += heads * (card.v_head_dim or 0) * h
    else:
        elements += h * (2 * card.query_width + 2 * card.kv_width) / tp
    if any(kind.mlp == "dense" for kind in problem.kinds):
        elements += (gate + 1) * h * (card.ffn or 0) / tp
    if card.is_moe:
        latent = card.moe_latent or h
        elements += (gate + 1) * latent * (card.moe_ffn or 0) / etp
        elements += (gate + 1) * h * (card.shared_ffn or 0) / tp
    return quanta(2 * elements)


@lru_cache(maxsize=65536)
def output_dummy_gradient(problem: Problem, tp: int) -> int:
    """Dummy gradient of the output layer, on the loss stage."""
    if not problem.training.fused_gradients:
        return 0
    card = problem.model
    return quanta(2 * card.padded_vocab(tp) * card.hidden / tp)
