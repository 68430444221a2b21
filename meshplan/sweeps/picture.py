"""The picture of a sweep: throughput, DP left and least GPUs against the first axis."""

from __future__ import annotations

import io
import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from meshplan.scenarios.errors import InputError
from meshplan.solver.extras import need
from meshplan.sweeps.axes import Axis
from meshplan.sweeps.result import Sweep
from meshplan.sweeps.row import Row

#: Lines that the eye can still tell apart.
MOST_SERIES = 14
#: The fields that say how large the cluster is.
GPU_FIELDS = ("cluster.gpus", "cluster.nodes")
_PANEL_INCHES, _HEIGHT_INCHES, _DPI = 4.6, 4.4, 130
_COLORS = ("#0b5fa5", "#c4501b", "#2a7f3e", "#7b3fa0", "#8a6d00", "#a3234f", "#1d7d86")
#: Lines of the last panel are others than those of the first two.
_GREYS = ("#222222", "#8a8a8a", "#5b7083", "#8c6f5a", "#5f7a5f")
_MARKERS = "os^Dv"
#: Width of the first line, and of the last: of lines that lie on each other all are seen.
_FIRST_WIDTH, _LAST_WIDTH = 4.0, 1.5
#: Values that differ by this factor are drawn on a logarithmic scale, with so many ticks at most.
_WIDE, _MOST_TICKS = 4, 12
#: Where signs of scenarios without a plan stand, as fractions of the height: the lowest, the step
#: to that of the next line, and how many are stacked.
_FLOOR, _FLOOR_STEP, _STACK = 0.025, 0.035, 7


def draw(sweep: Sweep, form: str = "png") -> bytes:
    """The picture as ``png`` or ``svg``: a panel for each figure, a line for each other value.

    Raises
    ------
    InputError
        If Matplotlib is not installed, or there are too many lines.
    """
    need("matplotlib", "plot", "a picture")
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    check_picture(sweep.axes)
    first, others = sweep.axes[0], sweep.axes[1:]
    size = next((axis for axis in others if axis.field in GPU_FIELDS), None)
    panels = 2 if size is None else 3
    figure = Figure((_PANEL_INCHES * panels, _HEIGHT_INCHES), dpi=_DPI, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, panels, squeeze=False)[0]
    series = _series(sweep.rows, first, others)
    _panel(axes[0], first, series, "tokens_per_s_per_gpu", "tokens/s per GPU")
    _panel(axes[1], first, series, "dp", "data parallelism left (DP)")
    if size is not None:
        _least(axes[2], sweep, first, [axis for axis in others if axis is not size])
    _key(figure, axes[0], series)
    figure.suptitle(_plain(sweep.name), fontsize=12)
    buffer = io.BytesIO()
    # The same bytes on every run: no date, no random ids.
    with mpl.rc_context({"svg.hashsalt": "meshplan"}):
        metadata = {"Date": None} if form == "svg" else {"Software": "meshplan"}
        figure.savefig(buffer, format=form, metadata=metadata)
    return buffer.getvalue()


def check_picture(axes: Sequence[Axis]) -> None:
    """Refuse a picture with more lines than can be told apart: before anything is solved.

    Raises
    ------
    InputError
        If it would have them.
    """
    number = 1
    for axis in axes[1:]:
        number *= len(axis.values)
    if number > MOST_SERIES:
        raise InputError(
            f"--picture would have {number:,} lines, but {MOST_SERIES} are the most that can be "
            "told apart",
            advice="put the longest --over first, or sweep fewer values of the others.",
        )


#: Lines by what they are called.
_Lines = Mapping[str, Sequence[Row]]


def _series(rows: Sequence[Row], first: Axis, others: Sequence[Axis]) -> _Lines:
    """Rows of each combination of the other axes' values, in the order of the first axis."""
    found: dict[str, list[Row]] = {}
    for chosen in itertools.product(*(axis.values for axis in others)):
        label = ", ".join(
            f"{axis.field.rpartition('.')[2]} {_shown(value)}"
            for axis, value in zip(others, chosen, strict=True)
        )
        found[label] = [
            row
            for row in rows
            if all(_same(row[axis.field], one) for axis, one in zip(others, chosen, strict=True))
        ]
    return found


def _same(value: Any, other: Any) -> bool:
    return type(value) is type(other) and bool(value == other)


def _shown(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return value if isinstance(value, str) else json.dumps(value)


def _plain(text: str) -> str:
    """``text`` without what Matplotlib would take for mathematics."""
    return text.replace("$", r"\$")


def _panel(axes: Any, first: Axis, series: _Lines, column: str, label: str) -> None:
    """One figure against the first axis; what has no plan stands on the floor."""
    places = _places(axes, first)
    for number, rows in enumerate(series.values()):
        style = _style(number, len(series))
        for open_, part in _runs([row for row in rows if row[column] is not None], first):
            axes.plot(
                [places(row[first.field]) for row in part],
                [row[column] for row in part],
                **style, markerfacecolor="white" if open_ else style["color"],
            )  # fmt: skip
        _floor(axes, places, first, rows, number)
    signs = max((number % _STACK + 1 for number, rows in enumerate(series.values())
                 if any(row["step_s"] is None for row in rows)), default=0)  # fmt: skip
    values = [row[column] for rows in series.values() for row in rows]
    _finish(axes, label)
    _scale(axes, values, base=2 if column == "dp" else 10, below=_FLOOR + _FLOOR_STEP * signs)


def _runs(rows: Sequence[Row], first: Axis) -> Iterator[tuple[bool, list[Row]]]:
    """A line through neighbours on the axis, then each that is not proved, with an open sign."""
    line: list[Row] = []
    before = -2
    for row in rows:
        place = next(i for i, one in enumerate(first.values) if _same(one, row[first.field]))
        if place != before + 1 and line:
            yield False, line
            line = []
        line.append(row)
        before = place
    if line:
        yield False, line
    for row in rows:
        if row["status"] == "feasible":
            yield True, [row]


def _style(number: int, lines: int, colors: Sequence[str] = _COLORS) -> dict[str, Any]:
    """How a line looks: thinner than those before it, which it may lie on."""
    share = number / (lines - 1) if lines > 1 else 1.0
    width = _FIRST_WIDTH + share * (_LAST_WIDTH - _FIRST_WIDTH)
    return {
        "color": colors[number % len(colors)],
        "marker": _MARKERS[number // len(colors) % len(_MARKERS)],
        "linestyle": "-" if number < len(colors) else "--",
        "linewidth": width,
        "markersize": 3.5 + width,
    }


def _floor(axes: Any, places: Any, first: Axis, rows: Sequence[Row], number: int) -> None:
    """A cross for what is proved to have no plan, a question mark for what is not known."""
    for row in rows:
        if row["step_s"] is None:
            axes.plot(
                [places(row[first.field])],
                [_FLOOR + _FLOOR_STEP * (number % _STACK)],
                marker="x" if row["status"] == "infeasible" else "$?$",
                color=_COLORS[number % len(_COLORS)],
                markersize=6,
                linestyle="",
                transform=axes.get_xaxis_transform(),
                clip_on=False,
            )


def _least(axes: Any, sweep: Sweep, first: Axis, others: Sequence[Axis]) -> None:
    """The smallest cluster of the sweep that has a plan; open where a smaller one is not proved."""
    places = _places(axes, first)
    series = _series(sweep.rows, first, others)
    for number, (label, rows) in enumerate(series.items()):
        found = [
            (value, *least_gpus([row for row in rows if _same(row[first.field], value)]))
            for value in first.values
        ]
        known = [
            (places(value), math.nan if gpus is None else gpus, proved)
            for value, gpus, proved in found
        ]  # where nothing has a plan the line breaks
        style = _style(number, len(series), _GREYS)
        axes.plot(
            [x for x, _, _ in known], [y for _, y, _ in known], **style, label=_plain(label) or None
        )
        open_ = [(x, y) for x, y, proved in known if not proved]
        axes.plot([x for x, _ in open_], [y for _, y in open_],
                  **style | {"linestyle": ""}, markerfacecolor="white")  # fmt: skip
    _finish(axes, "least GPUs, of those swept")
    _scale(axes, [row["cluster_gpus"] for row in sweep.rows], base=2)
    if others:
        axes.legend(fontsize=8, frameon=False)


def least_gpus(rows: Sequence[Row]) -> tuple[int | None, bool]:
    """GPUs of the smallest cluster with a plan, and whether all smaller ones have none, proved."""
    with_plan = [row["cluster_gpus"] for row in rows if row["step_s"] is not None]
    if not with_plan:
        return None, False
    least = min(with_plan)
    below = [row for row in rows if row["step_s"] is None and _size(row) < least]
    return least, all(row["status"] == "infeasible" for row in below)


def _size(row: Row) -> int:
    """GPUs of the cluster; nothing, and so below all, where a fault left it unknown."""
    return row["cluster_gpus"] or 0


def _places(axes: Any, first: Axis) -> Any:
    """Where values stand: on a scale to the base 2 if they are numbers, else one by one."""
    numbers = all(
        isinstance(one, int | float) and not isinstance(one, bool) for one in first.values
    )
    if numbers and min(first.values) > 0:
        values = sorted(first.values)
        if len(values) > 1 and values[-1] >= 4 * values[0]:
            axes.set_xscale("log", base=2)
        shown = values if len(values) <= 9 else values[:: -(-len(values) // 9)]
        axes.set_xticks(shown, [_tick(one) for one in shown])
        axes.set_xticks([], minor=True)
        axes.set_xlabel(first.field)
        return lambda value: value
    labels = [_plain(_shown(one)) for one in first.values]
    axes.set_xticks(range(len(labels)), labels, rotation=20 if max(map(len, labels)) > 8 else 0)
    axes.set_xlabel(first.field)
    return lambda value: next(i for i, one in enumerate(first.values) if _same(one, value))


def _tick(value: float) -> str:
    """``128K`` for 131,072, ``2M`` for 2,097,152."""
    if isinstance(value, int) and value >= 2**20 and value % 2**20 == 0:
        return f"{value // 2**20:,}M"
    if isinstance(value, int) and value >= 1024 and value % 1024 == 0:
        return f"{value // 1024:,}K"
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def _finish(axes: Any, label: str) -> None:
    axes.set_title(label, fontsize=10)
    axes.grid(color="#e8e8e8")
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _scale(axes: Any, values: Sequence[float | None], *, base: int, below: float = 0.0) -> None:
    """From zero, or logarithmic if values differ by much.

    ``below`` is the fraction of the height that stays free at the bottom of a logarithmic scale.
    """
    from matplotlib.ticker import FuncFormatter

    known = sorted({one for one in values if one})
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.12g}"))
    if not known or known[-1] < _WIDE * known[0]:
        axes.set_ylim(0, 1.12 * known[-1] if known else 1)
        return
    axes.set_yscale("log", base=base)
    top = known[-1] * 1.25
    bottom = known[0] / 1.25
    axes.set_ylim(bottom / (top / bottom) ** (below / (1 - below)), top)
    steps = (1,) if base == 2 else (1, 2, 5)
    ticks = [step * base**power for power in range(-6, 42) for step in steps]
    shown = [one for one in ticks if bottom <= one <= top]
    shown = shown[:: -(-len(shown) // _MOST_TICKS)] or known[:1]
    axes.set_yticks(shown, [f"{one:,.12g}" for one in shown])
    axes.set_yticks([], minor=True)


def _key(figure: Any, axes: Any, series: _Lines) -> None:
    """Lines and signs, below the panels."""
    from matplotlib.lines import Line2D

    handles = []
    if len(series) > 1:
        handles = [
            Line2D([], [], **_style(number, len(series)), label=_plain(label))
            for number, label in enumerate(series)
        ]
    states = {row["status"] for rows in series.values() for row in rows}
    signs = (("infeasible", "x", "no plan exists"), ("unknown", "$?$", "not known in the time"))
    for status, marker, label in signs:
        if status in states:
            handles.append(Line2D([], [], marker=marker, color="#555555", ls="", label=label))
    if "feasible" in states:
        handles.append(Line2D([], [], marker="o", color="#555555", ls="", label="plan, not proved",
                              markerfacecolor="white"))  # fmt: skip
    if handles:
        figure.legend(handles=handles, loc="outside lower center", ncols=min(6, len(handles)),
                      frameon=False, fontsize=9)  # fmt: skip


__all__ = ["GPU_FIELDS", "MOST_SERIES", "check_picture", "draw", "least_gpus"]
