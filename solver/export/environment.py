"""Environment variables that a plan needs, each with its reason."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from meshplan.constraints.layout import Layout
from meshplan.constraints.problem import Problem

#: Compute capability from which on communication needs no single queue.
_BLACKWELL = 10
#: Transformer Engine from which on offload of activations would take weights along.
_OFFLOAD_MODE = (2, 10)


@dataclass(frozen=True)
class Variable:
    """An environment variable and why the plan needs it."""

    name: str
    value: str
    reason: str


def environment(problem: Problem, layout: Layout) -> tuple[Variable, ...]:
    """The variables, in the order of their importance.

    Sources: ``validate_args`` of megatron-core 0.19 for queues, offload and graphs; the recipes of
    Megatron-Bridge 0.6 for HybridEP and the fused experts.
    """
    return tuple(
        (
            *_queues(problem, layout),
            *_hybridep(problem, layout),
            *_offload(problem),
            *_graphs(layout),
            *_fused_experts(problem),
        )
    )


def _queues(problem: Problem, layout: Layout) -> Iterator[Variable]:
    name = "CUDA_DEVICE_MAX_CONNECTIONS"
    if problem.training.overlap_expert_communication:
        yield Variable(name, "32", "expert communication overlaps with another micro-batch")
    elif problem.node_type.compute_capability < _BLACKWELL and max(layout.tp, layout.cp) > 1:
        yield Variable(name, "1", "Megatron-LM demands it for TP and CP before Blackwell")


def _hybridep(problem: Problem, layout: Layout) -> Iterator[Variable]:
    if layout.dispatcher != "hybridep":
        return
    node = problem.node_type
    domain = node.nvlink_domain_gpus
    yield Variable("NVLINK_DOMAIN_SIZE", str(domain), "GPUs of an NVLink domain, for HybridEP")
    ranks = min(layout.ep * layout.etp, domain)
    name = "NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN"
    yield Variable(name, str(ranks), "ranks of an expert group inside one")
    spans = "spans nodes" if node.multi_node_nvlink else "ends with the node"
    yield Variable("USE_MNNVL", str(int(node.multi_node_nvlink)), f"NVLink {spans}")


def _offload(problem: Problem) -> Iterator[Variable]:
    if problem.training.activation_offload and problem.transformer_engine >= _OFFLOAD_MODE:
        yield Variable(
            "NVTE_CPU_OFFLOAD_V1", "1", "offload of activations must not take weights along"
        )


def _graphs(layout: Layout) -> Iterator[Variable]:
    if layout.cuda_graphs:
        yield Variable("NCCL_GRAPH_REGISTER", "0", "CUDA graphs beside expandable memory segments")


def _fused_experts(problem: Problem) -> Iterator[Variable]:
    if problem.training.fused_grouped_mlp:
        yield Variable("NVTE_CUTEDSL_FUSED_GROUPED_MLP", "1", "experts run in fused kernels")


__all__ = ["Variable", "environment"]
