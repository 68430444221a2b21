"""Lower bounds of step time and memory of many cells at once, valid for every split.

They ignore where layers lie; :mod:`~meshplan.solver.rank_bounds` has sharper ones.
"""

from __future__ import annotations

import numpy as np

from meshplan.constraints.problem import Problem
from meshplan.solver.axes import Array, Axes
from meshplan.solver.costs import MemoryCosts, StaticCosts, TimeCosts, mtp_time_us
from meshplan.solver.time.step import STEP_OVERHEAD_US

#: Larger than any step time.
NEVER = 1 << 60


def mesh_column(axes: Axes, name: str) -> Array:
    """One degree of every mesh row, along the mesh axis."""
    return axes.column(name).reshape(-1, 1, 1, 1, 1, 1)


def coarse_memory(problem: Problem, pp: int, costs: MemoryCosts) -> Array:
    """Least memory of all ranks of a cell together, over all splits.

    All ranks together hold all layers, and each layer keeps at least one micro-batch alive.
    """
    resident = _whole_model(problem, costs.static) + pp * costs.overhead
    memory: Array = resident + pp * costs.working
    for kind, count in problem.kind_counts.items():
        memory = memory + count * costs.activation[kind]
    for update in costs.updates:
        memory = np.maximum(memory, resident + _whole_model(problem, update))
    return memory


def coarse_host(problem: Problem, costs: MemoryCosts) -> Array:
    """Least host memory of all ranks of a cell together, over all splits."""
    host = _whole_model(problem, costs.host)
    for kind, count in problem.kind_counts.items():
        host = host + count * costs.offloaded[kind]
    return host


def _whole_model(problem: Problem, costs: StaticCosts) -> Array:
    """A part of the memory of all ranks together."""
    whole = costs.first + costs.output + costs.mtp
    for kind, count in problem.kind_counts.items():
        whole = whole + count * costs.layer[kind]
    return whole


def coarse_step(problem: Problem, pp: int, costs: TimeCosts, ga: Array) -> Array:
    """Least step time of a cell over all splits: the mean rank, and the fullest one."""
    card = problem.model
    mtp = mtp_time_us(problem, costs)
    whole = costs.first_us + costs.loss_us + mtp
    for kind, count in problem.kind_counts.items():
        whole = whole + count * costs.layer_us[kind]
    fastest, p2p = costs.fastest_us, costs.p2p_us
    most = -(-card.layers // pp)
    bottleneck = np.maximum(-(-whole // pp), most * fastest) + p2p
    slot = np.maximum(fastest, ends_slot(problem, costs, mtp)) + p2p
    step: Array = ga * bottleneck + (pp - 1) * slot + once_us(costs, most, bottleneck)
    return step


def ends_slot(problem: Problem, costs: TimeCosts, mtp: Array) -> Array:
    """Time of the slot with the loss; MTP shares it unless a given layout says otherwise."""
    if problem.layout_string is None:
        return costs.loss_us + mtp
    return np.maximum(costs.loss_us, mtp)


def most_in_time(problem: Problem, costs: TimeCosts, budget: Array) -> Array:
    """Most layers that one rank runs in ``budget`` us, the fastest kinds first, for each cell."""
    counts = np.array([problem.kind_counts[kind] for kind in problem.kinds], dtype=np.int64)
    times = np.stack([costs.layer_us[kind] for kind in problem.kinds], axis=1)
    order = np.argsort(times, axis=1)
    left, layers = np.asarray(budget).copy(), np.zeros_like(budget)
    for position in range(len(counts)):
        kind = order[:, position]
        time = np.maximum(np.take_along_axis(times, kind[:, None], axis=1)[:, 0], 1)
        taken = np.minimum(counts[kind], left // time)
        layers, left = layers + taken, left - taken * time
    return layers


def once_us(costs: TimeCosts, most: Array | int, bottleneck: Array) -> Array:
    """Exposed exchange, optimizer and overhead of a step."""
    exchange = most * costs.exchange_us + costs.exchange_ends_us
    exposed: Array = np.maximum(-(-3 * exchange // 10), -(-(2 * exchange - bottleneck) // 2))
    whole: Array = exposed + most * costs.optimizer_us + costs.optimizer_ends_us + STEP_OVERHEAD_US
    return whole


__all__ = [
    "NEVER",
    "coarse_host",
    "coarse_memory",
    "coarse_step",
    "ends_slot",
    "mesh_column",
    "most_in_time",
    "once_us",
]
