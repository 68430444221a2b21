"""Sections that are lists: rules broken, conflicts, advice, what is assumed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from meshplan.solver.report.html.content import Section
from meshplan.solver.report.remarks import NEAR_MISSES, conflict_row, violation_text


def trouble_sections(data: dict[str, Any]) -> Iterator[Section]:
    """Why the layout is illegal, or nothing fits."""
    if found := data.get("violations"):
        items = tuple((one["rule"], violation_text(one)) for one in found)
        yield Section("violations", "Rules broken", items=items, tone="bad")
    if found := data.get("conflicts"):
        items = tuple(conflict_row(one) for one in found)
        note = "" if len(found) == 1 else "Each reason by itself. "
        note += "meshplan diagnose finds all conflicts, and what would help."
        yield Section("conflicts", "Why nothing fits", note, items=items, tone="bad")


def remark_sections(data: dict[str, Any]) -> Iterator[Section]:
    """What is binding, near misses, advice and assumptions, each only if there is some."""
    if found := data.get("binding"):
        yield Section("binding", "What is binding", items=plain(found))
    yield from near_miss_sections(data)
    if found := data.get("advisories"):
        items = tuple((one["id"], one["text"]) for one in found)
        note = "meshplan explain ID says why, and where it comes from."
        yield Section("advice", "Advice", note, items=items, tone="warn")
    if found := data.get("assumed"):
        yield Section("assumed", "Assumed", items=plain(found))


def near_miss_sections(data: dict[str, Any]) -> Iterator[Section]:
    """What a plan is close to, if anything."""
    if found := data.get("near_misses"):
        yield Section("near-misses", NEAR_MISSES, items=plain(found), tone="warn")


def plain(texts: list[str]) -> tuple[tuple[str, str], ...]:
    """Paragraphs that explain no id."""
    return tuple(("", text) for text in texts)
