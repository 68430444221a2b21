"""Sections of a diagnosis: why nothing fits, what clashes, what would help."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from meshplan.solver.report.diagnosis_words import (
    conflict_note,
    conflicts_note,
    cut_text,
    members,
    shown_conflicts,
)
from meshplan.solver.report.html.content import Drawing, Section, table
from meshplan.solver.report.html.remarks import near_miss_sections, plain
from meshplan.solver.report.words import recompute_text, seconds, short_layout


def diagnosis_sections(data: dict[str, Any]) -> Iterator[Section]:
    """Each part of a diagnosis that ``data`` has."""
    if data["status"] == "infeasible":
        yield Section("cause", "Why", items=plain([data["cause"]]), tone="bad")
    if data["arithmetic"]:
        yield _floor_section(data["arithmetic"])
    if data["conflicts"]:
        items = tuple(
            (members(one), (one["text"] + conflict_note(one)).strip())
            for one in shown_conflicts(data)
        )
        yield Section("conflicts", "What clashes", conflicts_note(data), items=items, tone="bad")
    yield from near_miss_sections(data)
    if data["repairs"]:
        yield _repair_section(data["repairs"])
    if data["no_help"]:
        items = tuple((one["lever"], one["reason"]) for one in data["no_help"])
        yield Section("no-help", "What does not help", items=items)
    if data["cut_short"]:
        yield Section("cut-short", "Cut short by the limit", items=plain([cut_text(data)]))


def _floor_section(found: list[dict[str, Any]]) -> Section:
    rows = [
        (one["rule"], f"{one['needed']:,g}", f"{one['available']:,g}", one["unit"], one["text"])
        for one in found
    ]
    title = "Floors that are too high"
    heads = ("rule", "needed at least", "there", "unit", "why")
    return Section("floors", title, tables=(table(title, heads, rows, (0, 3, 4)),))


def _repair_section(found: list[dict[str, Any]]) -> Section:
    """What each change buys: throughput as bars, the whole plan in the table."""
    tried = [one for one in found if one["result"] is not None]
    drawn = [
        {
            "change": one["change"],
            "throughput": one["result"]["tokens_per_s_per_gpu"],
            "text": f"{one['result']['tokens_per_s_per_gpu']:,.0f}",
        }
        for one in tried
    ]
    rows = [
        (one["change"], "yes" if one["verified"] else "no, the time was up", *_figures(one))
        for one in found
    ]
    heads = ("change", "verified", "tokens/s per GPU", "step", "dp", "GiB", "layout", "recompute")
    label = "Throughput of the best plan that each change alone makes possible, tokens/s per GPU."
    return Section(
        "repairs",
        "What would help, each by itself",
        drawings=(Drawing("repairs", label, drawn),) if drawn else (),
        tables=(table("What would help", heads, rows, (0, 1, 6, 7), unfolded=True),),
    )


def _figures(repair: dict[str, Any]) -> tuple[str, ...]:
    plan = repair["result"]
    if plan is None:
        return ("–",) * 6
    return (
        f"{plan['tokens_per_s_per_gpu']:,.0f}",
        seconds(plan["step_s"]),
        str(plan["layout"]["dp"]),
        f"{plan['peak_gib']:.1f}",
        short_layout(plan),
        recompute_text(plan),
    )


__all__ = ["diagnosis_sections"]
