"""What holds a plan, in sentences: memory, the largest work, the pipeline, the links, DP."""

from __future__ import annotations

from collections.abc import Iterator

from meshplan.constraints.layout import Layout
from meshplan.constraints.memory.verdict import TIGHT_SHARE
from meshplan.constraints.problem import QUANTA_PER_GIB, Problem
from meshplan.solver.breakdown import step_breakdown_us
from meshplan.solver.judge import Cost

#: Share of the step from which an exchange is told.
_NOTICED = 0.01


def binding(problem: Problem, layout: Layout, spent: Cost) -> tuple[str, ...]:
    """Sentences on what holds the plan; :mod:`~meshplan.solver.relaxations` has the gains."""
    return tuple(_lines(problem, layout, spent))


def _lines(problem: Problem, layout: Layout, spent: Cost) -> Iterator[str]:
    heaviest = max(spent.ranks, key=lambda rank: rank.peak)
    share = heaviest.peak / problem.capacity
    if share > 1 - TIGHT_SHARE:
        yield (
            f"memory: stage {heaviest.rank} peaks at {heaviest.peak / QUANTA_PER_GIB:.1f} of "
            f"{problem.capacity / QUANTA_PER_GIB:.1f} GiB ({share:.0%}, {heaviest.event})"
        )
    step = spent.time.step_us
    parts = step_breakdown_us(problem, layout, spent.time)
    largest = max(parts, key=lambda name: parts[name])
    title = largest.replace("_", " ")
    yield f"work: most time goes to {title}, {parts[largest] / step:.0%} of the step"
    times = spent.time.rank_us
    slowest = times.index(max(times))
    mean = sum(times) / len(times)
    if len(times) > 1:
        yield (
            f"pipeline: stage {slowest} is the slowest, {max(times) / mean - 1:.1%} over the mean; "
            f"fill and drain take {spent.time.bubble_us / step:.1%} of the step"
        )
    for part, title, size, stride in (
        ("expert_dispatch", "EP", layout.ep, layout.etp),
        ("tensor_parallel_exchange", "TP", layout.tp, 1),
        ("context_parallel_exchange", "CP", layout.cp, layout.tp),
        ("data_parallel_exchange", "DP", layout.dp * layout.cp, layout.tp),
    ):
        if parts[part] >= _NOTICED * step:
            where = _link(problem, size, stride)
            yield f"{part.replace('_', ' ')}: {parts[part] / step:.1%} of the step; {title} {where}"
    if layout.dp == 1:
        yield "data parallelism: none left (dp = 1)"


def _link(problem: Problem, size: int, stride: int) -> str:
    """Which link the groups of this size cross."""
    cluster = problem.cluster
    domains = -(-size // cluster.ranks_per_domain(size, stride))
    over = f"at {cluster.link_gbps(cluster.group_tier(size, stride)):g} GB/s a GPU"
    if domains == 1:
        return f"groups of {size} stay in one NVLink domain, {over}"
    return f"groups of {size} span {domains} NVLink domains, over the network {over}"


__all__ = ["binding"]
