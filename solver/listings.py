"""What a proved plan is given on request: a ranking, the Pareto front, relaxations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from meshplan.constraints.problem import QUANTA_PER_GIB, Problem
from meshplan.solver.found import Found, InternalError, to_layout
from meshplan.solver.judge import violations
from meshplan.solver.progress import LimitReached, Progress
from meshplan.solver.ranking import fastest_tuples, pareto_front
from meshplan.solver.regions import Region
from meshplan.solver.relaxations import relaxations
from meshplan.solver.results import Alternative, Plan, Relaxation
from meshplan.solver.search import Search


@dataclass(frozen=True)
class Wanted:
    """What is asked for beside the plan.

    Attributes
    ----------
    top
        How many of the fastest degree tuples; 0 for none.
    pareto_within
        How much slower than the fastest layout plans of the Pareto front may be, as a fraction;
        None for no front.
    binding
        Whether each limit, pin and resource is relaxed by one step.
    """

    top: int = 0
    pareto_within: float | None = None
    binding: bool = False


#: Nothing but the plan.
NOTHING = Wanted()


def with_listings(
    plan: Plan,
    wanted: Wanted,
    search: Search,
    regions: Sequence[Region],
    progress: Callable[[Progress], None] | None = None,
) -> Plan:
    """The plan with all that is wanted; what a limit or an interrupt cuts short is ``unfinished``.

    Parameters
    ----------
    search, regions
        Those that found the plan; they are used up.
    """
    within = wanted.pareto_within
    fastest = round(plan.proof.objective * 1_000_000)

    def front() -> dict[str, Any]:
        assert within is not None
        found = pareto_front(search, regions, int(fastest * (1 + within)))
        return {"pareto": _alternatives(plan.problem, found)}

    jobs: dict[str, Callable[[], dict[str, Any]]] = {}
    if wanted.top:
        jobs["top"] = lambda: {
            "top": _alternatives(plan.problem, fastest_tuples(search, regions, wanted.top))
        }
    if within is not None:
        jobs["pareto"] = front
    if wanted.binding:
        jobs["binding"] = lambda: {"relaxations": _relaxed(plan, search.deadline, progress)}
    for name, job in jobs.items():
        if progress is not None:
            objective = plan.proof.objective
            progress(Progress(plan.proof.wall_s, objective, objective, 0.0, name))
        try:
            plan = replace(plan, **job())
        except (LimitReached, KeyboardInterrupt):
            plan = replace(plan, unfinished=(*plan.unfinished, name))
    if any(one.status == "unknown" for one in plan.relaxations):
        plan = replace(plan, unfinished=(*plan.unfinished, "binding"))
    return plan


def _relaxed(
    plan: Plan, deadline: float | None, progress: Callable[[Progress], None] | None
) -> tuple[Relaxation, ...]:
    return tuple(relaxations(plan, deadline=deadline, progress=progress))


def _alternatives(problem: Problem, plans: Sequence[Found]) -> tuple[Alternative, ...]:
    return tuple(alternative(problem, found, "") for found in plans)


def alternative(problem: Problem, found: Found, note: str) -> Alternative:
    """A plan beside the plan.

    Raises
    ------
    InternalError
        If it breaks a rule.
    """
    layout = to_layout(found.decisions, found.slots)
    if broken := violations(problem, layout):
        raise InternalError(f"an alternative breaks {broken[0].rule}: {broken[0].text}")
    return Alternative(layout, found.step / 1e6, found.peak / QUANTA_PER_GIB, note)


__all__ = ["NOTHING", "Wanted", "alternative", "with_listings"]
