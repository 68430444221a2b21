"""Token dispatch and combine of a MoE layer, in us.

Source: DeepEP and HybridEP benchmarks (DeepEP README, docs/README_Hybrid-EP.md), NCCL all-to-all
figures; expected numbers of ranks and nodes hit by top-k routing.
"""

from __future__ import annotations

import math
from functools import lru_cache

from meshplan.constraints.problem import Problem
from meshplan.solver.time.device import efficiencies
from meshplan.solver.time.links import group_bytes_per_us

#: Start-up of one transfer, us: alltoall, inside NVLink, HybridEP across nodes.  DeepEP starts
#: across nodes as inside: 4096 tokens of DeepSeek-V3 then take 3.2 and 4.7 ms on 32 and 64 ranks of
#: H100; its README gives 58 and 51 GB/s, 3.2 and 4.6 ms.
_START_US = {"alltoall": 160.0, "nvlink": 100.0, "nic": 300.0}


def expected_groups(experts: int, topk: int, groups: float) -> float:
    """Expected number of distinct groups of experts that a token's top-k hits."""
    if groups <= 1:
        return 1.0
    per_group = experts / groups
    miss = 1.0
    for i in range(topk):
        miss *= max(0.0, experts - per_group - i) / (experts - i)
    return groups * (1 - miss)


def expected_nodes(problem: Problem, nodes: float) -> float:
    """Expected domains that a token is sent to; node-limited routing caps it."""
    card = problem.model
    hit = expected_groups(card.experts, card.topk, nodes)
    groups, topk_groups = card.router_groups, card.router_topk_groups
    if groups and topk_groups and nodes > 1:
        per_node = groups / nodes
        if per_node >= 1:
            miss = math.comb(groups - round(per_node), topk_groups) / math.comb(groups, topk_groups)
            hit = min(hit, nodes * (1 - miss))
        hit = min(hit, float(topk_groups))
    return hit


def _transfer_us(problem: Problem, moe_tokens: int, ep: int, etp: int, dispatcher: str) -> float:
    """One dispatch or combine of one micro-batch."""
    card, node, eff = problem.model, problem.node_type, efficiencies(problem)
    ranks = ep * etp
    width = (card.moe_latent or card.hidden) * 2
    local = min(ep, max(1, problem.cluster.ranks_per_domain(ranks, 1) // etp))
    nodes = ep / local
    if dispatcher == "alltoall":
        nvlink = moe_tokens * card.topk * width * (local - 1) / ep
        nic = moe_tokens * card.topk * width * (ep - local) / ep
        start, nic_share = _START_US["alltoall"], eff.nic_dispatch
    else:
        hit = expected_groups(card.experts, card.topk, ep)
        nvlink = moe_tokens * width * hit * (local - 1) / local
        nic = moe_tokens * width * expected_nodes(problem, nodes) * (nodes - 1) / nodes
        start = _START_US["nic" if nodes > 1 and dispatcher == "hybridep" else "nvlink"]
        nic_share = eff.nic_hybridep if dispatcher == "hybridep" else eff.nic_dispatch
    nic_rate = problem.cluster.exchange_gbps(ranks, 1) * 1e3 * nic_share
    transfer = max(nvlink / (node.nvlink_gbps * 1e3 * eff.nvlink), nic / nic_rate)
    return transfer * problem.expert_imbalance(ep) + start


@lru_cache(maxsize=65536)
def dispatch_us(
    problem: Problem,
    moe_tokens: int,
    ep: int,
    etp: int,
    dispatcher: str,
    rc_moe: int,
    rc_full: int,
) -> int:
    """Exposed dispatch and combine, forward and backward, of one MoE layer.

    Recompute of the MoE repeats the forward transfers.  With ETP the tokens are gathered and the
    results scattered over the ETP group as well.
    """
    card = problem.model
    transfers = 4 + (2 if rc_moe or rc_full else 0)
    total = 0.0
    if ep > 1:
        total += transfers * _transfer_us(problem, moe_tokens, ep, etp, dispatcher)
    if etp > 1:
        bytes_ = moe_tokens * card.topk * (card.moe_latent or card.hidden) * 2 * (etp - 1)
        total += transfers * bytes_ / group_bytes_per_us(problem, etp, 1)
    if problem.training.overlap_expert_communication:
        total *= 1 - efficiencies(problem).expert_overlap
    return math.ceil(total)
