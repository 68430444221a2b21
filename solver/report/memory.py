"""Memory of one layout for people and tools: events, items, what changes would give."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from meshplan.constraints.memory.stage import PARTS
from meshplan.solver.report.data import check_data, gib
from meshplan.solver.report.words import EVENT_WORDS, runs_of_ranks

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from meshplan.solver.memory import Lever, MemoryReport

#: Keys of a check's data that say nothing of memory, and the one advisory that does.
_LEFT_OUT = ("time", "placement")
_KEPT_ADVICE = "idle-setting"
#: Parts of a rank's memory, in words.
PART_WORDS = {
    "weights": "weights",
    "gradients": "gradients",
    "optimizer": "optimizer state",
    "activations": "activations",
    "logits": "logits",
    "working": "at work",
    "update": "optimizer step",
    "overhead": "overhead",
}
_VERDICTS = {"fits": "fits", "tight": "tight, test it", "overfull": "does not fit"}


def memory_data(report: MemoryReport) -> dict[str, Any]:
    """The report as plain data: that of a check, with ``items`` and ``levers`` of the memory."""
    data = {key: value for key, value in check_data(report.report).items() if key not in _LEFT_OUT}
    data["advisories"] = [one for one in data["advisories"] if one["id"] == _KEPT_ADVICE]
    data["memory"] = {
        **data["memory"],
        "items": {
            "rank": report.rank,
            "parts": [
                {"part": item.part, "name": item.name, "gib": gib(item.quanta)}
                for item in report.items
            ],
        },
        "levers": [_lever_data(report, lever) for lever in report.levers],
    }
    return data


def _lever_data(report: MemoryReport, lever: Lever) -> dict[str, Any]:
    now = report.report.cost
    assert now is not None
    return {
        "change": lever.change,
        "path": lever.path,
        "value": lever.value,
        "peak_gib": gib(lever.peak),
        "difference_gib": round(gib(lever.peak) - gib(now.peak), 3),
        "rank": lever.rank,
        "event": lever.event,
        "verdict": lever.verdict,
        "step_change": round(lever.step_us / now.time.step_us - 1, 6),
    }


def memory_sections(data: dict[str, Any]) -> Iterator[RenderableType]:
    """Events of each rank, what the shown rank holds, and what changes would give."""
    memory = data["memory"]
    yield _titled("Peak by event, GiB", _event_table(memory))
    rank = memory["items"]["rank"]
    stage = memory["stages"][rank]
    event = EVENT_WORDS[stage["peak_event"]]
    title = f"What rank {rank} holds at its peak of {stage['peak_gib']:.2f} GiB ({event})"
    yield _titled(title, _item_table(memory))
    if memory["levers"]:
        title = "What one change would do to the peak, and to the step time"
        yield _titled(title, _lever_table(memory))


def _titled(title: str, table: Table) -> RenderableType:
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    return Group(Text(title, style="bold"), Padding(table, (0, 0, 0, 2)))


def _grid(*justify: str) -> Table:
    from rich.table import Table

    table = Table.grid(padding=(0, 2, 0, 0))
    for side in justify:
        table.add_column(justify="right" if side == "right" else "left")
    return table


def _event_table(memory: dict[str, Any]) -> Table:
    """One row a rank: static parts, then the peak of each event; runs of equal ranks as one."""
    names = list(dict.fromkeys(name for stage in memory["stages"] for name in stage["events"]))
    heads = [_event_head(name) for name in names]
    host = any(stage["host_gib"] for stage in memory["stages"])
    table = _grid("left", *["right"] * (4 + len(names) + host))
    table.add_row("rank", "weights", "gradients", "optimizer", "overhead", *heads,
                  *(["host"] if host else []), style="dim")  # fmt: skip
    for first, stage in runs_of_ranks(memory["stages"]):
        label = str(first) if first == stage["rank"] else f"{first}-{stage['rank']}"
        cells = [
            f"{stage[f'{part}_gib']:.2f}"
            for part in ("weights", "gradients", "optimizer", "overhead")
        ]
        for name in names:
            value = stage["events"].get(name)
            text = "-" if value is None else f"{value:.2f}"
            cells.append(f"[bold]{text}[/]" if name == stage["peak_event"] else text)
        table.add_row(label, *cells, *([f"{stage['host_gib']:.2f}"] if host else []))
    return table


def _event_head(name: str) -> str:
    return {"update_dense": "update dense", "update_expert": "update experts"}.get(name, name)


def _item_table(memory: dict[str, Any]) -> Table:
    table = _grid("left", "right", "left")
    stage = memory["stages"][memory["items"]["rank"]]
    for part in PARTS:
        items = [item for item in memory["items"]["parts"] if item["part"] == part]
        if not items:
            continue
        table.add_row(f"[bold]{PART_WORDS[part]}[/]", f"[bold]{stage[f'{part}_gib']:.2f}[/]", "")
        for item in sorted(items, key=lambda item: -item["gib"]):
            table.add_row("", f"{item['gib']:.2f}", item["name"])
    return table


def _lever_table(memory: dict[str, Any]) -> Table:
    table = _grid("right", "right", "right", "left", "left")
    for lever in memory["levers"]:
        where = f"{_VERDICTS[lever['verdict']]}, rank {lever['rank']}"
        table.add_row(
            f"{lever['difference_gib']:+.2f} GiB",
            f"{lever['peak_gib']:.2f}",
            f"{lever['step_change']:+.1%}",
            lever["change"],
            where,
        )
    return table


__all__ = ["memory_data", "memory_sections"]
