"""Sections of a report that were asked for: the ranking, the Pareto front, relaxations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    from rich.table import Table

#: Gains below this are none: they would round to 0.0 %.
LEAST_GAIN = 0.0005
_NAMES = {"top": "--top", "pareto": "--pareto", "binding": "--binding"}


def listings(data: dict[str, Any]) -> Iterator[RenderableType]:
    """What was asked for beside the plan, and what of it a limit cut short."""
    from rich.text import Text

    if data.get("top"):
        title = (
            f"The {len(data['top'])} fastest degree tuples"
            if len(data["top"]) > 1
            else ("The fastest degree tuple")
        )
        note = "tp, cp, pp, ep, etp; each with its fastest plan; proved"
        yield _titled(title, note, _plans(data, data["top"]))
    if data.get("pareto"):
        note = "throughput, DP and memory in whole GiB; proved; by DP"
        ordered = sorted(data["pareto"], key=lambda one: -one["layout"]["dp"])
        title = (
            f"Pareto front of {len(ordered)} plans"
            if len(ordered) > 1
            else ("Pareto front: one plan is best in all three")
        )
        yield _titled(title, note, _plans(data, ordered))
    if data.get("relaxations"):
        yield _relaxations(data)
    if data.get("unfinished"):
        names = " and ".join(_NAMES[name] for name in data["unfinished"])
        yield Text(f"Not finished before the search was stopped: {names}.", style="yellow")


def _titled(title: str, note: str, table: Table) -> RenderableType:
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    head = Text(title, style="bold")
    head.append(f" ({note})", style="dim not bold")
    return Group(head, Padding(table, (0, 0, 0, 2)))


def _plans(data: dict[str, Any], plans: Sequence[dict[str, Any]]) -> Table:
    """Step, DP, memory and layout of each plan; times against the plan of the report."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2, 0, 0))
    for _ in range(4):
        table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("step", "", "dp", "GiB", "", style="dim")
    for one in plans:
        layout = one["layout"]
        text = short_layout(one)
        if layout["gbs"] != data["layout"]["gbs"]:
            text += f" gbs={layout['gbs']}"
        text += f"; recompute {recompute_text(one)}"
        if one["optimizer_offload"]:
            text += f"; optimizer {offload_text(one)}"
        table.add_row(
            seconds(one["step_s"]),
            f"{relative_time(data, one['step_s'], layout['gbs']):+.1%}",
            str(layout["dp"]),
            f"{one['peak_gib']:.1f}",
            Text(text),
        )
    return table


def _relaxations(data: dict[str, Any]) -> RenderableType:
    """What one step more of each limit, pin and resource gains, the most first."""
    from rich.table import Table
    from rich.text import Text

    found = sorted(data["relaxations"], key=lambda one: -(one["gain"] or 0))
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    idle = []
    for one in found:
        if one["gain"] is None:
            table.add_row("?", Text(f"{one['change']} (not solved in the time)"))
        elif one["gain"] >= LEAST_GAIN:
            layout = short_layout(one)
            table.add_row(f"{one['gain']:+.1%}", Text(f"{one['change']} → {layout}"))
        else:
            idle.append(one["key"].replace("_", " "))
    if idle:
        table.add_row("0", Text(f"no gain: {', '.join(idle)}"))
    fastest = seconds(data["proof"]["objective"])
    note = f"throughput of the fastest layout, {fastest}, solved again"
    return _titled("What one step more would gain", note, table)


__all__ = ["listings"]
