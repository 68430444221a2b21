"""What a proved plan is given on request: a ranking, the Pareto front, relaxations."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from meshplan.constraints.problem import QUANTA_PER_GIB, Problem
from meshplan.solver.cells import Region
from meshplan.solver.found import Found, InternalError, to_layout
from meshplan.solver.judge import violations
from meshplan.solver.progress import LimitReached, Progress
from meshplan.solver.ranking import fastest_tuples, pareto_front
from meshplan.solver.relaxations import relaxations
from meshplan.solver.results import Alternative, Plan
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

    def reach(self, tolerance: float) -> float | None:
        """How much slower than the fastest layout what is shown may be; None for no limit."""
        return None if self.top else max(tolerance, self.pareto_within or 0)


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
    started = time.monotonic() - plan.proof.wall_s

    def tell(phase: str) -> None:
        if progress is not None:
            objective = plan.proof.objective
            progress(Progress(time.monotonic() - started, objective, objective, 0.0, phase))

    def top() -> dict[str, Any]:
        found = fastest_tuples(search, regions, wanted.top, tell)
        return {"top": _alternatives(plan.problem, found)}

    def front() -> dict[str, Any]:
        assert within is not None
        found = pareto_front(search, regions, int(fastest * (1 + within)), tell)
        return {"pareto": _alternatives(plan.problem, found)}

    def relaxed() -> dict[str, Any]:
        found = relaxations(plan, started=started, deadline=search.deadline, progress=progress)
        return {"relaxations": tuple(found)}

    jobs = {"top": top, "pareto": front, "binding": relaxed}
    asked = {"top": wanted.top > 0, "pareto": within is not None, "binding": wanted.binding}
    for name, job in jobs.items():
        if not asked[name]:
            continue
        tell(name)
        try:
            plan = replace(plan, **job())
        except (LimitReached, KeyboardInterrupt):
            plan = replace(plan, unfinished=(*plan.unfinished, name))
    if any(one.status == "unknown" for one in plan.relaxations):
        plan = replace(plan, unfinished=(*plan.unfinished, "binding"))
    return plan


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
