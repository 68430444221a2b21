"""Bandwidth that a group of GPUs gets from the links it crosses, and TP collectives."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from meshplan.constraints.problem import Problem
from meshplan.solver.time.device import efficiencies
from meshplan.topologies import Tier

#: Start of one collective: NCCL's all-reduce over 8 H100 takes 1.75 * (size + 16 MB) / 480 GB/s
#: (dgxc-benchmarking), so 61 us for nothing, of which the gather and the scatter are half each.
_START_US = 30.0


@lru_cache(maxsize=65536)
def group_bytes_per_us(problem: Problem, size: int, stride: int) -> float:
    """Bytes per us and GPU that a collective over a group reaches.

    Inside one NVLink domain NVLink; otherwise all members that share a domain use their NICs
    together, up to NVLink's rate.
    """
    cluster, node, eff = problem.cluster, problem.node_type, efficiencies(problem)
    nvlink = node.nvlink_gbps * 1e3 * eff.nvlink
    tier = cluster.group_tier(size, stride)
    if tier <= Tier.DOMAIN:
        return nvlink
    nic = cluster.ring_gbps(size, stride) * 1e3 * 0.9
    return min(nvlink, nic * cluster.ranks_per_domain(size, stride))


@dataclass(frozen=True)
class Exchange:
    """Exposed collective time of a tensor-parallel block, us."""

    forward: float
    backward: float

    def replayed(self, replay: int) -> float:
        """Forward and backward, and forward once more where the block is run again."""
        return self.forward * (2 if replay else 1) + self.backward


def tp_exchange_us(problem: Problem, tp: int, tokens: float, gathered: float) -> Exchange:
    """All-gather before and reduce-scatter after a block, with sequence parallelism.

    ``gathered`` is the width gathered per token; the reduce-scatter is of the hidden width.  In
    backward most of the reduce-scatter hides behind the weight gradients.
    """
    if tp == 1:
        return Exchange(0.0, 0.0)
    rate = group_bytes_per_us(problem, tp, 1)
    share = 2 * (tp - 1) / tp / rate
    gather = _START_US + tokens * gathered * share
    scatter = _START_US + tokens * problem.model.hidden * share
    if problem.training.overlap_tensor_communication:
        exposed = 1 - efficiencies(problem).tensor_overlap
        gather, scatter = gather * exposed, scatter * exposed
    return Exchange(gather + scatter, gather + 0.3 * scatter)
