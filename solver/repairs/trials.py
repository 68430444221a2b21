"""Re-solves of one problem with fields of its scenario changed, each done once."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from meshplan.constraints.layout import Value
from meshplan.constraints.problem import Problem
from meshplan.scenarios.errors import InputError
from meshplan.solver.changed import changed_problem
from meshplan.solver.diagnosis.arithmetic import least_floor, memory_floors, telling_floor
from meshplan.solver.diagnosis.words import broken_layout_rules
from meshplan.solver.found import Found
from meshplan.solver.progress import LimitReached, Progress
from meshplan.solver.results import Infeasible, Plan, Unknown
from meshplan.solver.search import Search
from meshplan.solver.solve import refuse_other_checkpoints, solve

#: Seconds for the plan that a repair or a limit buys; more only until there is any.  That layouts
#: exist is proved before; a plan that is not proved the fastest in that time says so.
_PLAN_S = 15.0

#: Values to try for one decision instead of its pin or candidates.
Choice = tuple[str, tuple[Value, ...]]


@dataclass(frozen=True)
class Trial:
    """Whether any layout is possible with some changes.

    Attributes
    ----------
    problem
        The changed problem.
    found
        The first plan that was met, of no merit of its own; None if there is none.
    least
        Proved lower bound of the memory of a GPU, averaged over the stages, quanta; None if no
        layout is legal, memory aside.  Where a plan was found it is by arithmetic alone: the
        search went no further, and other layouts may need less than those that it saw.
    """

    problem: Problem
    found: Found | None
    least: int | None

    @property
    def works(self) -> bool:
        """Whether there is a plan."""
        return self.found is not None


@dataclass
class Trials:
    """Trials of one problem.

    Attributes
    ----------
    fixed
        Changes that hold in every trial, by path.
    deadline
        Of ``time.monotonic()``; after it :class:`LimitReached` is raised.
    """

    base: Problem
    deadline: float | None = None
    progress: Callable[[Progress], None] | None = None
    fixed: Mapping[str, object] = field(default_factory=dict)
    known: dict[object, Trial | None] = field(default_factory=dict)
    started: float = field(default_factory=time.monotonic)

    @property
    def problem(self) -> Problem:
        """The problem with the fixed changes; without them where they need others to be allowed."""
        trial = self.trial({}) if self.fixed else None
        return self.base if trial is None else trial.problem

    def given(self, changes: Mapping[str, object]) -> Trials:
        """Trials in which these changes hold, too."""
        return replace(self, fixed={**self.fixed, **changes})

    def trial(self, values: Mapping[str, object], choice: Choice | None = None) -> Trial | None:
        """The trial with these changes; None if no scenario may have them.

        Parameters
        ----------
        values
            By path, as for :func:`~meshplan.solver.changed.changed_problem`.
        choice
            Values of a decision beside, which a scenario could not list all at once.
        """
        whole = {**self.fixed, **values}
        key = (*sorted((path, repr(value)) for path, value in whole.items()), choice)
        if key not in self.known:
            self.known[key] = self._tried(whole, choice)
        return self.known[key]

    def works(self, values: Mapping[str, object]) -> bool:
        """Whether some layout is possible with these changes."""
        trial = self.trial(values)
        return trial is not None and trial.works

    def tell(self, phase: str) -> None:
        """Report what is being looked at."""
        if self.progress is not None:
            self.progress(Progress(time.monotonic() - self.started, phase=phase))

    def plan(self, values: Mapping[str, object]) -> Plan | None:
        """The best plan with these changes, or the best of :data:`_PLAN_S` and of the limit.

        Raises
        ------
        LimitReached
            If the limit came before any plan.
        """
        trial = self.trial(values)
        if trial is None:
            return None
        if self._left() <= 0:
            raise LimitReached
        found = solve(trial.problem, time_limit_s=min(self._left(), _PLAN_S))
        if isinstance(found, Unknown) and found.stopped_by == "limit" and self._left() > 0:
            # No plan yet, on a slow machine say: the lever must not be lost for that.
            left = self._left()
            found = solve(trial.problem, time_limit_s=None if left == math.inf else left)
        if isinstance(found, Unknown):
            raise LimitReached
        return None if isinstance(found, Infeasible) else found

    def _left(self) -> float:
        """Seconds until the deadline."""
        return math.inf if self.deadline is None else self.deadline - time.monotonic()

    def _tried(self, values: Mapping[str, object], choice: Choice | None) -> Trial | None:
        if self._left() <= 0:
            raise LimitReached
        try:
            problem = changed_problem(self.base, values)
            refuse_other_checkpoints(problem)
        except InputError:
            return None
        if choice is not None:
            name, chosen = choice
            pins = tuple(pin for pin in problem.pins if pin.decision != name)
            problem = replace(problem, pins=pins, candidates={**problem.candidates, name: chosen})
        if broken_layout_rules(problem):
            return Trial(problem, None, None)
        if least_floor(problem) is None:
            return Trial(problem, None, telling_floor(problem).device)
        search = Search(problem, deadline=self.deadline)
        if search.any_plan():
            return Trial(problem, search.best, memory_floors(problem)[0].device)
        return Trial(problem, None, search.space.least_mean_memory)


__all__ = ["Choice", "Trial", "Trials"]
