"""Minimal conflicts: sets of facts that cannot hold together, though without any one they can.

Facts are the rules, the memory of the GPUs, and what the scenario pins.  A set is shrunk by our
own exact procedure, in an order that keeps what a person can change.  A clash of rules and pins is
found by :mod:`.legality`; if these agree, memory is part of the conflict, and searches decide
which pins and limits are as well (:mod:`.queries`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from meshplan.constraints.problem import Problem
from meshplan.solver.diagnosis.facts import MEMORY, PIPELINE_PIN, facts
from meshplan.solver.diagnosis.memory_words import memory_text
from meshplan.solver.diagnosis.queries import Queries
from meshplan.solver.diagnosis.shrink import every_core, quickxplain
from meshplan.solver.diagnosis.words import (
    broken_layout_rules,
    layout_fault,
    pin_text,
    sentence,
)
from meshplan.solver.progress import LimitReached
from meshplan.solver.results import Conflict

#: Sets of rules and pins that are asked about at most while further conflicts are looked for, and
#: searches for sets of pins and limits under memory after which no further one is begun.
_MOST_LEGAL = 400
_MOST_SEARCHED = 40


class _Enough(Exception):
    """As many sets were asked about as a diagnosis may."""


def conflict(problem: Problem, deadline: float | None = None) -> Conflict:
    """One irreducible conflict of a problem that is proved infeasible."""
    return Conflicts(Queries(problem, deadline)).first()


class Conflicts:
    """The conflicts of a problem that is proved infeasible.

    Attributes
    ----------
    complete
        Whether :meth:`every` gave all minimal conflicts.
    """

    def __init__(self, queries: Queries) -> None:
        self.queries, self.problem = queries, queries.problem
        self.everything = facts(self.problem)
        self.complete = False

    def first(self) -> Conflict:
        """One conflict: of rules and pins if they clash, else of memory."""
        broken = self._of_layout_string()
        if broken:
            return broken[0]
        rules = self.rules_and_pins()
        if not self.queries.legal(rules):
            return self._worded(self.queries.legality.core(rules), minimal=True)
        return self._of_memory(self.queries.movable)

    def every(self, most: int) -> Iterator[Conflict]:
        """Minimal conflicts, the one of :meth:`first` first, up to ``most`` of them.

        Raises
        ------
        LimitReached
            If the deadline comes first.
        """
        self.complete = False
        yield from islice(self._every(), most)

    def _every(self) -> Iterator[Conflict]:
        complete = True
        yield from self._of_layout_string()
        for family in (self._legal_conflicts, self._memory_conflicts):
            try:
                yield from family()
            except _Enough:
                complete = False
        self.complete = complete

    def members(self, conflict: Conflict) -> frozenset[str]:
        """The facts of a conflict."""
        paths = {pin_text(self.problem, f.id): f.id for f in self.everything if f.is_pin}
        return frozenset([*conflict.rules, *(paths[pin] for pin in conflict.pins)])

    def rules_and_pins(self) -> list[str]:
        """All facts but the memory, in fixed order."""
        return [fact.id for fact in self.everything if fact.id != MEMORY]

    def _of_layout_string(self) -> list[Conflict]:
        """What the scenario's layout string breaks, whatever the degrees."""
        return [
            Conflict(
                (rule.id,),
                (pin_text(self.problem, PIPELINE_PIN),),
                f"{pin_text(self.problem, PIPELINE_PIN)}: {layout_fault(self.problem, rule)}.",
                minimal=True,
            )
            for rule in broken_layout_rules(self.problem)
        ]

    def _legal_conflicts(self) -> Iterator[Conflict]:
        asked = 0

        def core(kept: Sequence[str]) -> frozenset[str] | None:
            nonlocal asked
            asked += 1
            if asked > _MOST_LEGAL:
                raise _Enough
            if self.queries.legal(kept):
                return None
            return frozenset(self.queries.legality.core(kept))

        for found in every_core(self.rules_and_pins(), core):
            yield self._worded(sorted(found), minimal=True)

    def _memory_conflicts(self) -> Iterator[Conflict]:
        """Conflicts with memory in them: pins and limits that are legal but fit nowhere."""
        queries = self.queries
        legal: set[frozenset[str]] = set()

        def core(kept: Sequence[str]) -> frozenset[str] | None:
            if queries.searches >= _MOST_SEARCHED:
                raise _Enough
            answer = queries.with_memory(kept)
            if answer == "fits":
                return None
            if answer == "illegal":
                clash = quickxplain(kept, queries.obeys_framework)
                legal.add(clash)
                return clash
            return quickxplain(kept, lambda some: queries.with_memory(some) == "fits")

        for found in every_core(queries.movable, core):
            if found not in legal:
                yield self._worded([MEMORY, *found], minimal=True)

    def _of_memory(self, kept: Sequence[str]) -> Conflict:
        queries = self.queries
        try:
            core = quickxplain(kept, lambda some: queries.with_memory(some) == "fits")
        except LimitReached:
            return self._worded([MEMORY, *queries.least_refuted()], minimal=False)
        return self._worded([MEMORY, *core], minimal=True)

    def _worded(self, core: Sequence[str], *, minimal: bool) -> Conflict:
        problem = self.problem
        rules = tuple(f.id for f in self.everything if f.id in core and not f.is_pin)
        paths = [f.id for f in self.everything if f.id in core and f.is_pin]
        memory = None
        if MEMORY in rules:
            limits = [rule for rule in rules if rule != MEMORY]
            memory = memory_text(self.queries, frozenset([*limits, *paths]))
        pins = tuple(pin_text(problem, path) for path in paths)
        text = sentence(problem, [r for r in rules if r != MEMORY], paths, memory)
        return Conflict(rules, pins, text, minimal=minimal)
