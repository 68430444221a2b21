"""A result as an HTML fragment for notebooks: compact, with a style of its own, no script."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshplan.solver.report.html.heading import heading
from meshplan.solver.report.html.page import sections
from meshplan.solver.report.html.templates import template
from meshplan.solver.report.words import runs_of_ranks

if TYPE_CHECKING:
    from meshplan.solver.report.html.content import Drawing
    from meshplan.solver.report.text import Result

#: Bars of a fragment; of more ranks the fullest are shown.
_MOST_BARS = 16
#: Sections that are open at first: what a person must see.
_OPEN = frozenset({"violations", "conflicts", "cause", "repairs", "near-misses"})


def notebook_fragment(result: Result) -> str:
    """What a notebook shows of a result."""
    data = result.to_json()
    found = list(sections(result, data))
    shown = data.get("given", data)
    stages = (shown.get("memory") or {}).get("stages", [])
    drawings = {one.kind: one for section in found for one in section.drawings}
    bars = _memory_bars(drawings["memory"], stages) if "memory" in drawings else []
    return template("fragment.html").render(
        heading=heading(result, data),
        sections=found,
        bars=bars,
        keys=drawings["memory"].keys if bars else (),
        capacity=shown["memory"]["capacity_gib"] if bars else None,
        opened=_OPEN,
    )


def _memory_bars(drawing: Drawing, stages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A bar a run of equal ranks: its parts and the capacity in percent of the widest."""
    runs = runs_of_ranks(stages)
    fullest = sorted(runs, key=lambda run: -run[1]["peak_gib"])[:_MOST_BARS]
    scale = max(row[key] for row in drawing.rows for key in ("to", "capacity"))
    return [
        {
            "label": str(first) if first == stage["rank"] else f"{first}–{stage['rank']}",
            "peak": f"{stage['peak_gib']:.1f} GiB",
            "parts": [
                (f"s{place + 1}", f"{row['part']}: {row['gib']:.1f} GiB", 100 * row["gib"] / scale)
                for place, row in enumerate(
                    row for row in drawing.rows if row["rank"] == stage["rank"]
                )
            ],
            "line": 100 * drawing.rows[0]["capacity"] / scale,
        }
        for first, stage in runs
        if (first, stage) in fullest
    ]


__all__ = ["notebook_fragment"]
