"""Weights, gradients and optimizer state of what a pipeline rank holds, in quanta.

Each part of the report is a constant ``part`` of the terms: see :data:`STATIC_PARTS`,
:data:`UPDATE_PARTS` and ``host``.  Dense parameters (attention, dense MLP, shared experts,
router, embeddings) shard their optimizer over DP x CP; routed experts over EDP.  Source:
Megatron-LM d98e8a64
``core/distributed/param_and_grad_buffer.py``, ``core/optimizer/distrib_optimizer.py``.
"""

from __future__ import annotations

from functools import lru_cache

from meshplan.constraints.memory.formats import (
    gradient_bytes,
    host_optimizer_bytes,
    optimizer_bytes,
    update_bytes,
    weight_bytes,
)
from meshplan.constraints.problem import Problem, quanta
from meshplan.scenarios.model_card import LayerKind
from meshplan.scenarios.parameters import (
    embedding_parameters,
    layer_parameters,
    mtp_parameters,
    output_parameters,
)

#: Parts of the static memory, as the report names them.
STATIC_PARTS = ("weights", "gradients", "optimizer")
#: What exists only while the optimizer updates the dense parameters, or the routed experts.
UPDATE_PARTS = ("update_dense", "update_expert")
#: Optimizer state in host memory.
HOST_PART = "host"


def _part_bytes(
    problem: Problem, part: str, weight: float, ranks: int, offload: int, group: str
) -> float:
    """Bytes per parameter of one part; ``group`` is ``dense`` or ``expert``."""
    if part == "weights":
        return weight
    if part == "gradients":
        return gradient_bytes(problem)
    shards = problem.optimizer_shards(ranks)
    if part == "optimizer":
        return optimizer_bytes(problem, offload) / shards
    if part == HOST_PART:
        return host_optimizer_bytes(problem, offload) / shards
    own, other = update_bytes(problem, offload)
    return (own if part == f"update_{group}" else other) / shards


@lru_cache(maxsize=65536)
def dense_static(
    problem: Problem, part: str, kind: LayerKind, tp: int, cp: int, dp: int, offload: int
) -> int:
    """One part of the non-expert parameters of a layer of ``kind``, in quanta."""
    count = layer_parameters(problem.model, kind, tp=tp).dense
    return quanta(
        count * _part_bytes(problem, part, weight_bytes(problem), dp * cp, offload, "dense")
    )


@lru_cache(maxsize=65536)
def expert_static(
    problem: Problem, part: str, kind: LayerKind, ep: int, etp: int, edp: int, offload: int
) -> int:
    """One part of the routed experts of a layer of ``kind``, in quanta."""
    count = layer_parameters(problem.model, kind, ep=ep, etp=etp).expert
    return quanta(count * _part_bytes(problem, part, weight_bytes(problem), edp, offload, "expert"))


@lru_cache(maxsize=65536)
def embedding_static(problem: Problem, part: str, tp: int, cp: int, dp: int, offload: int) -> int:
    """One part of the word embedding, kept in bf16, in quanta."""
    count = embedding_parameters(problem.model, tp=tp)
    return quanta(count * _part_bytes(problem, part, 2.0, dp * cp, offload, "dense"))


@lru_cache(maxsize=65536)
def output_static(
    problem: Problem, part: str, tp: int, cp: int, dp: int, pp: int, offload: int
) -> int:
    """One part of the final norm and output layer, kept in bf16, in quanta.

    Tied embeddings need no second copy when one stage holds both ends (``pp == 1``).
    """
    count = output_parameters(problem.model, tp=tp)
    if problem.model.tied_embeddings and pp == 1:
        count -= embedding_parameters(problem.model, tp=tp)
    return quanta(count * _part_bytes(problem, part, 2.0, dp * cp, offload, "dense"))


@lru_cache(maxsize=65536)
def mtp_dense_static(
    problem: Problem, part: str, tp: int, cp: int, dp: int, pp: int, offload: int
) -> int:
    """One part of the non-expert parameters of all MTP layers, in quanta.

    With ``pp > 1`` the stage that holds them keeps a copy of the embedding
    (Megatron-LM ``core/transformer/multi_token_prediction.py``).
    """
    layers = problem.model.mtp_copies
    if not layers:
        return 0
    count = layers * mtp_parameters(problem.model, tp=tp).dense
    per_parameter = _part_bytes(problem, part, weight_bytes(problem), dp * cp, offload, "dense")
    total = count * per_parameter
    if pp > 1:
        copy = embedding_parameters(problem.model, tp=tp)
        total += copy * _part_bytes(problem, part, 2.0, dp * cp, offload, "dense")
    return quanta(total)


@lru_cache(maxsize=65536)
def mtp_expert_static(
    problem: Problem, part: str, ep: int, etp: int, edp: int, offload: int
) -> int:
    """One part of the routed experts of all MTP layers, in quanta."""
    layers = problem.model.mtp_copies
    if not layers:
        return 0
    count = layers * mtp_parameters(problem.model, ep=ep, etp=etp).expert
    return quanta(count * _part_bytes(problem, part, weight_bytes(problem), edp, offload, "expert"))
