"""Sections on two layouts side by side: what differs, where the time goes, single changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from meshplan.solver.report.compare import flip_text, shown_terms, signed
from meshplan.solver.report.html.content import Drawing, Section, table
from meshplan.solver.report.words import seconds


def compare_sections(
    data: dict[str, Any], names: tuple[str, str], labels: tuple[str, str]
) -> Iterator[Section]:
    """What differs between two layouts, which ``data`` has under ``names``."""
    if data.get("fields"):
        rows = [
            (one["path"], *("open" if one[name] is None else str(one[name]) for name in names))
            for one in data["fields"]
        ]
        title = "Scenarios that differ"
        found = table(title, ("field", *labels), rows, (0, 1, 2))
        yield Section("fields", title, tables=(found,))
    if data["differences"]:
        yield _difference_section(data["differences"], names, labels)
    if data["comparison"] is not None and data["comparison"]["verdict"] != "equal":
        yield _term_section(data["comparison"], names, labels)
    if data["flips"]:
        yield _flip_section(data["flips"], labels)


def _difference_section(
    found: list[dict[str, Any]], names: tuple[str, str], labels: tuple[str, str]
) -> Section:
    rows = [
        (
            one["decision"],
            *(str(one[name]) for name in names),
            "follows from the others" if one["follows"] else "–",
        )
        for one in found
    ]
    title = "Decisions that differ"
    listed = table(title, ("decision", *labels, "note"), rows, (0, 1, 2, 3))
    return Section("differences", title, tables=(listed,))


def _term_section(
    comparison: dict[str, Any], names: tuple[str, str], labels: tuple[str, str]
) -> Section:
    keys = tuple(f"{name}_s" for name in names)
    base = comparison[keys[1]]
    terms = [{**comparison, "name": "step"}, *shown_terms(comparison, names)]
    rows = [
        (
            one["name"].replace("_", " "),
            *(seconds(one[key]) for key in keys),
            signed(one["difference_s"]),
            f"{one['difference_s'] / base:+.1%}",
        )
        for one in terms
    ]
    drawn = [
        {
            "part": one["name"].replace("_", " "),
            "difference": one["difference_s"],
            "text": signed(one["difference_s"]),
            "color": "var(--s5)" if one["difference_s"] > 0 else "var(--s2)",
        }
        for one in terms
    ]
    heads = ("part", *labels, "difference", "share")
    note = ""
    if comparison["scale"] != 1:
        note = f"{labels[1]} × {comparison['scale']:g} for the same work."
    label = (
        f"What {labels[0]} takes more (to the right) or less (to the left) than {labels[1]}, part "
        "by part; the parts add up to the step."
    )
    legend = (("s5", f"{labels[0]} takes more"), ("s2", f"{labels[0]} takes less"))
    return Section(
        "terms",
        "Time of a step, side by side",
        note,
        drawings=(Drawing("terms", label, drawn, legend),),
        tables=(table("Time of a step by part, side by side", heads, rows),),
    )


def _flip_section(found: list[dict[str, Any]], labels: tuple[str, str]) -> Section:
    rows = [flip_text(flip) for flip in found]
    title = f"One decision changed alone, from {labels[0]} towards {labels[1]}"
    listed = table(title, ("change", "status", "what it does"), rows, (0, 1, 2))
    return Section("flips", title, tables=(listed,))


__all__ = ["compare_sections"]
