"""Sections that list other plans: the Pareto front, a ranking, alternatives, relaxations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from meshplan.solver.report.html.content import Drawing, Section, Table, table
from meshplan.solver.report.listings import LEAST_GAIN
from meshplan.solver.report.words import (
    offload_text,
    recompute_text,
    relative_time,
    seconds,
    short_layout,
)

#: Colours that a style sheet has.
_COLORS = 6
_HEADS = ("layout", "step", "against this plan", "dp", "gbs", "GiB", "recompute", "optimizer")


def plan_sections(data: dict[str, Any]) -> Iterator[Section]:
    """Each list of plans that ``data`` has."""
    if data.get("pareto"):
        yield _pareto_section(data)
    if data.get("top"):
        note = "Tuples of tp, cp, pp, ep and etp, each with its fastest plan; proved."
        title = "The fastest degree tuples"
        yield Section("top", title, note, tables=(_plan_table(title, data, data["top"]),))
    elif data.get("alternatives"):
        title = "Alternatives"
        noted = [one["note"] or "–" for one in data["alternatives"]]
        found = _plan_table(title, data, data["alternatives"], noted)
        yield Section("alternatives", title, tables=(found,))
    if data.get("relaxations"):
        yield _relaxation_section(data)


def _plan_table(
    caption: str,
    data: dict[str, Any],
    plans: Sequence[dict[str, Any]],
    notes: Sequence[str] | None = None,
) -> Table:
    """Plans in their order; times per sequence against the plan of the page."""
    rows = []
    for place, one in enumerate(plans):
        layout = one["layout"]
        row = (
            short_layout(one),
            seconds(one["step_s"]),
            f"{relative_time(data, one['step_s'], layout['gbs']):+.1%}",
            str(layout["dp"]),
            f"{layout['gbs']:,}",
            f"{one['peak_gib']:.1f}",
            recompute_text(one),
            offload_text(one),
        )
        rows.append((*row, notes[place]) if notes else row)
    text = (0, 6, 7, 8)
    return table(caption, (*_HEADS, "note") if notes else _HEADS, rows, text)


def _pareto_section(data: dict[str, Any]) -> Section:
    plans = sorted(data["pareto"], key=lambda one: -one["layout"]["dp"])
    degrees = sorted({one["layout"]["dp"] for one in plans}, reverse=True)
    colors = {dp: f"s{min(place + 1, _COLORS)}" for place, dp in enumerate(degrees)}
    drawn = [
        {
            "layout": short_layout(one),
            "step": one["step_s"],
            "relative": round(relative_time(data, one["step_s"], one["layout"]["gbs"]), 6),
            "gib": one["peak_gib"],
            "dp": one["layout"]["dp"],
            "color": f"var(--{colors[one['layout']['dp']]})",
            "shown": _same(one, data),
        }
        for one in plans
    ]
    label = (
        "Plans of which no other is as good in step time, memory and data parallelism at once. "
        "Further left is faster, further down takes less memory; the ring is the plan of this page."
    )
    note = f"{len(plans)} plans; throughput, DP and memory in whole GiB; proved."
    return Section(
        "pareto",
        "Pareto front",
        note,
        drawings=(Drawing("pareto", label, drawn, _degree_keys(degrees, colors)),),
        tables=(_plan_table("Pareto front, most data parallelism first", data, plans),),
    )


def _degree_keys(degrees: list[int], colors: dict[int, str]) -> tuple[tuple[str, str], ...]:
    """What the colours of the front stand for; small degrees share the last one."""
    keys = [(colors[dp], f"dp {dp}") for dp in degrees[:_COLORS]]
    if len(degrees) > _COLORS:
        keys[-1] = (keys[-1][0], f"{keys[-1][1]} or less")
    return tuple(keys)


def _same(one: dict[str, Any], data: dict[str, Any]) -> bool:
    """Whether a listed plan is that of the page."""
    keys = ("layout", "recompute", "optimizer_offload", "dispatcher", "cuda_graphs")
    strings = (one["pipeline"]["layout"], data["pipeline"]["layout"])
    return all(one[key] == data[key] for key in keys) and strings[0] == strings[1]


def _relaxation_section(data: dict[str, Any]) -> Section:
    found = sorted(data["relaxations"], key=lambda one: -(one["gain"] or 0))
    rows = [
        (
            one["change"],
            "not solved in the time" if one["gain"] is None else f"{one['gain']:+.1%}",
            "–" if one["layout"] is None else short_layout(one),
        )
        for one in found
    ]
    drawn = [
        {"change": one["key"].replace("_", " "), "gain": one["gain"], "what": one["change"]}
        for one in found
        if (one["gain"] or 0) >= LEAST_GAIN
    ]
    label = "Throughput that the fastest layout gains where one thing is relaxed by one step."
    fastest = seconds(data["proof"]["objective"])
    note = f"Against the fastest layout of the scenario as it is, {fastest}."
    heads = ("one step more", "throughput", "layout")
    return Section(
        "relaxations",
        "What one step more would gain",
        note,
        drawings=(Drawing("relaxations", label, drawn),) if drawn else (),
        tables=(table("What one step more would gain", heads, rows, (0, 2)),),
    )


__all__ = ["plan_sections"]
