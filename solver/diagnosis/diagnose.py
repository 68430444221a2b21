"""``diagnose``: why nothing fits and what would help, the cheap answers first."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from meshplan.constraints.problem import Problem
from meshplan.solver.diagnosis.arithmetic import findings
from meshplan.solver.diagnosis.cause import cause, figures
from meshplan.solver.diagnosis.conflict import Conflicts
from meshplan.solver.diagnosis.facts import MEMORY, facts
from meshplan.solver.diagnosis.leanest import Leanest, leanest
from meshplan.solver.diagnosis.memory_words import least_mean
from meshplan.solver.diagnosis.near_misses import near_misses
from meshplan.solver.diagnosis.queries import Queries
from meshplan.solver.diagnosis.result import Diagnosis, Part
from meshplan.solver.diagnosis.words import broken_layout_rules
from meshplan.solver.found import InternalError
from meshplan.solver.progress import LimitReached, Progress
from meshplan.solver.repairs import NoHelp, Repair
from meshplan.solver.repairs.search import LEVERS, repairs
from meshplan.solver.results import Conflict, Infeasible, Plan
from meshplan.solver.solve import solve

#: Conflicts that are looked for, at most.
MOST_CONFLICTS = 8

_T = TypeVar("_T")


def diagnose(
    problem: Problem,
    *,
    time_limit_s: float | None = None,
    progress: Callable[[Progress], None] | None = None,
    stated: tuple[str, ...] = (),
) -> Diagnosis:
    """Say why a problem has no layout, and what would give it one.

    Floors by arithmetic come first, then whether anything is possible at all, one irreducible
    conflict, repairs, and further conflicts.

    Parameters
    ----------
    time_limit_s
        Seconds after which what is known is returned; an interrupt (Ctrl-C) does the same.
    progress
        Called whenever something new is asked or known.
    stated
        Fields of the scenario that a given layout pins: repairs keep to these.
    """
    return _Run(problem, time_limit_s, progress, stated).diagnosis()


def is_possible(queries: Queries) -> bool:
    """Whether a problem has any layout, the cheap reasons for none first."""
    problem = queries.problem
    if findings(problem) or broken_layout_rules(problem):
        return False
    if not queries.legal(fact.id for fact in facts(problem) if fact.id != MEMORY):
        return False
    return queries.with_memory(queries.movable) == "fits"


class _Run:
    def __init__(
        self,
        problem: Problem,
        time_limit_s: float | None,
        progress: Callable[[Progress], None] | None,
        stated: tuple[str, ...],
    ) -> None:
        self.problem, self.progress, self.stated = problem, progress, stated
        self.started = time.monotonic()
        self.deadline = None if time_limit_s is None else self.started + time_limit_s
        self.queries = Queries(problem, self.deadline, self._report)
        self.findings = tuple(findings(problem))
        self.conflicts = Conflicts(self.queries)
        self.cut_short: list[Part] = []
        self.phase = "whether anything fits"

    def _report(self, searches: int) -> None:
        if self.progress is not None:
            elapsed = time.monotonic() - self.started
            self.progress(Progress(elapsed, phase=f"{self.phase}: search {searches}"))

    def diagnosis(self) -> Diagnosis:
        possible = self._part("verdict", lambda: is_possible(self.queries))
        if possible is None:
            return self._finished(Diagnosis(self.problem, "unknown", _UNKNOWN, 0.0))
        return self._finished(self._of_plan() if possible else self._infeasible())

    def _finished(self, found: Diagnosis) -> Diagnosis:
        return replace(
            found,
            wall_s=time.monotonic() - self.started,
            findings=self.findings,
            cut_short=tuple(self.cut_short),
            stated=self.stated,
        )

    def _part(self, name: Part, work: Callable[[], _T]) -> _T | None:
        """What ``work`` gives; None, and a note, where a limit or an interrupt stops it."""
        try:
            return work()
        except LimitReached:
            self.cut_short.append(name)
        except KeyboardInterrupt:
            self.cut_short.append(name)
            self.deadline = self.queries.deadline = time.monotonic()  # all that follows is cut, too
        return None

    # -- nothing fits --------------------------------------------------------------------------

    def _infeasible(self) -> Diagnosis:
        self.phase = "conflict"
        first = self._part("conflict", self.conflicts.first)
        if first is None:
            text = " ".join([*(f"Arithmetic: {one.text}." for one in self.findings), _NO_CONFLICT])
            return Diagnosis(self.problem, "infeasible", text, 0.0)
        if not first.minimal:
            self.cut_short.append("conflict")
        core = self.conflicts.members(first) - {MEMORY}
        is_memory = MEMORY in first.rules
        least = least_mean(self.queries, core) if is_memory else None
        example = self._part("example", lambda: self._example(core, least)) if is_memory else None
        text = cause(self.problem, first, self.findings, least, example)
        found: list[Repair | NoHelp] = []
        self._part("repairs", lambda: self._repair(found))
        conflicts = [first]
        self.phase = "further conflicts"
        self._part("conflicts", lambda: self._further(conflicts))
        return Diagnosis(
            self.problem,
            "infeasible",
            text,
            0.0,
            facts=figures(self.problem, least, example),
            conflicts=tuple(conflicts),
            complete=self.conflicts.complete,
            repairs=tuple(one for one in found if isinstance(one, Repair)),
            no_help=tuple(one for one in found if isinstance(one, NoHelp)),
        )

    def _example(self, core: frozenset[str], least: int | None) -> Leanest | None:
        """A lean layout with the pins of the conflict, unless arithmetic has said it all."""
        if any(one.rule == MEMORY for one in self.findings):
            return None
        return leanest(self.queries, core, least or self.problem.capacity)

    def _repair(self, found: list[Repair | NoHelp]) -> None:
        """Repairs, and levers that cannot help; of a stated layout only its own values."""
        levers = LEVERS
        if self.stated:
            levers = tuple(lever for lever in LEVERS if lever.name in (*self.stated, "layout"))
        for one in repairs(
            self.problem, deadline=self.deadline, progress=self.progress, levers=levers
        ):
            found.append(one)

    def _further(self, conflicts: list[Conflict]) -> None:
        for one in self.conflicts.every(MOST_CONFLICTS):
            if one not in conflicts:
                conflicts.append(one)

    # -- something fits ------------------------------------------------------------------------

    def _of_plan(self) -> Diagnosis:
        plan = self._part("near_misses", self._plan)
        misses = () if plan is None else self._part("near_misses", lambda: self._misses(plan))
        text = "Layouts exist that obey all rules, pins and limits and fit in memory."
        return Diagnosis(self.problem, "possible", text, 0.0, plan=plan, near_misses=misses or ())

    def _plan(self) -> Plan:
        left = None if self.deadline is None else self.deadline - time.monotonic()
        if left is not None and left <= 0:
            raise LimitReached
        found = solve(self.problem, time_limit_s=left, progress=self.progress)
        if isinstance(found, Infeasible):
            raise InternalError("a layout was found, but the search says that there is none")
        if not isinstance(found, Plan):
            raise LimitReached
        return found

    def _misses(self, plan: Plan) -> tuple[str, ...]:
        return near_misses(plan, self.deadline)


_UNKNOWN = "The time was up before it was known whether any layout fits."
_NO_CONFLICT = "It is proved that no layout fits; the time was up before the clash was known."
