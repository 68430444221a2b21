"""Sections of a comparison of two layouts: what differs, where the time goes, single changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from meshplan.solver.report.words import EVENT_WORDS, relative_time, seconds, short_layout

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

#: Terms whose difference is below this share of the step are summed up.
_LEAST_SHARE = 0.0005
_SPLITS = {
    "kept": "",
    "other": "",
    "best": "layers split anew",
    "near-even": "layers split near-evenly",
}


def time_text(comparison: dict[str, Any], name: str, other: str) -> str:
    """How one layout does against the other: ``4.3% slower than B (586 s against 562 s)``."""
    relative = comparison["relative"]
    first, second = (seconds(comparison[f"{key}_s"]) for key in _names(comparison))
    if comparison["verdict"] == "equal":
        return f"{name} takes as long as {other} ({first})"
    if relative > 1:
        return (
            f"{name} takes {relative + 1:.1f} times as long as {other} ({first} against {second})"
        )
    way = "slower" if relative > 0 else "faster"
    return f"{name} is {abs(relative):.1%} {way} than {other} ({first} against {second})"


def band_text(comparison: dict[str, Any]) -> str:
    """What the error band says of the difference."""
    band = comparison["error_band"]
    if comparison["verdict"] == "equal":
        return ""
    if band is None:
        return "How far the time model errs on this model is not known."
    if comparison["verdict"] == "tie":
        return f"That is within the error band of {band:.0%}: a tie, not a difference."
    return f"The error band of the time model is {band:.0%}."


def comparison_sections(data: dict[str, Any], labels: tuple[str, str]) -> Iterator[RenderableType]:
    """What differs, the time by part, and each decision changed alone; ``labels`` head columns."""
    if data["differences"]:
        yield _titled("Decisions that differ", _difference_table(data["differences"], labels))
    comparison = data["comparison"]
    if comparison is not None and comparison["verdict"] != "equal":
        title = "Time of a step"
        if comparison["scale"] != 1:
            title += f", {labels[1]} × {comparison['scale']:g} for the same work"
        yield _titled(title, _term_table(comparison, labels))
    if data["flips"]:
        title = f"One decision changed alone, from {labels[0]} towards {labels[1]}"
        yield _titled(title, flip_table(data["flips"]))


def figures(data: dict[str, Any], base: dict[str, Any] | None) -> str:
    """Degrees, step time and memory of a layout, against another one if there is one."""
    text = short_layout(data)
    if data.get("time") is None or data["status"] == "illegal":
        return text
    step = seconds(data["time"]["step_s"])
    if base is not None and base["time"] is not None and base["status"] != "illegal":
        relative = relative_time(base, data["time"]["step_s"], data["layout"]["gbs"])
        step += f" ({relative:+.1%}" + _batch_note(data, base) + ")"
    return f"{text}: {step}, {data['memory']['peak_gib']:.1f} GiB"


def _batch_note(data: dict[str, Any], base: dict[str, Any]) -> str:
    gbs = data["layout"]["gbs"]
    return "" if gbs == base["layout"]["gbs"] else f" a sequence, gbs {gbs:,}"


def _names(entry: dict[str, Any]) -> tuple[str, str]:
    first, second = (key.removesuffix("_s") for key in list(entry)[:2])
    return first, second


def _titled(title: str, table: Table) -> RenderableType:
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    return Group(Text(title, style="bold"), Padding(table, (0, 0, 0, 2)))


def _grid(*justify: str) -> Table:
    from rich.table import Table

    table = Table.grid(padding=(0, 2, 0, 0))
    for side in justify:
        table.add_column(justify="right" if side == "right" else "left", overflow="fold")
    return table


def field_table(found: list[dict[str, Any]], labels: tuple[str, str]) -> RenderableType:
    """Fields in which two scenarios differ."""
    from rich.text import Text

    table = _grid("left", "left", "left")
    table.add_row("", *labels, style="dim")
    for one in found:
        values = ("open" if value is None else str(value) for value in list(one.values())[1:])
        table.add_row(Text(one["path"]), *(Text(value) for value in values))
    return _titled("Scenarios that differ", table)


def _difference_table(found: list[dict[str, Any]], labels: tuple[str, str]) -> Table:
    from rich.text import Text

    table = _grid("left", "left", "left", "left")
    table.add_row("", *labels, "", style="dim")
    for one in found:
        first, second = (one[key] for key in list(one)[1:3])
        note = "follows from the others" if one["follows"] else ""
        cells = (one["decision"], str(first), str(second))
        table.add_row(*(Text(cell) for cell in cells), Text(note, style="dim"))
    return table


def _term_table(comparison: dict[str, Any], labels: tuple[str, str]) -> Table:
    """Terms that differ, the largest difference first; the rest as one row; the sum."""
    table = _grid("left", "right", "right", "right", "right")
    table.add_row("", *labels, "difference", "", style="dim")
    first, second = names = _names(comparison)
    base = comparison[f"{second}_s"]
    for term in shown_terms(comparison, names):
        table.add_row(term["name"].replace("_", " "), *_cells(term, first, second, base))
    table.add_row("step", *_cells(comparison, first, second, base), style="bold")
    batches = [comparison["micro_batches"][name] for name in (first, second)]
    heads = [f"{one['number']:,} × {seconds(one['each_s'])}" for one in batches]
    table.add_row("micro-batches, heaviest rank", *heads, "", "", style="dim")
    return table


def shown_terms(comparison: dict[str, Any], names: tuple[str, str]) -> list[dict[str, Any]]:
    """Terms that differ, the largest difference first; the rest as one."""
    keys = (*(f"{name}_s" for name in names), "difference_s")
    least = _LEAST_SHARE * comparison[keys[1]]
    terms = sorted(comparison["terms"], key=lambda term: -abs(term["difference_s"]))
    shown = [term for term in terms if abs(term["difference_s"]) >= least]
    rest = [term for term in terms if abs(term["difference_s"]) < least]
    if any(term[key] for term in rest for key in keys[:2]):
        sums = {key: sum(term[key] for term in rest) for key in keys}
        shown.append({"name": "everything else", **sums})
    return shown


def _cells(entry: dict[str, Any], first: str, second: str, base: float) -> tuple[str, ...]:
    difference = entry["difference_s"]
    return (
        seconds(entry[f"{first}_s"]),
        seconds(entry[f"{second}_s"]),
        signed(difference),
        f"{difference / base:+.1%}",
    )


def signed(value: float) -> str:
    """A difference of times: ``+1.20 s``."""
    return ("-" if value < 0 else "+") + seconds(abs(value))


def flip_table(found: list[dict[str, Any]]) -> Table:
    """Each decision changed alone: what it costs or gains, or which rules it breaks."""
    from rich.text import Text

    table = _grid("left", "left", "left")
    for flip in found:
        change, status, text = flip_text(flip)
        style = "green" if status == "ok" else "red"
        table.add_row(Text(change), Text(status, style=style), Text(text))
    return table


def flip_text(flip: dict[str, Any]) -> tuple[str, str, str]:
    """A decision changed alone: the change, what it makes of the layout, and what that costs."""
    change = f"{flip['decision']} {flip['from']} → {flip['to']}"
    if flip["with"]:
        change += f", with {' and '.join(flip['with'])}"
    if flip["decision"] == "pipeline":
        change = "pipeline: the other split"
    return change, flip["status"], _flip_figures(flip)


def _flip_figures(flip: dict[str, Any]) -> str:
    if flip["status"] == "illegal":
        return ", ".join(one["rule"] for one in flip["rules"])
    parts = []
    if flip["status"] == "overfull":
        where = f"on rank {flip['rank']} ({EVENT_WORDS[flip['event']]})"
        over = f"{flip['over_gib']:.1f} GiB too much {where}"
        parts.append(over if flip["over_gib"] else "too much host memory")
    if flip["step_s"] is not None:
        parts.append(f"{seconds(flip['step_s'])} ({signed(flip['difference_s'])})")
    if flip["status"] == "ok":
        over = f" ({flip['over_gib']:.1f} of the headroom)" if flip["over_gib"] else ""
        parts.append(f"{flip['peak_gib']:.1f} GiB{over}")
    if _SPLITS[flip["split"]]:
        parts.append(_SPLITS[flip["split"]])
    return ", ".join(parts)


__all__ = ["band_text", "comparison_sections", "field_table", "figures", "time_text"]
