"""What is possible with some of the facts: the questions of a diagnosis, each asked once.

A question about memory is a search, and searches are what a diagnosis costs.  So arithmetic and
earlier answers are asked first: what fits with more facts fits with fewer, and what does not fit
with fewer does not with more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cached_property
from typing import Literal, TypeAlias

from meshplan.constraints.problem import Problem
from meshplan.constraints.split_rules import SLOTS_HOLD_LAYERS, split_rule
from meshplan.solver.diagnosis.arithmetic import least_floor
from meshplan.solver.diagnosis.facts import LIMIT_RULES, PIPELINE_PIN, movable_facts
from meshplan.solver.diagnosis.legality import Legality
from meshplan.solver.diagnosis.words import broken_layout_rules
from meshplan.solver.found import Found
from meshplan.solver.judge import active_rules
from meshplan.solver.progress import LimitReached
from meshplan.solver.search import Search

#: How a set of pins and limits does under the framework's rules.
Answer: TypeAlias = Literal["fits", "overfull", "illegal"]

#: Times the host memory that no layout needs more of.
_AMPLE_HOSTS = 1000


class Queries:
    """Answers about one problem.

    Parameters
    ----------
    deadline
        Of ``time.monotonic()``; questions after it raise
        :class:`~meshplan.solver.progress.LimitReached`.
    report
        Called with the number of searches before each of them.
    """

    def __init__(
        self,
        problem: Problem,
        deadline: float | None = None,
        report: Callable[[int], None] | None = None,
    ) -> None:
        self.problem, self.deadline, self.report = problem, deadline, report
        self.searches = 0
        self._answers: dict[frozenset[str], Answer] = {}
        self._legal: dict[frozenset[str], bool] = {}
        #: Least memory per GPU, averaged over the stages, of any layout with these facts, quanta.
        self.least: dict[frozenset[str], int | None] = {}
        #: A layout that fits with these facts.
        self.found: dict[frozenset[str], Found] = {}

    @cached_property
    def legality(self) -> Legality:
        """Rules and pins without memory."""
        return Legality(self.problem, active_rules(self.problem))

    @cached_property
    def movable(self) -> tuple[str, ...]:
        """Pins and limits that a conflict about memory may rest on, in fixed order."""
        return tuple(fact.id for fact in movable_facts(self.problem))

    def legal(self, ids: Iterable[str]) -> bool:
        """Whether a layout obeys these rules and pins, whatever memory it needs."""
        key = frozenset(ids)
        if key not in self._legal:
            self._check_time()
            self._legal[key] = self.legality.possible(sorted(key))
        return self._legal[key]

    def obeys_framework(self, ids: Iterable[str]) -> bool:
        """Whether a layout with these pins and limits is legal, whatever memory it needs."""
        kept = frozenset(ids)
        if PIPELINE_PIN in kept and broken_layout_rules(self.problem):
            return False
        rules = {rule.id for rule in active_rules(self.problem)} - {*LIMIT_RULES}
        split = split_rule(self.problem) if PIPELINE_PIN in kept else SLOTS_HOLD_LAYERS
        return self.legal(kept | rules | {split.id})

    def with_memory(self, ids: Iterable[str]) -> Answer:
        """How these pins and limits do, the framework's rules and the memory beside them."""
        key = frozenset(ids)
        known = self._known(key)
        if known is None:
            known = self._asked(key)
            self._answers[key] = known
        return known

    def _known(self, key: frozenset[str]) -> Answer | None:
        if key in self._answers:
            return self._answers[key]
        for other, answer in self._answers.items():
            if answer == "fits" and key <= other:
                return answer
            if answer == "illegal" and other <= key:
                return answer
        overfull = any(a == "overfull" and other <= key for other, a in self._answers.items())
        if overfull:
            return "overfull" if self.obeys_framework(key) else "illegal"
        return None

    def _asked(self, key: frozenset[str]) -> Answer:
        self._check_time()
        if not self.obeys_framework(key):
            return "illegal"
        problem = self.restricted(key)
        if least_floor(problem) is None:
            return "overfull"
        search = self.search(key)
        self.searches += 1
        if self.report is not None:
            self.report(self.searches)
        fits = search.any_plan()
        self.least[key] = search.space.least_mean_memory
        if search.best is not None:
            self.found[key] = search.best
        return "fits" if fits else "overfull"

    def restricted(self, ids: Iterable[str]) -> Problem:
        """The problem with only those pins that are among these facts.

        What the others allow stays among the candidates: a conflict holds for these values as well.
        """
        kept = set(ids)
        candidates = dict(self.problem.candidates)
        for pin in self.problem.pins:
            if pin.decision in candidates:
                known = candidates[pin.decision]
                candidates[pin.decision] = tuple(dict.fromkeys((*known, *pin.values)))
        pins = tuple(pin for pin in self.problem.pins if pin.path in kept)
        problem = replace(self.problem, pins=pins, candidates=candidates)
        if PIPELINE_PIN not in kept:
            problem = replace(problem, layout_string=None, even_split=False)
        return problem

    def search(self, ids: Iterable[str], capacity: int | None = None) -> Search:
        """A search with only these pins and limits, and all the framework's rules."""
        kept = set(ids)
        problem = self.restricted(kept)
        rules = [r for r in active_rules(problem) if r.id in kept or r.id not in LIMIT_RULES]
        return Search(problem, rules=rules, capacity=capacity, deadline=self.deadline)

    def least_refuted(self) -> frozenset[str]:
        """The fewest pins and limits that are known to be impossible; all where none are."""
        refuted = [key for key, answer in self._answers.items() if answer != "fits"]
        everything = frozenset(self.movable)
        return min([*refuted, everything], key=lambda key: (len(key), sorted(key)))

    @cached_property
    def hosts_decide(self) -> bool:
        """Whether larger hosts alone would make a layout possible."""
        problem = self.problem
        if not problem.uses_host_memory:
            return False
        node = problem.node_type
        roomy = node.model_copy(update={"host_memory_gib": node.host_memory_gib * _AMPLE_HOSTS})
        ample = replace(problem, cluster=replace(problem.cluster, node_type=roomy))
        return Search(ample, deadline=self.deadline).any_plan()

    def _check_time(self) -> None:
        if self.deadline is not None and time.monotonic() >= self.deadline:
            raise LimitReached
