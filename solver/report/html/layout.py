"""Sections on one layout: memory by rank, time of a step, what follows from the layout."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from meshplan.solver.report.bars import MEMORY_PARTS, time_parts
from meshplan.solver.report.html.content import Drawing, Section, table
from meshplan.solver.report.html.pipeline import pipeline_section
from meshplan.solver.report.html.placement import placement_section
from meshplan.solver.report.memory import PART_WORDS
from meshplan.solver.report.words import EVENT_WORDS, runs_of_ranks, seconds


def layout_sections(data: dict[str, Any]) -> Iterator[Section]:
    """What is known of the layout of ``data``, each section only if there is something."""
    if data["memory"] is not None:
        yield memory_section(data["memory"])
        if "items" in data["memory"]:
            yield _item_section(data["memory"])
            yield _lever_section(data["memory"])
    if data.get("time") is not None:
        yield time_section(data["time"])
        if data["layout"]["pp"] * data["layout"]["vpp"] > 1:
            yield pipeline_section(data)
    if data.get("placement") is not None:
        yield placement_section(data["placement"])


def memory_section(memory: dict[str, Any]) -> Section:
    """Stacked bars by rank, the capacity as a line; equal neighbours share a row of the table."""
    words = [word for _, _, _, word in MEMORY_PARTS]
    capacity = memory["capacity_gib"]
    drawn = []
    for stage in memory["stages"]:
        edge = 0.0
        for index, (word, gib) in enumerate(_parts(stage)):
            drawn.append(
                {
                    "rank": stage["rank"],
                    "part": word,
                    "color": f"var(--s{index + 1})",
                    "gib": gib,
                    "from": round(edge, 3),
                    "to": round(edge + gib, 3),
                    "peak": stage["peak_gib"],
                    "event": EVENT_WORDS[stage["peak_event"]],
                    "capacity": capacity,
                }
            )
            edge += gib
    rows = [
        (
            str(first) if first == stage["rank"] else f"{first}–{stage['rank']}",
            *(f"{gib:.1f}" for _, gib in _parts(stage)),
            f"{stage['peak_gib']:.1f}",
            EVENT_WORDS[stage["peak_event"]],
            f"{stage['host_gib']:.1f}",
        )
        for first, stage in runs_of_ranks(memory["stages"])
    ]
    heads = ("rank", *words, "peak", "at", "host")
    keys = tuple((f"s{index + 1}", word) for index, word in enumerate(words))
    label = (
        f"Memory of a GPU of each pipeline rank at its peak, by part. The line is the capacity of "
        f"{capacity:.1f} GiB, headroom taken off."
    )
    return Section(
        "memory",
        "Memory by pipeline rank",
        drawings=(Drawing("memory", label, drawn, (*keys, ("line", "capacity"))),),
        tables=(table("Memory by pipeline rank, GiB", heads, rows, (0, len(heads) - 2)),),
    )


def _parts(stage: dict[str, Any]) -> list[tuple[str, float]]:
    """Words and GiB of the parts of a bar."""
    return [(word, round(sum(stage[key] for key in keys), 3)) for keys, _, _, word in MEMORY_PARTS]


def _item_section(memory: dict[str, Any]) -> Section:
    """What the rank of ``meshplan memory`` holds, the largest item of each part first."""
    rank, items = memory["items"]["rank"], memory["items"]["parts"]
    rows = [
        (PART_WORDS[part], item["name"], f"{item['gib']:.2f}")
        for part in PART_WORDS
        for item in sorted(items, key=lambda item: -item["gib"])
        if item["part"] == part
    ]
    stage = memory["stages"][rank]
    title = f"What rank {rank} holds at its peak of {stage['peak_gib']:.2f} GiB"
    heads = ("part", "item", "GiB")
    return Section("items", title, tables=(table(title, heads, rows, (0, 1)),))


def _lever_section(memory: dict[str, Any]) -> Section:
    rows = [
        (
            lever["change"],
            f"{lever['difference_gib']:+.2f}",
            f"{lever['peak_gib']:.2f}",
            f"{lever['step_change']:+.1%}",
            str(lever["rank"]),
            lever["verdict"],
        )
        for lever in memory["levers"]
    ]
    title = "What one change would do to the peak, and to the step time"
    heads = ("change", "difference, GiB", "peak, GiB", "step", "on rank", "verdict")
    return Section("levers", title, tables=(table(title, heads, rows, (0, 5)),))


def time_section(time: dict[str, Any]) -> Section:
    """Parts of the step, the largest first."""
    parts = time_parts(time)
    drawn = [
        {"part": name, "seconds": value, "share": value / time["step_s"], "text": seconds(value)}
        for name, value in parts
    ]
    rows = [(name, seconds(value), f"{value / time['step_s']:.1%}") for name, value in parts]
    rows.append(("step", seconds(time["step_s"]), "100.0%"))
    label = (
        f"Where the {seconds(time['step_s'])} of a step go: the work of the heaviest pipeline rank "
        "over all micro-batches, what it waits for, and what comes once a step."
    )
    return Section(
        "time",
        "Time of a step",
        drawings=(Drawing("time", label, drawn),),
        tables=(table("Time of a step by part", ("part", "time", "share"), rows),),
    )


__all__ = ["layout_sections", "memory_section", "time_section"]
