"""Why a given layout is not the optimum: what ``meshplan why`` does."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, TypeAlias

from meshplan.constraints.layout import Layout
from meshplan.constraints.problem import QUANTA_PER_GIB, Problem
from meshplan.constraints.resolve import resolve
from meshplan.scenarios.schema import Scenario
from meshplan.solver.check import check
from meshplan.solver.compare.decisions import Difference, differences
from meshplan.solver.compare.flips import Flip, flips
from meshplan.solver.compare.terms import TimeComparison, Timed, compare_times
from meshplan.solver.progress import Progress
from meshplan.solver.results import CheckReport, Infeasible, Plan, Unknown
from meshplan.solver.shown import Shown

WhyStatus: TypeAlias = Literal[
    "optimal", "tie", "slower", "faster", "illegal", "overfull", "infeasible", "unknown"
]


@dataclass(frozen=True)
class WhyReport(Shown):
    """A given layout against the optimum of its scenario.

    Attributes
    ----------
    given
        The layout, judged.
    answer
        The optimum, or the proof that there is none, or what a limit left.
    times
        The two step times, term by term; None where one of them has none, or where the given mesh
        is not that of the cluster.
    differences
        The decisions in which the two differ.
    flips
        Each of them changed alone, from the given layout towards the optimum; none where the two
        use different numbers of GPUs.
    """

    given: CheckReport
    answer: Plan | Infeasible | Unknown
    times: TimeComparison | None = None
    differences: tuple[Difference, ...] = ()
    flips: tuple[Flip, ...] = ()

    @property
    def problem(self) -> Problem:
        """The resolved scenario."""
        return self.answer.problem

    @property
    def status(self) -> WhyStatus:
        """The answer in a word.

        ``illegal`` and ``overfull`` say so of the given layout; else ``infeasible`` and ``unknown``
        of the search; else how it does against the optimum: it is it (``optimal``), differs in
        less than the error band (``tie``), or is ``slower``, or ``faster``, which it can only be
        where it takes what the scenario keeps from the search.
        """
        if self.given.status != "ok":
            return self.given.status
        if not isinstance(self.answer, Plan):
            return self.answer.status
        assert self.times is not None
        if not self.differences:
            return "optimal"
        return "tie" if self.times.verdict == "equal" else self.times.verdict

    @property
    def proved(self) -> bool:
        """Whether the search was not cut short."""
        return self.answer.status in ("optimal", "infeasible")

    @property
    def least_us(self) -> int | None:
        """Step time that no layout of the search is proved to beat, for the given batch, us."""
        if not isinstance(self.answer, Plan):
            return None
        layout, problem = self.given.layout, self.problem
        largest = max(int(size) for size in problem.candidates["gbs"])
        return round(Fraction(self.answer.proof.bound) * 1_000_000 * layout.gbs / largest)

    @property
    def preferred_for(self) -> str | None:
        """By which criterion of the search the optimum comes before the given layout.

        ``time`` (beyond the tolerance, or the last figure that differs), ``dp``, ``memory`` (whole
        GiB) or ``order``; None where the given layout is the optimum or the search cannot have it.
        """
        if self.status not in ("tie", "slower") or not isinstance(self.answer, Plan):
            return None
        assert self.given.cost is not None and self.times is not None
        layout, plan, least = self.given.layout, self.answer, self.least_us
        assert least is not None
        if self.given.problem.gpus != plan.problem.gpus:
            return "time"
        if self.times.first_us > least * (1 + self.problem.limits.dp_tolerance):
            return "time"
        if layout.dp != plan.layout.dp:
            return "dp" if layout.dp < plan.layout.dp else None
        mine, best = (-(-cost.peak // QUANTA_PER_GIB) for cost in (self.given.cost, plan.cost))
        if mine != best:
            return "memory" if mine > best else None
        if self.times.difference_us:
            return "time" if self.times.difference_us > 0 else None
        return "order"

    def to_json(self) -> dict[str, Any]:
        """The answer as plain data, by the contract ``meshplan_result: 1``."""
        from meshplan.solver.report.compare_data import why_data

        return why_data(self)


def why(
    scenario: Scenario,
    layout: Layout | Mapping[str, object] | str | None = None,
    *,
    time_limit_s: float | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> WhyReport:
    """Hold a layout against the optimum of its scenario.

    Parameters
    ----------
    layout
        As for :func:`~meshplan.solver.check.check`.
    time_limit_s, progress
        As for :func:`~meshplan.solver.solve.solve`.

    Raises
    ------
    InputError
        If scenario or layout cannot be read.
    """
    deadline = None if time_limit_s is None else time.monotonic() + time_limit_s
    given = check(scenario, layout)
    from meshplan.solver.solve import solve  # reports are made without it

    answer = solve(resolve(scenario), time_limit_s=time_limit_s, progress=progress)
    if not isinstance(answer, Plan):
        return WhyReport(given, answer)
    return _against(given, answer, deadline)


def _against(given: CheckReport, plan: Plan, deadline: float | None) -> WhyReport:
    problem = plan.problem
    times = None
    same_gpus = given.problem.gpus == problem.gpus
    if given.cost is not None and given.layout.gpus == given.problem.gpus:
        times = compare_times(
            Timed(given.problem, given.layout, given.cost.time),
            Timed(problem, plan.layout, plan.cost.time),
            per_gpu=same_gpus,
        )
    return WhyReport(
        given,
        plan,
        times,
        differences(problem, given.layout, plan.layout),
        tuple(flips(problem, given.layout, plan.layout, deadline)) if same_gpus else (),
    )


__all__ = ["WhyReport", "why"]
