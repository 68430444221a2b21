"""The report of ``meshplan diagnose``: why nothing fits, and what would help."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from meshplan.solver.diagnosis.result import Diagnosis
from meshplan.solver.report.diagnosis_words import (
    change_text,
    conflict_note,
    conflicts_note,
    cut_text,
    members,
    no_help_rows,
    result_text,
    shown_conflicts,
    stated_text,
    verdict_text,
)
from meshplan.solver.report.remarks import NEAR_MISSES, paragraph, remarks, section
from meshplan.solver.report.summary import panel, question_rows

if TYPE_CHECKING:
    from rich.console import RenderableType


def diagnosis_sections(found: Diagnosis, data: dict[str, Any]) -> Iterator[RenderableType]:
    """The answer in words, the cause, conflicts, repairs, levers without effect, assumptions."""
    yield panel(found.problem.name, data["status"], verdict_text(data), rows(found, data))
    if data["status"] == "infeasible":
        yield paragraph("Why", data["cause"])
    if data["conflicts"]:
        clashes, note = _conflict_rows(data), conflicts_note(data)
        yield section("What clashes", clashes, "bold red", closing=note)
    if data["near_misses"]:
        yield section(NEAR_MISSES, (("", text) for text in data["near_misses"]))
    if data["repairs"]:
        yield section("What would help, each by itself", _repair_rows(data))
    if data["no_help"]:
        yield section("What does not help by itself", no_help_rows(data))
    if data["cut_short"]:
        yield paragraph("Cut short by the limit", cut_text(data))
    yield from remarks({"assumed": data["assumed"]})


def rows(found: Diagnosis, data: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Question, and the best plan if there is one: labels and figures; an empty pair is a gap."""
    yield from question_rows(found.problem)
    if found.stated:
        yield "layout", stated_text(found)
    if found.plan is not None:
        time, memory = data["time"], data["memory"]
        yield "", ""
        figures = {**data, "tokens_per_s_per_gpu": time["tokens_per_s_per_gpu"], **memory}
        yield "best plan", result_text(figures)
        yield "", "`meshplan solve` shows it in full"


def _conflict_rows(data: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for number, one in enumerate(shown_conflicts(data)):
        text = one["text"] if number else ""  # of the first one the cause says it
        yield members(one), (text + conflict_note(one)).strip()


def _repair_rows(data: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for one in data["repairs"]:
        mark = "" if one["verified"] else " (not verified: the time was up)"
        result = one["result"]
        yield change_text(data, one) + mark, "" if result is None else result_text(result)
