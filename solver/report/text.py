"""Results for people: a report in text, on a terminal or in a file.

=============  ======================================================
``summary``    the answer in words, the layout, throughput and memory
``bars``       memory of each pipeline rank, parts of the step time
``memory``     memory of one layout, event by event and item by item
``listings``   the ranking, the Pareto front, what one step more would gain
``remarks``    rules broken, conflicts, alternatives, advice, assumptions
=============  ======================================================

All figures come from :mod:`meshplan.solver.report.data`, so text and JSON cannot differ.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

from meshplan.solver.compare.diff import DiffReport
from meshplan.solver.compare.why import WhyReport
from meshplan.solver.diagnosis.result import Diagnosis
from meshplan.solver.memory import MemoryReport
from meshplan.solver.report.bars import memory_bars, time_bars
from meshplan.solver.report.diagnosis import diagnosis_sections
from meshplan.solver.report.diff import diff_sections
from meshplan.solver.report.listings import listings
from meshplan.solver.report.memory import memory_sections
from meshplan.solver.report.remarks import conflicts, hint, remarks, violations
from meshplan.solver.report.summary import summary
from meshplan.solver.report.why import why_sections
from meshplan.solver.results import CheckReport, Infeasible, Plan, Unknown

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

Result: TypeAlias = (
    Plan | Infeasible | Unknown | CheckReport | MemoryReport | WhyReport | DiffReport | Diagnosis
)

#: Reports are no wider than this, whatever the terminal: long lines are hard to read.
WIDEST = 110


def render_text(result: Result, width: int = 100, color: bool = False) -> str:
    """The report as text of ``width`` columns, with terminal colours if ``color``."""
    from rich.console import Console

    console = Console(
        file=io.StringIO(),
        width=width,
        force_terminal=color,
        color_system="standard" if color else None,
        legacy_windows=False,
    )
    with console.capture() as captured:
        render(result, console)
    lines = captured.get().splitlines()
    return "\n".join(line.rstrip() for line in lines) + "\n"


def render(result: Result, console: Console) -> None:
    """Print the report on a rich console."""
    width = min(console.width, WIDEST)
    for index, section in enumerate(_sections(result, width)):
        if index:
            console.print()
        console.print(section, width=width, highlight=False)


def _sections(result: Result, width: int) -> Iterator[RenderableType]:
    data = result.to_json()
    if isinstance(result, Diagnosis):
        yield from diagnosis_sections(result, data)
        return
    if isinstance(result, WhyReport):
        yield from why_sections(result, data)
        return
    if isinstance(result, DiffReport):
        yield from diff_sections(result, data)
        return
    yield summary(result.problem, data)
    if data.get("violations"):
        yield violations(data["violations"])
    if data.get("conflicts"):
        yield conflicts(data["conflicts"])
        yield hint("`meshplan diagnose` finds all conflicts, and what would help.")
    if data["memory"] is not None:
        yield memory_bars(data["memory"], width)
        if "items" in data["memory"]:
            yield from memory_sections(data)
    if data.get("time") is not None:
        yield time_bars(data["time"], width)
    yield from listings(data)
    yield from remarks(data)
    if isinstance(result, CheckReport) and result.status != "ok":
        yield hint("`meshplan diagnose` with the same options says which values clash, and why.")
