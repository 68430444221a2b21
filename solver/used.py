"""How many GPUs of a cluster are used: the part with the most tokens/s of the whole cluster.

All parts (:mod:`meshplan.constraints.parts`) are looked at in the order of a bound of their step
time (:mod:`meshplan.solver.rates`).  One after the other is searched for a plan that is faster than
the best so far.  When the bound of the next part is no better, neither are those of all that
follow, and the best plan is the fastest of all parts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

from meshplan.constraints.parts import Part, on_part, parts, parts_of
from meshplan.constraints.problem import Problem
from meshplan.constraints.rule import Rule
from meshplan.solver.bounds import NEVER
from meshplan.solver.found import Found
from meshplan.solver.judge import active_rules
from meshplan.solver.rates import Rates, rates
from meshplan.solver.refiner import Statistics
from meshplan.solver.results import TriedPart
from meshplan.solver.search import Search


@dataclass(frozen=True)
class Tried:
    """What is known of one part.

    Attributes
    ----------
    bound
        What no plan on it beats: step time scaled to the largest batch, us; ``NEVER`` where it is
        proved that there is none.
    found
        Its fastest plan, where one was found that was the best at the time.
    searched
        Whether the bound comes from a search.
    """

    part: Part
    bound: int
    found: Found | None = None
    searched: bool = False


@dataclass
class PartSearch:
    """Looks for the part whose fastest plan is the fastest of all.

    Attributes
    ----------
    problem
        A problem with a whole cluster.
    deadline
        ``time.monotonic()`` after which :meth:`run` raises ``LimitReached``.
    report
        Called with the best scaled step time so far, and the bound of all parts.
    tried
        All parts, in the order of their bounds.
    best, best_step
        The part with the fastest plan so far, and its scaled step time; None before there is one.
    statistics
        What the searches looked at.
    """

    problem: Problem
    deadline: float | None = None
    report: Callable[[int | None, int], None] | None = None
    tried: list[Tried] = field(default_factory=list)
    best: Tried | None = None
    best_step: int | None = None
    statistics: Statistics = field(default_factory=Statistics)
    rates: Rates | None = None

    @property
    def bound(self) -> int:
        """What no plan on any part beats, us, scaled; 0 before the parts are known."""
        return min((one.bound for one in self.tried), default=0)

    def run(self) -> None:
        """Search the parts.

        Raises
        ------
        LimitReached
            At the deadline; the attributes then hold what is known.
        """
        problem = self.problem
        self.rates = known = rates(problem)
        candidates = parts(problem) if problem.gpus_open else parts_of(problem, problem.gpus)
        bounded = (Tried(part, known.least_step(part)) for part in candidates)
        self.tried = sorted(bounded, key=lambda one: (one.bound, -one.part.gpus))
        for index, one in enumerate(self.tried):
            if one.bound > self._most(one.part):
                break
            self._search(index, known)

    def _most(self, part: Part) -> int:
        """Longest step, us, scaled, with which a part is better than the best one.

        It must be faster, or as fast with fewer GPUs.
        """
        if self.best is None or self.best_step is None:
            return NEVER - 1
        return self.best_step - (part.gpus >= self.best.part.gpus)

    def _search(self, index: int, known: Rates) -> None:
        """Look for a plan on a part that makes it the best one."""
        one = self.tried[index]
        most, first = self._most(one.part), self.best is None
        problem = on_part(self.problem, one.part)
        rules = active_rules(problem)
        if not first:
            rules = (*rules, known.fast_enough(one.part, most))
        report = self._report(index)
        search = Search(problem, rules=rules, deadline=self.deadline, report=report, reach=0)
        if not first:
            search.must_beat(most + 1)
        bound = one.bound
        try:
            step = search.fastest(search.regions())
            bound = max(bound, (NEVER if first else most + 1) if step is None else step)
        except BaseException:
            bound = max(bound, min(search.bound, most + 1))
            raise
        finally:
            self.tried[index] = replace(one, bound=bound, found=search.best, searched=True)
            self.statistics.cells += search.statistics.cells
            self.statistics.programs += search.statistics.programs
            if search.best is not None:
                self.best, self.best_step = self.tried[index], search.best_step()

    def rules(self) -> tuple[Rule, ...]:
        """Rules for a search on the best part that keep all layouts within the tolerance."""
        assert self.rates is not None and self.best is not None and self.best_step is not None
        most = int(self.best_step * (1 + self.problem.limits.dp_tolerance))
        fast_enough = self.rates.fast_enough(self.best.part, most)
        return (*active_rules(on_part(self.problem, self.best.part)), fast_enough)

    def results(self) -> tuple[TriedPart, ...]:
        """What is known of each part, for reports."""
        return tuple(self._result(one) for one in self.tried)

    def _result(self, one: Tried) -> TriedPart:
        step_s = None if one.bound >= NEVER else one.bound / 1e6
        status: Literal["used", "slower", "bound", "none", "open"] = "open"
        if self.best is not None and one.part == self.best.part:
            status = "used"
        elif step_s is None:
            status = "none"
        elif one.bound > self._most(one.part):
            status = "slower" if one.searched else "bound"
        return TriedPart(one.part.gpus, one.part.group, status, step_s)

    def _report(self, index: int) -> Callable[[int | None, int], None]:
        """Passes on what the search of one part knows, as what is known of all."""
        others = min((one.bound for one in self.tried[index + 1 :]), default=NEVER)
        before = self.best_step

        def report(best: int | None, bound: int) -> None:
            steps = [step for step in (best, before) if step is not None]
            if self.report is not None:
                self.report(min(steps, default=None), min(bound, others, *steps))

        return report


__all__ = ["PartSearch", "Tried"]
