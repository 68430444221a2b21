"""The search for the limits: one quantity after the other, within one time limit."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from meshplan.constraints.problem import Problem
from meshplan.solver.limits.quantities import QUANTITIES, Quantity
from meshplan.solver.limits.results import Limit, LimitsReport
from meshplan.solver.progress import LimitReached, Progress
from meshplan.solver.repairs.trials import Trials
from meshplan.solver.results import Plan


def limits(
    problem: Problem,
    *,
    time_limit_s: float | None = None,
    progress: Callable[[Progress], None] | None = None,
    quantities: Sequence[Quantity] = QUANTITIES,
) -> LimitsReport:
    """How far each quantity can go with all other fields of the scenario as they are.

    Parameters
    ----------
    time_limit_s
        Seconds for all of them; what is known then is kept, and marked as not proved.
    """
    started = time.monotonic()
    deadline = None if time_limit_s is None else started + time_limit_s
    trials = Trials(problem, deadline, progress)
    try:
        possible: bool | None = trials.works({})
    except LimitReached:
        possible = None
    found = tuple(search_limits(trials, quantities))
    return LimitsReport(problem, possible, found, time.monotonic() - started)


def search_limits(trials: Trials, quantities: Sequence[Quantity] = QUANTITIES) -> Iterator[Limit]:
    """The same for a problem that is given by its trials."""
    for quantity in quantities:
        if quantity.applies(trials.base):
            yield _limit(trials, quantity)


def _limit(trials: Trials, quantity: Quantity) -> Limit:
    problem = trials.base
    trials.tell(f"limit: {quantity.title}")
    value: int | None = None
    plan: Plan | None = None
    proved = False
    try:
        for value in quantity.possible(trials):  # noqa: B007 - the last one is the best
            pass
        proved = True
        if value is not None:
            plan = trials.plan(quantity.changes(problem, value))
    except LimitReached:
        pass
    return Limit(
        path=quantity.field(problem),
        title=quantity.title,
        now=quantity.now(problem),
        value=value,
        proved=proved,
        proof=quantity.proof(problem, value) if proved else "the time was up before the proof",
        bounded=value is None or quantity.bounded(value),
        plan=plan,
    )


__all__ = ["limits", "search_limits"]
