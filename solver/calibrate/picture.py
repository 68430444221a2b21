"""Measured against predicted throughput of each run, before and after, on one page."""

from __future__ import annotations

import io
import math
from typing import TYPE_CHECKING, Any

from meshplan.solver.calibrate.wording import shortened
from meshplan.solver.extras import need
from meshplan.solver.judge import model_tflops_per_gpu

if TYPE_CHECKING:
    from meshplan.solver.calibrate.findings import RunError
    from meshplan.solver.calibrate.result import CalibrationReport

#: Runs that have a line of their own; of more the worst are shown.
_MOST_LINES = 30
_INCHES, _DPI = (12.0, 7.0), 130
_BEFORE, _AFTER, _BAND = "#9a9a9a", "#0b5fa5", "#0b5fa5"
#: Models take these in turn; as their numbers have no common factor, 70 models look different.
_MARKERS = "osD^vP*X<>"
_COLORS = ("#0b5fa5", "#c4501b", "#2a7f3e", "#7b3fa0", "#8a6d00", "#a3234f", "#1d7d86")
#: Throughputs that differ by more than this factor are drawn on logarithmic axes.
_WIDE = 3
_NAME = 40


def draw(report: CalibrationReport) -> bytes:
    """The page as PNG.

    Raises
    ------
    InputError
        If Matplotlib is not installed.
    """
    need("matplotlib", "plot", "a picture")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=_INCHES, dpi=_DPI, layout="constrained")
    canvas: Any = FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, width_ratios=(1.0, 1.15))
    _scatter(left, report)
    _lines(right, report)
    errors = report.errors
    said = f"mean error {errors.before:.1%} before, {errors.after:.1%} after"
    if errors.unseen is not None:
        said += f", {errors.unseen:.1%} on unseen groups"
    figure.suptitle(
        _plain(f"{report.calibration.name}: {len(report.rows)} runs, {said}; band ± "
               f"{report.band.value:.1%}"),
        fontsize=12,
    )  # fmt: skip
    buffer = io.BytesIO()
    canvas.print_png(buffer, metadata={"Software": "meshplan"})
    return buffer.getvalue()


def _plain(text: str) -> str:
    """``text`` without what Matplotlib would take for mathematics."""
    return text.replace("$", r"\$")


def _scatter(axes: Any, report: CalibrationReport) -> None:
    models = sorted({row.run.problem.model.name for row in report.rows})
    most, least = 0.0, math.inf
    for index, model in enumerate(models):
        rows = [row for row in report.rows if row.run.problem.model.name == model]
        marker = _MARKERS[index % len(_MARKERS)]
        measured = [_tflops(row, row.run.step_s) for row in rows]
        before = [_tflops(row, row.before_s) for row in rows]
        after = [_tflops(row, row.after_s) for row in rows]
        axes.vlines(measured, before, after, color="#d0d0d0", linewidth=0.8, zorder=1)
        axes.scatter(
            measured, before, marker=marker, s=30, facecolors="none", edgecolors=_BEFORE, zorder=2
        )
        axes.scatter(measured, after, marker=marker, s=30, color=_COLORS[index % len(_COLORS)],
                     label=_plain(model), zorder=3)  # fmt: skip
        most = max(most, *measured, *before, *after)
        least = min(least, *measured, *before, *after)
    first, last = _scale(axes, least, most)
    band = report.band.value
    axes.plot([first, last], [first, last], color="black", linewidth=0.8)
    axes.fill_between([first, last], [first * (1 - band), last * (1 - band)],
                      [first * (1 + band), last * (1 + band)], color=_BAND, alpha=0.12,
                      linewidth=0)  # fmt: skip
    axes.set(
        xlim=(first, last),
        ylim=(first, last),
        xlabel="measured, model TFLOP/s per GPU",
        ylabel="predicted, model TFLOP/s per GPU",
    )
    axes.set_title("hollow: before, filled: after", fontsize=10)
    axes.set_box_aspect(1)
    axes.legend(loc="upper left", fontsize=8, frameon=False)


def _scale(axes: Any, least: float, most: float) -> tuple[float, float]:
    """Ends of both axes; a wide range is drawn on logarithmic ones, where errors look alike."""
    if most < _WIDE * least:
        return 0.0, 1.06 * most
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    axes.set(xscale="log", yscale="log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axis.set_minor_formatter(NullFormatter())
    return 0.8 * least, 1.25 * most


def _tflops(row: RunError, step_s: float) -> float:
    return model_tflops_per_gpu(row.run.problem, row.run.layout, max(1, round(step_s * 1e6)))


def _lines(axes: Any, report: CalibrationReport) -> None:
    worst = sorted(report.rows, key=lambda row: -abs(row.after))[:_MOST_LINES]
    rows = sorted(worst, key=lambda row: row.after)
    places = range(len(rows))
    band = report.band.value * 100
    axes.axvspan(-band, band, color=_BAND, alpha=0.12, linewidth=0)
    axes.axvline(0, color="black", linewidth=0.8)
    limit = _limit(report)
    before = [_within(row.before * 100, limit) for row in rows]
    after = [_within(row.after * 100, limit) for row in rows]
    axes.hlines(places, before, after, color="#d0d0d0", linewidth=1, zorder=1)
    axes.scatter(before, places, s=26, facecolors="white", edgecolors=_BEFORE, zorder=2,
                 label="before")  # fmt: skip
    axes.scatter(after, places, s=26, color=_AFTER, zorder=3, label="after")
    unseen = [
        (_within(row.unseen * 100, limit), place)
        for place, row in enumerate(rows)
        if row.unseen is not None
    ]
    if unseen:
        axes.scatter(*zip(*unseen, strict=True), s=34, marker="|", color="#c4501b", zorder=4,
                     label="unseen (cross-validated)")  # fmt: skip
    for place, row in enumerate(rows):
        if abs(row.after * 100) > limit:
            side = 1 if row.after > 0 else -1
            axes.annotate(f"{row.after:+.0%}, beyond the page", (side * limit * 0.96, place),
                          ha="right" if side > 0 else "left", va="center", fontsize=8)  # fmt: skip
    axes.set_xlim(-limit * 1.04, limit * 1.04)
    names = [
        _plain(shortened(row.run.name, _NAME)) + (" (passed over)" if row.wild else "")
        for row in rows
    ]
    axes.set_yticks(list(places), names, fontsize=8 if len(rows) > 18 else 9)
    axes.set_ylim(-0.7, max(len(rows), 4) - 0.3)
    axes.set_xlabel("error of predicted throughput, %")
    shown = "each run" if len(rows) == len(report.rows) else f"the worst {len(rows)} runs"
    axes.set_title(f"{shown}; shaded: the band", fontsize=10)
    axes.grid(axis="x", color="#e8e8e8", zorder=0)
    axes.set_axisbelow(True)
    axes.legend(loc="best", fontsize=8, framealpha=0.9)


def _limit(report: CalibrationReport) -> float:
    """Largest error that the page shows, in percent: one wild run shall not squeeze the others."""
    tame = [row for row in report.rows if not row.wild] or list(report.rows)
    errors = [abs(error or 0.0) for row in tame for error in (row.before, row.after, row.unseen)]
    return 100 * max(1.15 * max(errors), 1.3 * report.band.value)


def _within(value: float, limit: float) -> float:
    return min(max(value, -limit), limit)


__all__ = ["draw"]
