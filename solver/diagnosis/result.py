"""What a diagnosis says, as data; the reports are made from this alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from meshplan.constraints.problem import Problem
from meshplan.solver.diagnosis.arithmetic import Finding
from meshplan.solver.repairs import NoHelp, Repair
from meshplan.solver.results import Conflict, Plan
from meshplan.solver.shown import Shown

#: Parts of a diagnosis that a limit can cut short.
Part: TypeAlias = Literal["verdict", "conflict", "repairs", "conflicts", "example", "near_misses"]


@dataclass(frozen=True)
class Diagnosis(Shown):
    """Why a scenario has no layout, and what would give it one; or how near it is to having none.

    Attributes
    ----------
    status
        ``infeasible`` (proved), ``possible`` (``plan`` is one), or ``unknown``.
    cause
        Why nothing is possible, in sentences with numbers; what a plan is close to, if there is
        one.
    facts
        The numbers that the cause rests on, by field of the scenario or by name with a unit.
    findings
        Floors that are too high: proof by arithmetic alone.
    conflicts
        Sets of facts that cannot hold together, the first one the cause.
    complete
        Whether no other minimal conflict exists.
    repairs
        Changes that make a layout possible, the smallest first.
    no_help
        Levers that cannot help by themselves, with the reason.
    plan
        The best plan of a scenario that has one.
    near_misses
        Sentences on what that plan is close to.
    cut_short
        What a limit or an interrupt left unfinished.
    stated
        Fields that a given layout pins; none where the scenario is diagnosed as it is.
    """

    problem: Problem
    status: Literal["infeasible", "possible", "unknown"]
    cause: str
    wall_s: float
    facts: Mapping[str, float] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    complete: bool = False
    repairs: tuple[Repair, ...] = ()
    no_help: tuple[NoHelp, ...] = ()
    plan: Plan | None = None
    near_misses: tuple[str, ...] = ()
    cut_short: tuple[Part, ...] = ()
    stated: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The diagnosis as plain data, by the contract ``meshplan_result: 1``."""
        from meshplan.solver.report.diagnosis_data import diagnosis_data

        return diagnosis_data(self)

    def to_markdown(self) -> str:
        """The diagnosis for a pull request or an issue."""
        from meshplan.solver.report.diagnosis_markdown import diagnosis_markdown

        return diagnosis_markdown(self)
