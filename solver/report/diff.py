"""The report of ``meshplan diff``: two results side by side."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from meshplan.solver.compare.diff import DiffReport
from meshplan.solver.report.compare import (
    band_text,
    comparison_sections,
    field_table,
    figures,
    time_text,
)
from meshplan.solver.report.compare_data import DIFF_NAMES
from meshplan.solver.report.summary import panel, question_rows
from meshplan.solver.report.words import seconds

if TYPE_CHECKING:
    from rich.console import RenderableType

#: Relative difference of a stored step time that rounding does not explain.
_NOTICED = 1e-4
_LABELS = ("A", "B")


def diff_sections(report: DiffReport, data: dict[str, Any]) -> Iterator[RenderableType]:
    """The answer in words, what differs, time by part, single changes."""
    yield panel(report.problem.name, data["status"], verdict(data), rows(report, data))
    if data["fields"]:
        yield field_table(data["fields"], _LABELS)
    yield from comparison_sections(data, _LABELS)


def verdict(data: dict[str, Any]) -> str:
    """The answer in a sentence or three."""
    if not data["differences"] and not data["fields"]:
        return "A and B are the same layout of the same scenario."
    if data["comparison"] is None:
        return "The step times cannot be compared: a mesh is not that of its cluster."
    comparison = data["comparison"]
    text = time_text(comparison, "A", "B")
    if comparison["scale"] != 1:
        text += ", for the same tokens per GPU"
    return f"{text}. {band_text(comparison)}".strip()


def rows(report: DiffReport, data: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Question, and the layouts side by side: labels and figures; an empty pair is a gap."""
    yield from question_rows(report.problem)
    yield "", ""
    for label, name in zip(_LABELS, DIFF_NAMES, strict=True):
        one = data[name]
        status = "" if one["status"] == "ok" else f" ({one['status']})"
        yield label, figures(one, None) + status
        now = one["time"]["step_s"] if one["time"] else None
        then = one["written_s"]
        if now and then and abs(now / then - 1) > _NOTICED:
            yield "", f"its file says {seconds(then)}: another version or calibration wrote it"
