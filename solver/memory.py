"""Memory of one layout, rank by rank and item by item: what ``meshplan memory`` shows."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from meshplan.constraints.layout import Layout
from meshplan.constraints.memory.items import Item, itemize
from meshplan.constraints.memory.stage import rank_memory
from meshplan.constraints.memory.verdict import Verdict, verdict
from meshplan.constraints.problem import Problem
from meshplan.constraints.resolve import useful_modules
from meshplan.scenarios.errors import InputError
from meshplan.scenarios.schema import Scenario
from meshplan.solver.check import check
from meshplan.solver.judge import violations
from meshplan.solver.results import CheckReport
from meshplan.solver.shown import Shown


@dataclass(frozen=True)
class Lever:
    """One change of a layout, and the peak memory with it.

    Attributes
    ----------
    change
        In words: ``without recompute of moe``.
    path, value
        Field of a scenario that makes it, and what to write there.
    peak
        Peak of the fullest rank then, quanta.
    rank, event
        Which rank that is, and when it peaks.
    verdict
        Whether the layout fits then.
    """

    change: str
    path: str
    value: object
    peak: int
    rank: int
    event: str
    verdict: Verdict


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
        What single changes of recompute and offload would give or cost, the most saving first;
        changes that no rule forbids.
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
    levers = sorted(_levers(report), key=lambda lever: lever.peak)
    items = itemize(report.problem, report.layout, shown)
    return MemoryReport(report, shown, items, tuple(levers))


def _levers(report: CheckReport) -> Iterator[Lever]:
    """Recompute modules in or out, full recompute, no graphs, the optimizer on the other side."""
    problem, layout = report.problem, report.layout
    broken = {one.rule for one in report.violations}
    for change, path, value, other in _changes(problem, layout):
        if {one.rule for one in violations(problem, other)} - broken:
            continue
        ranks = [rank_memory(problem, other, rank) for rank in range(other.pp)]
        fullest = max(ranks, key=lambda one: one.peak)
        yield Lever(
            change, path, value, fullest.peak, fullest.rank, fullest.event, verdict(problem, ranks)
        )


def _changes(problem: Problem, layout: Layout) -> Iterator[tuple[str, str, object, Layout]]:
    path = "options.recompute"
    useful = useful_modules(problem.model, fused_attention=problem.training.fused_attention)
    if layout.recompute_full:
        yield "without recompute", path, "none", dataclasses.replace(layout, recompute_full=False)
    else:
        for module in layout.recompute:
            rest = tuple(name for name in layout.recompute if name != module)
            less = dataclasses.replace(layout, recompute=rest)
            yield f"without recompute of {module}", path, list(rest) or "none", less
        for module in sorted(useful - set(layout.recompute)):
            if "moe" in layout.recompute and module in ("moe_act", "shared_experts"):
                continue  # replayed by moe already
            more = dataclasses.replace(layout, recompute=(*layout.recompute, module))
            yield f"with recompute of {module}", path, list(more.recompute), more
        full = dataclasses.replace(layout, recompute=(), recompute_full=True)
        yield "with full recompute", path, "full", full
    if layout.cuda_graphs:
        plain = dataclasses.replace(layout, cuda_graphs=())
        yield "without CUDA graphs", "options.cuda_graphs", "none", plain
    path = "options.optimizer_offload"
    if layout.offload:
        here = dataclasses.replace(layout, offload=0)
        yield "with the optimizer on the GPUs", path, False, here
    if layout.offload < 100:
        there = dataclasses.replace(layout, offload=100)
        yield "with the optimizer on the host", path, True, there


__all__ = ["Lever", "MemoryReport", "memory"]
