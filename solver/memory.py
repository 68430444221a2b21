"""Memory of one layout, rank by rank and item by item: what ``meshplan memory`` shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from meshplan.constraints.layout import Layout
from meshplan.constraints.memory.items import Item, itemize
from meshplan.constraints.problem import Problem
from meshplan.scenarios.errors import InputError
from meshplan.scenarios.schema import Scenario
from meshplan.solver.check import check
from meshplan.solver.levers import Lever, levers_of
from meshplan.solver.results import CheckReport
from meshplan.solver.shown import Shown


@dataclass(frozen=True)
class MemoryReport(Shown):
    """Memory of a layout.

    Attributes
    ----------
    report
        The judgement of the layout, with the memory of every rank.
    rank
        The rank that is shown item by item.
    items
        What its memory consists of at its peak.
    levers
        What single changes of recompute, offload, exchange, dispatcher, loss and graphs would give
        or cost, the most saving first; changes that no rule forbids.
    """

    report: CheckReport
    rank: int
    items: tuple[Item, ...]
    levers: tuple[Lever, ...]

    @property
    def problem(self) -> Problem:
        """The resolved scenario."""
        return self.report.problem

    @property
    def status(self) -> Literal["ok", "illegal", "overfull"]:
        """As :func:`meshplan.check` judges the layout."""
        return self.report.status

    def to_json(self) -> dict[str, Any]:
        """The report as plain data, by the contract ``meshplan_result: 1``."""
        from meshplan.solver.report.memory import memory_data

        return memory_data(self)


def memory(
    scenario: Scenario,
    layout: Layout | Mapping[str, object] | str | None = None,
    *,
    rank: int | None = None,
) -> MemoryReport:
    """Memory of one layout of a scenario.

    Parameters
    ----------
    layout
        As for :func:`~meshplan.solver.check.check`.
    rank
        Pipeline rank that is itemised; the fullest by default.

    Raises
    ------
    InputError
        If scenario or layout cannot be read, the layout has no memory to speak of (its slots do
        not hold the model's layers), or there is no such rank.
    """
    report = check(scenario, layout)
    if report.cost is None:
        why = report.violations[0].text if report.violations else "its slots do not hold the model"
        raise InputError(
            f"the layout has no memory to compute: {why}",
            advice="`meshplan check` names all rules that it breaks, and the nearest legal values.",
        )
    ranks = report.cost.ranks
    if rank is not None and not 0 <= rank < len(ranks):
        raise InputError(
            f"rank is {rank}, but the layout has the pipeline ranks 0 to {len(ranks) - 1}",
            advice="leave it out for the fullest.",
        )
    shown = max(ranks, key=lambda one: one.peak).rank if rank is None else rank
    levers = sorted(levers_of(report), key=lambda lever: lever.peak)
    items = itemize(report.problem, report.layout, shown)
    return MemoryReport(report, shown, items, tuple(levers))


__all__ = ["Lever", "MemoryReport", "memory"]
