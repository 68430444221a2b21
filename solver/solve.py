"""``solve``: a plan with its proof, a proof that none exists, or what a limit left."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Literal

from meshplan.constraints.advisories import ALL_ADVISORIES
from meshplan.constraints.layout import Layout
from meshplan.constraints.memory.stage import RankMemory
from meshplan.constraints.parts import on_part
from meshplan.constraints.problem import Problem
from meshplan.constraints.rule import Rule
from meshplan.scenarios.errors import InputError
from meshplan.solver.binding import binding
from meshplan.solver.cells import Region
from meshplan.solver.diagnosis.arithmetic import least_floor
from meshplan.solver.diagnosis.conflict import conflict
from meshplan.solver.diagnosis.words import broken_layout_rules
from meshplan.solver.found import Found, InternalError, to_layout
from meshplan.solver.judge import cost, violations
from meshplan.solver.listings import NOTHING, Wanted, alternative, with_listings
from meshplan.solver.progress import LimitReached, Progress
from meshplan.solver.ranking import degree_tuple
from meshplan.solver.results import Alternative, Infeasible, Plan, Proof, Unknown
from meshplan.solver.search import Search
from meshplan.solver.used import PartSearch

#: Other layouts that a plan shows, at most.
_ALTERNATIVES = 4


def solve(
    problem: Problem,
    *,
    time_limit_s: float | None = None,
    progress: Callable[[Progress], None] | None = None,
    wanted: Wanted = NOTHING,
) -> Plan | Infeasible | Unknown:
    """Best plan of a problem, by throughput, then DP within the tolerance, then memory headroom.

    Parameters
    ----------
    time_limit_s
        Seconds after which the best plan so far is returned with its bound.  An interrupt
        (Ctrl-C) does the same.
    progress
        Called whenever the best plan or the bound changes.
    wanted
        What a proved plan is given beside.
    """
    refuse_other_checkpoints(problem)
    run = _Run(problem, time_limit_s, progress, wanted)
    try:
        found = run.complete()
    except LimitReached:
        return run.interrupted("limit")
    except KeyboardInterrupt:
        return run.interrupted("interrupt")
    if isinstance(found, Plan):
        return with_listings(found, wanted, run.search, run.regions, progress)
    return found


def refuse_other_checkpoints(problem: Problem) -> None:
    """Refuse full recompute that depends on how many layers a stage holds.

    The costs of a layer would depend on its place; the search tabulates them by kind.
    """
    training = problem.training
    if training.recompute_method == "uniform" and training.recompute_layers == 1:
        return
    if 1 not in problem.domain("rc_full"):
        return
    raise InputError(
        f"training.recompute_method = {training.recompute_method} with recompute_num_layers = "
        f"{training.recompute_layers}: the search chooses full recompute of every layer only",
        advice="use check or memory for this layout, or leave full recompute out of "
        "options.recompute.",
    )


class _Run:
    """One search with its clock; ``wanted`` is what else will be asked of it."""

    def __init__(
        self,
        problem: Problem,
        time_limit_s: float | None,
        progress: Callable[[Progress], None] | None,
        wanted: Wanted = NOTHING,
    ) -> None:
        self.started = time.monotonic()
        self.problem, self.progress, self.wanted = problem, progress, wanted
        self.deadline = None if time_limit_s is None else self.started + time_limit_s
        self.parts: PartSearch | None = None
        self.search = self._search_of(problem)
        self.regions: list[Region] = []
        self.fastest: int | None = None
        self.phase = "throughput"

    def _search_of(self, problem: Problem, rules: Sequence[Rule] | None = None) -> Search:
        reach = self.wanted.reach(problem.limits.dp_tolerance)
        return Search(
            problem, rules=rules, deadline=self.deadline, report=self._report, reach=reach
        )

    def _elapsed(self) -> float:
        return time.monotonic() - self.started

    def _report(self, best: int | None, bound: int) -> None:
        if self.progress is None:
            return
        gap = None if best is None else (best - bound) / best
        incumbent = None if best is None else best / 1e6
        self.progress(Progress(self._elapsed(), incumbent, bound / 1e6, gap, self.phase))

    def complete(self) -> Plan | Infeasible:
        """The whole search."""
        if self.problem.whole is not None:
            self._choose_part(self.problem)
        search, problem = self.search, self.problem
        if broken_layout_rules(problem) or least_floor(problem) is None:
            return self._infeasible()
        regions = self.regions = search.regions()
        if self.fastest is None:
            self.fastest = search.fastest(regions)
        if self.fastest is None:
            return self._infeasible()
        first = search.best
        assert first is not None
        most = int(self.fastest * (1 + problem.limits.dp_tolerance))
        self._enter("data parallelism")
        kept = search.most_data_parallel(regions, most)
        self._enter("memory")
        peak = search.least_peak(kept, most)
        self._enter("ties")
        search.canonical(kept, most, peak)
        assert search.best is not None
        alternatives = self._alternatives(first, regions, most)
        return self._plan(search.best, proved=True, alternatives=alternatives)

    def _choose_part(self, problem: Problem) -> None:
        """Choose the GPUs to use; what follows looks for the best plan on them."""
        self.parts = chosen = PartSearch(problem, self.deadline, self._report)
        try:
            chosen.run()
            self.fastest = chosen.best_step
        finally:
            self._take_part(chosen)

    def _take_part(self, chosen: PartSearch) -> None:
        """Go on with the fastest plan of the parts, or the largest part if there is none."""
        if chosen.best is None:
            largest = max((one.part for one in chosen.tried), key=attrgetter("gpus"), default=None)
            if largest is not None:
                self.problem = on_part(self.problem, largest)
                self.search = self._search_of(self.problem)
            return
        self.problem = on_part(self.problem, chosen.best.part)
        self.search = self._search_of(
            self.problem, chosen.rules() if self.wanted == NOTHING else None
        )
        assert chosen.best.found is not None
        self.search.take(chosen.best.found)
        self.search.bound = chosen.bound

    def _enter(self, phase: str) -> None:
        self.phase = phase
        self._report(self.fastest, self.search.bound)

    def _infeasible(self) -> Infeasible:
        found = conflict(self.problem, self.deadline)
        return Infeasible(self.problem, (found,), self._elapsed())

    def interrupted(self, by: Literal["limit", "interrupt"]) -> Plan | Unknown:
        """What is known when a limit or an interrupt stops the search."""
        if self.search.best is None:
            return Unknown(self.problem, self.search.bound / 1e6, self._elapsed(), by)
        plan = self._plan(self.search.best, proved=False, alternatives=())
        return replace(plan, stopped_by=by)

    def _plan(self, found: Found, *, proved: bool, alternatives: tuple[Alternative, ...]) -> Plan:
        layout = to_layout(found.decisions, found.slots)
        broken = violations(self.problem, layout)
        if broken:
            raise InternalError(f"the plan breaks {broken[0].rule}: {broken[0].text}")
        spent = cost(self.problem, layout)
        objective = self.fastest
        if objective is None:
            objective = self.search.scaled_step(found)
        bound = objective if self.fastest is not None else min(self.search.bound, objective)
        counts = [self.search.statistics, *([] if self.parts is None else [self.parts.statistics])]
        proof = Proof(
            objective=objective / 1e6,
            bound=bound / 1e6,
            gap=(objective - bound) / objective,
            wall_s=self._elapsed(),
            cells=sum(one.cells for one in counts),
            programs=sum(one.programs for one in counts),
        )
        return Plan(
            problem=self.problem,
            status="optimal" if proved else "feasible",
            layout=layout,
            cost=spent,
            proof=proof,
            advisories=advise(self.problem, layout, spent.ranks),
            binding=binding(self.problem, layout, spent),
            alternatives=alternatives,
            parts=() if self.parts is None else self.parts.results(),
        )

    def _alternatives(
        self, first: Found, regions: Sequence[Region], most: int
    ) -> tuple[Alternative, ...]:
        """The fastest plan, then other degrees within the tolerance, by their bounds."""
        chosen = self.search.best
        assert chosen is not None
        seen = {degree_tuple(chosen.decisions)}
        shown: list[Alternative] = []
        other = degree_tuple(first.decisions) not in seen
        if other or self.search.scaled_step(first) < self.search.scaled_step(chosen):
            seen.add(degree_tuple(first.decisions))
            shown.append(alternative(self.problem, first, "fastest"))
        for found in self.search.others(regions, most, seen, _ALTERNATIVES - len(shown)):
            shown.append(alternative(self.problem, found, "within the tolerance"))
        return tuple(sorted(shown, key=lambda other: other.step_s))


def advise(
    problem: Problem, layout: Layout, ranks: tuple[RankMemory, ...]
) -> tuple[tuple[str, str], ...]:
    """Advisories that apply to a layout, as (id, text)."""
    found = []
    for advisory in ALL_ADVISORIES:
        text = advisory.check(problem, layout, ranks)
        if text is not None:
            found.append((advisory.id, text))
    return tuple(found)
