"""Whether a layout fits in the memory of the GPUs and of the hosts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from meshplan.constraints.memory.stage import RankMemory
from meshplan.constraints.problem import Problem

Verdict: TypeAlias = Literal["fits", "tight", "overfull"]

#: A peak within this share of the capacity must be tested before it is believed: published
#: runs err by so much from any formula.
TIGHT_SHARE = 0.05


def fills_host(problem: Problem, ranks: Sequence[RankMemory]) -> bool:
    """Whether some rank needs more host memory than its GPU's share of the node."""
    return any(rank.host > problem.host_capacity for rank in ranks)


def verdict(problem: Problem, ranks: Sequence[RankMemory]) -> Verdict:
    """``fits``, ``tight`` (the last :data:`TIGHT_SHARE` of the capacity) or ``overfull``."""
    peak = max(rank.peak for rank in ranks)
    if peak > problem.capacity or fills_host(problem, ranks):
        return "overfull"
    return "tight" if peak > (1 - TIGHT_SHARE) * problem.capacity else "fits"
