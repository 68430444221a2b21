"""Sections of a report that are lists: rules broken, conflicts, alternatives, advice, ..."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from meshplan.solver.report.words import (
    offload_text,
    recompute_text,
    relative_time,
    seconds,
    short_layout,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

#: Title of what a plan is close to.
NEAR_MISSES = "What it is close to"


def section(
    title: str, rows: Iterable[tuple[str, str]], style: str = "", closing: str = ""
) -> RenderableType:
    """Title, and below it one paragraph a row: its id on a line of its own, if it has one."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    lines: list[RenderableType] = [Text(title, style="bold")]
    for name, text in rows:
        if name:
            lines.append(Padding(Text(name, style=style), (0, 0, 0, 2)))
            if text:
                lines.append(Padding(Text(text), (0, 0, 0, 4)))
        else:
            lines.append(_bullet(text))
    if closing:
        lines.append(Padding(Text(closing), (0, 0, 0, 2)))
    return Group(*lines)


def paragraph(title: str, text: str) -> RenderableType:
    """Title, and below it running text."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    return Group(Text(title, style="bold"), Padding(Text(text), (0, 0, 0, 2)))


def hint(text: str) -> RenderableType:
    """A command that says more."""
    from rich.text import Text

    return Text(text, style="dim")


def _bullet(text: str) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    row = Table.grid(padding=(0, 1))
    row.add_column(no_wrap=True)
    row.add_column(overflow="fold")
    row.add_row(" -", Text(text))
    return row


def violations(found: list[dict[str, Any]]) -> RenderableType:
    """Broken rules with their numbers and the nearest legal values."""
    rows = [(one["rule"], violation_text(one)) for one in found]
    return section("Rules broken", rows, "bold red")


def violation_text(one: dict[str, Any]) -> str:
    """A broken rule in words, and on a line of its own the nearest legal values."""
    near = [f"{name} = {' or '.join(map(str, values))}" for name, values in one["nearest"].items()]
    if not near:
        return str(one["text"])
    one_of = ", any one of" if len(near) > 1 else ""
    return f"{one['text']}\nnearest legal{one_of}: {'; '.join(near)}"


def conflicts(found: list[dict[str, Any]]) -> RenderableType:
    """Facts that clash, in the user's numbers."""
    rows = [conflict_row(one) for one in found]
    title = "Why nothing fits" if len(rows) == 1 else "Why nothing fits, each reason by itself"
    return section(title, rows, "bold red")


def conflict_row(one: dict[str, Any]) -> tuple[str, str]:
    """What takes part in a conflict, and the conflict in words."""
    note = "" if one["minimal"] else "\n(not proved minimal: some of these may be beside the point)"
    return " + ".join([*one["rules"], *one["pins"]]), one["text"] + note


def alternatives(data: dict[str, Any]) -> RenderableType:
    """Other plans, with what they cost against this one."""
    rows = []
    for other in data["alternatives"]:
        gbs = other["layout"]["gbs"]
        slower = f"{relative_time(data, other['step_s'], gbs):+.1%}"
        if gbs != data["layout"]["gbs"]:
            slower += f" a sequence, gbs {gbs:,}"
        head = f"{short_layout(other)}: {seconds(other['step_s'])} ({slower}), "
        text = f"{head}{other['peak_gib']:.1f} GiB; recompute {recompute_text(other)}"
        text += f"; optimizer {offload_text(other)}"
        rows.append(("", text + (f"; {other['note']}" if other["note"] else "")))
    return section("Alternatives", rows)


def remarks(data: dict[str, Any]) -> Iterator[RenderableType]:
    """What is binding, near misses, alternatives, advice, assumptions: each if there is some."""
    if data.get("binding"):
        yield section("What is binding", (("", text) for text in data["binding"]))
    if data.get("near_misses"):
        yield section(NEAR_MISSES, (("", text) for text in data["near_misses"]))
    if data.get("alternatives") and not data.get("top"):
        yield alternatives(data)
    if data.get("advisories"):
        rows = [(one["id"], one["text"]) for one in data["advisories"]]
        yield section("Advice (meshplan explain ID says why)", rows, "yellow")
    if data["assumed"]:
        yield section("Assumed", (("", text) for text in data["assumed"]), "dim")
