"""Whether a layout fits in the memory of the GPUs and of the hosts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, TypeAlias

from meshplan.constraints.memory.stage import RankMemory
from meshplan.constraints.problem import QUANTA_PER_GIB, Problem

Verdict: TypeAlias = Literal["fits", "tight", "overfull"]

#: A peak within this share of the capacity, on either side, must be tested before it is believed:
#: one in ten published runs errs by about so much from the model.
TIGHT_SHARE = 0.05


def fills_host(problem: Problem, ranks: Sequence[RankMemory]) -> bool:
    """Whether some rank needs more host memory than its GPU's share of the node."""
    return any(rank.host > problem.host_capacity for rank in ranks)


def has_room(problem: Problem, ranks: Sequence[RankMemory]) -> bool:
    """Whether the layout keeps the headroom: what a plan must do."""
    return max(rank.peak for rank in ranks) <= problem.capacity and not fills_host(problem, ranks)


def verdict(problem: Problem, ranks: Sequence[RankMemory]) -> Verdict:
    """``fits``, ``tight`` (within :data:`TIGHT_SHARE` of the capacity) or ``overfull``.

    A tight layout may lie above the capacity, in the headroom, but never above what a GPU has: the
    search never plans that, but such layouts were seen to run, and others not.
    """
    if fills_host(problem, ranks):
        return "overfull"
    peak = max(rank.peak for rank in ranks)
    return verdict_of(peak, problem.capacity, problem.node_type.hbm_gib * QUANTA_PER_GIB)


def verdict_of(peak: float, capacity: float, usable: float = math.inf) -> Verdict:
    """The verdict on a peak alone; ``usable`` is all that a GPU has, in the unit of both."""
    if peak > min((1 + TIGHT_SHARE) * capacity, usable):
        return "overfull"
    return "tight" if peak > (1 - TIGHT_SHARE) * capacity else "fits"
