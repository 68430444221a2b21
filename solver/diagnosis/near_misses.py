"""What a plan that fits is close to: little headroom, no data parallelism, tight neighbours."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from typing import TypeVar

from meshplan.constraints.layout import Layout
from meshplan.constraints.memory.verdict import TIGHT_SHARE
from meshplan.constraints.problem import QUANTA_PER_GIB, Problem
from meshplan.solver.change import with_degrees
from meshplan.solver.check import judge_layout
from meshplan.solver.compare.splits import best_split, nearest_split
from meshplan.solver.diagnosis.words import joined
from meshplan.solver.layout_text import stated_by
from meshplan.solver.progress import LimitReached
from meshplan.solver.results import CheckReport, Infeasible, Plan, Unknown

_Answer = TypeVar("_Answer", bound=Plan | Infeasible | Unknown)

#: Degrees that are halved and doubled for the neighbours of a layout.
_DEGREES = ("tp", "cp", "pp", "ep", "mbs")


def with_near_misses(found: _Answer, time_limit_s: float | None = None) -> _Answer:
    """A plan with what it is close to, without it if Ctrl-C comes first; else the answer as it is.

    Nothing is split anew for a plan whose search was stopped, nor after the limit, in seconds,
    of which the search had its part.
    """
    if not isinstance(found, Plan):
        return found
    deadline = None
    if time_limit_s is not None:
        deadline = time.monotonic() + time_limit_s - found.proof.wall_s
    if found.stopped_by is not None:
        deadline = time.monotonic()
    try:
        return dataclasses.replace(found, near_misses=near_misses(found, deadline))
    except KeyboardInterrupt:
        return found


def near_misses(plan: Plan, deadline: float | None = None) -> tuple[str, ...]:
    """Sentences on how near a plan is to not being possible; none for one with room on all sides.

    Parameters
    ----------
    deadline
        Of ``time.monotonic()``; neighbours whose layers would have to be split anew after it are
        left out.
    """
    return (*_memory(plan), *_data_parallelism(plan), *_neighbours(plan, deadline))


def _memory(plan: Plan) -> Iterator[str]:
    problem = plan.problem
    fullest = max(plan.cost.ranks, key=lambda rank: rank.peak)
    room = problem.capacity - fullest.peak
    if room < TIGHT_SHARE * problem.capacity:
        yield (
            f"Memory is tight: {fullest.peak / QUANTA_PER_GIB:.1f} of "
            f"{problem.capacity / QUANTA_PER_GIB:.1f} GiB on pipeline rank {fullest.rank}, "
            f"{room / QUANTA_PER_GIB:.1f} GiB to spare. Test it before a long run."
        )
    host = max(rank.host for rank in plan.cost.ranks)
    if host > (1 - TIGHT_SHARE) * problem.host_capacity:
        yield (
            f"Host memory is tight: {host / QUANTA_PER_GIB:.1f} of "
            f"{problem.host_capacity / QUANTA_PER_GIB:.1f} GiB for each GPU."
        )


def _data_parallelism(plan: Plan) -> Iterator[str]:
    layout, limits = plan.layout, plan.problem.limits
    if layout.dp == 1 and layout.gpus > 1:
        yield (
            f"dp is 1: all {layout.gpus:,} GPUs hold one copy of the model, so nothing is left "
            "to give up for a larger model or a longer sequence."
        )
    elif limits.min_dp > 1 and layout.dp == limits.min_dp:
        yield f"dp is {layout.dp}, the least that limits.min_dp allows."


def _neighbours(plan: Plan, deadline: float | None) -> Iterator[str]:
    """That most layouts with one degree halved or doubled need too much memory, if so."""
    legal = [
        (change, report)
        for change, report in _each_neighbour(plan, deadline)
        if report.status != "illegal"
    ]
    overfull = [change for change, report in legal if report.status == "overfull"]
    if len(overfull) * 2 <= len(legal):
        return
    if len(legal) == 1:
        yield (
            "The one legal layout with one degree halved or doubled does not fit into memory: "
            f"{overfull[0]}."
        )
        return
    yield (
        f"{len(overfull)} of the {len(legal)} legal layouts with one degree halved or doubled "
        f"do not fit into memory: {joined(overfull)}."
    )


def _each_neighbour(plan: Plan, deadline: float | None) -> Iterator[tuple[str, CheckReport]]:
    problem, layout = plan.problem, plan.layout
    for name in _DEGREES:
        now = int(layout.value(name))
        for value in (now // 2, now * 2):
            if value == 0 or value not in problem.domain(name):
                continue
            changed = with_degrees(problem, stated_by(layout), layout, {name: value})
            if changed.pp != layout.pp:
                split = _split_anew(problem, changed, deadline)
                if split is None:
                    continue
                changed = split
            yield f"{name} = {value}", judge_layout(problem, changed)


def _split_anew(problem: Problem, layout: Layout, deadline: float | None) -> Layout | None:
    """The layout with a split that fits, near-even where none does; None if the time is up."""
    try:
        slots = best_split(problem, layout, deadline)
    except LimitReached:
        return None
    return dataclasses.replace(layout, slots=slots or nearest_split(problem, layout))
