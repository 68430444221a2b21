"""Bars of a report: memory of each pipeline rank, and where the time of a step goes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshplan.solver.report.words import EVENT_WORDS, runs_of_ranks, seconds

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

#: Parts of a memory bar: keys of a stage, sign, colour, word.
MEMORY_PARTS: tuple[tuple[tuple[str, ...], str, str, str], ...] = (
    (("weights_gib",), "█", "blue", "weights"),
    (("gradients_gib",), "▓", "cyan", "gradients"),
    (("optimizer_gib",), "▒", "magenta", "optimizer"),
    (("activations_gib",), "░", "yellow", "activations"),
    (("working_gib", "logits_gib", "update_gib"), "+", "bright_red", "at work"),
    (("overhead_gib",), "-", "white", "overhead"),
)
#: More ranks than this are shown as runs of equal ranks; if need be, only the fullest.
_MOST_ROWS = 16
#: Parts of the step below this share are summed up.
_LEAST_SHARE = 0.002
#: Columns beside the memory bar, and beside the time bar.
_MEMORY_TEXT, _TIME_TEXT = 36, 44
_INDENT = 2


def memory_bars(memory: dict[str, Any], width: int) -> RenderableType:
    """One bar a pipeline rank, with the capacity as a line that the title names, and a legend."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    cells = max(10, width - _MEMORY_TEXT)
    rows = _memory_rows(memory["stages"])
    table = Table.grid(padding=(0, 1))
    for justify in ("right", "left", "right", "left"):
        table.add_column(justify=justify, no_wrap=True)
    hidden = len(rows) - _MOST_ROWS
    if hidden > 0:
        fullest = sorted(rows, key=lambda row: -row[1]["peak_gib"])[:_MOST_ROWS]
        rows = [row for row in rows if row in fullest]
    for label, stage in rows:
        peak = f"{stage['peak_gib']:.1f} GiB"
        over = stage["peak_gib"] > memory["capacity_gib"]
        event = EVENT_WORDS[stage["peak_event"]]
        table.add_row(
            label,
            _memory_bar(stage, memory, cells),
            Text(peak, style="bold red" if over else ""),
            Text(f"over, {event}" if over else event, style="red" if over else "dim"),
        )
    title = f"Memory by pipeline rank (│ = {memory['capacity_gib']:.1f} GiB to use)"
    lines: list[RenderableType] = [_title(title), Padding(table, (0, 0, 0, _INDENT))]
    if hidden > 0:
        lines.append(Text(f"  ({hidden} rows of emptier ranks are not shown)", style="dim"))
    lines.append(Padding(_legend(width - _INDENT), (0, 0, 0, _INDENT)))
    return Group(*lines)


def _memory_rows(stages: list[dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    if len(stages) <= _MOST_ROWS:
        return [(f"rank {stage['rank']}", stage) for stage in stages]
    return [
        (f"{first}-{stage['rank']}" if first != stage["rank"] else f"rank {first}", stage)
        for first, stage in runs_of_ranks(stages)
    ]


def _memory_bar(stage: dict[str, Any], memory: dict[str, Any], cells: int) -> Text:
    from rich.text import Text

    scale = max(memory["capacity_gib"], memory["peak_gib"])
    line = min(cells - 1, int(memory["capacity_gib"] / scale * (cells - 1)))
    filled: list[tuple[str, str]] = []
    total = 0.0
    for keys, sign, colour, _ in MEMORY_PARTS:
        total += sum(stage[key] for key in keys)
        end = min(cells, round(total / scale * (cells - 1)))
        filled += [(sign, colour)] * (end - len(filled))
    filled += [(" ", "")] * (cells - len(filled))
    filled[line] = ("│", "bold")
    bar = Text()
    for sign, colour in filled:
        bar.append(sign, style=colour)
    return bar


def _legend(width: int) -> Text:
    """Signs of the parts, on as few lines of equally many parts as ``width`` allows."""
    from rich.text import Text

    whole = sum(len(f"{sign} {word}  ") for _, sign, _, word in MEMORY_PARTS) - 2
    lines = -(-whole // max(1, width))
    a_line = -(-len(MEMORY_PARTS) // lines)
    legend = Text(style="dim")
    for index, (_, sign, colour, word) in enumerate(MEMORY_PARTS):
        if index:
            legend.append("  " if index % a_line else "\n")
        legend.append(sign, style=f"not dim {colour}")
        legend.append(f" {word}")
    return legend


def time_parts(time: dict[str, Any]) -> list[tuple[str, float]]:
    """Parts of the step in seconds, the largest first; the smallest ones as one, at the end."""
    step_s = time["step_s"]
    parts = sorted(time["breakdown"].items(), key=lambda part: -part[1])
    shown = [(name.replace("_", " "), value) for name, value in parts
             if value >= _LEAST_SHARE * step_s]  # fmt: skip
    rest = step_s - sum(value for _, value in shown)
    return [*shown, ("everything else", rest)] if rest > 5e-7 else shown


def time_bars(time: dict[str, Any], width: int) -> RenderableType:
    """Parts of the step, largest first."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.table import Table

    step_s = time["step_s"]
    cells = max(10, width - _TIME_TEXT)
    table = Table.grid(padding=(0, 1))
    for justify in ("left", "right", "right", "left"):
        table.add_column(justify=justify, no_wrap=True)
    for name, value in time_parts(time):
        share = value / step_s
        bar = "█" * round(share * cells)
        table.add_row(name, seconds(value), f"{share:.1%}", bar or "▏")
    return Group(_title("Time of a step"), Padding(table, (0, 0, 0, _INDENT)))


def _title(text: str) -> Text:
    from rich.text import Text

    return Text(text, style="bold")
