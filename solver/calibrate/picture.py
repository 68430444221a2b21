"""Measured against predicted throughput of each run, before and after, on one page."""

from __future__ import annotations

import io
import math
from typing import TYPE_CHECKING, Any

from meshplan.solver.calibrate.wording import shortened
from meshplan.solver.extras import need
from meshplan.solver.judge import model_tflops_per_gpu
from meshplan.solver.report.words import counted

if TYPE_CHECKING:
    from meshplan.solver.calibrate.findings import RunError
    from meshplan.solver.calibrate.result import CalibrationReport

#: Runs that have a line of their own; of more the worst are shown.  Fewer than the second number
#: stand no further apart than so many would.
_MOST_LINES, _LEAST_LINES = 30, 10
_INCHES, _DPI = (12.0, 7.0), 130
_BEFORE, _AFTER, _UNSEEN, _PASSED = "#8a8a8a", "#0b5fa5", "#c4501b", "#a3234f"
_BAND: dict[str, Any] = {"color": "#0b5fa5", "alpha": 0.12, "linewidth": 0}
_PATH = "#d0d0d0"
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
    _key(figure, report)
    figure.suptitle("\n".join(map(_plain, _title(report))), fontsize=11)
    buffer = io.BytesIO()
    canvas.print_png(buffer, metadata={"Software": "meshplan"})
    return buffer.getvalue()


def _title(report: CalibrationReport) -> list[str]:
    """What the page shows, in one or two lines."""
    errors, passed = report.errors, sum(row.wild for row in report.rows)
    said = f"mean error {errors.before:.1%} before, {errors.after:.1%} after"
    if errors.unseen is not None:
        said += f", {errors.unseen:.1%} on unseen groups"
    number = counted(len(report.rows) - passed, "run")
    number += f" and {passed} passed over" if passed else ""
    title = [f"{report.calibration.name}: {number}, {said}; band ± {report.band.value:.1%}"]
    if report.overall is not None:
        title.append(report.overall.sentence(report.base.name))
    return title


def _key(figure: Any, report: CalibrationReport) -> None:
    """What the signs of both halves mean, below them."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    def sign(label: str, marker: str, edge: str, face: str) -> Line2D:
        return Line2D(
            [], [], linestyle="", label=label, marker=marker, markeredgecolor=edge,
            markerfacecolor=face, color=edge,
        )  # fmt: skip

    handles: list[Any] = [
        sign(f"predicted by {_plain(report.base.name)}", "o", _BEFORE, "white"),
        sign("predicted by the fit", "o", _AFTER, _AFTER),
    ]
    if report.errors.unseen is not None:
        handles.append(sign("by a fit without the run's group", "|", _UNSEEN, _UNSEEN))
    if any(row.wild for row in report.rows):
        handles.append(sign("passed over", "x", _PASSED, _PASSED))
    handles.append(Patch(label="band", **_BAND))
    figure.legend(
        handles=handles, loc="outside lower center", ncols=len(handles), fontsize=9, frameon=False
    )


def _plain(text: str) -> str:
    """``text`` without what Matplotlib would take for mathematics."""
    return text.replace("$", r"\$")


def _scatter(axes: Any, report: CalibrationReport) -> None:
    models = sorted({row.run.problem.model.name for row in report.rows})
    most, least = 0.0, math.inf
    for index, model in enumerate(models):
        rows = [row for row in report.rows if row.run.problem.model.name == model]
        marker, color = _MARKERS[index % len(_MARKERS)], _COLORS[index % len(_COLORS)]
        measured = [_tflops(row, row.run.step_s) for row in rows]
        before = [_tflops(row, row.before_s) for row in rows]
        after = [_tflops(row, row.after_s) for row in rows]
        axes.vlines(measured, before, after, color=_PATH, linewidth=0.8, zorder=1)
        axes.scatter(
            measured, before, marker=marker, s=52, facecolors="none", edgecolors=_BEFORE, zorder=2
        )
        tame = [place for place, row in enumerate(rows) if not row.wild]
        axes.scatter([measured[place] for place in tame], [after[place] for place in tame],
                     marker=marker, s=30, color=color, label=_plain(model), zorder=3)  # fmt: skip
        wild = [place for place, row in enumerate(rows) if row.wild]
        axes.scatter([measured[place] for place in wild], [after[place] for place in wild],
                     marker="x", s=36, color=_PASSED, zorder=3)  # fmt: skip
        most = max(most, *measured, *before, *after)
        least = min(least, *measured, *before, *after)
    first, last = _scale(axes, least, most)
    band = report.band.value
    axes.plot([first, last], [first, last], color="black", linewidth=0.8)
    axes.fill_between([first, last], [first * (1 - band), last * (1 - band)],
                      [first * (1 + band), last * (1 + band)], **_BAND)  # fmt: skip
    axes.set(
        xlim=(first, last),
        ylim=(first, last),
        xlabel="measured, model TFLOP/s per GPU",
        ylabel="predicted, model TFLOP/s per GPU",
    )
    axes.set_title("on the line: predicted as measured", fontsize=10)
    axes.set_box_aspect(1)
    axes.set_anchor("N")
    axes.legend(loc="upper left", fontsize=8, frameon=False)


def _scale(axes: Any, least: float, most: float) -> tuple[float, float]:
    """Ends of both axes; a wide range is drawn on logarithmic ones, where errors look alike."""
    if most < _WIDE * least:
        return 0.0, 1.06 * most
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    axes.set(xscale="log", yscale="log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 5, 7)))
        axis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axis.set_minor_formatter(NullFormatter())
    return 0.8 * least, 1.25 * most


def _tflops(row: RunError, step_s: float) -> float:
    return model_tflops_per_gpu(row.run.problem, row.run.layout, max(1, round(step_s * 1e6)))


def _lines(axes: Any, report: CalibrationReport) -> None:
    worst = sorted(report.rows, key=lambda row: (not row.wild, -abs(row.after)))[:_MOST_LINES]
    rows = sorted(worst, key=lambda row: (row.wild, row.after))
    low, high = _limits(report)
    band = report.band.value * 100
    axes.axvspan(-band, band, **_BAND)
    axes.axvline(0, color="black", linewidth=0.8)
    for place, row in enumerate(rows):
        _line(axes, place, row, low, high)
    axes.set_xlim(low, high)
    names = [_plain(shortened(row.run.name, _NAME)) for row in rows]
    axes.set_yticks(range(len(rows)), names, fontsize=8 if len(rows) > 18 else 9)
    top = len(rows) - 0.3
    axes.set_ylim(top - max(len(rows), _LEAST_LINES) - 0.4, top)
    axes.set_xlabel("error of predicted throughput, % (right: predicted too fast)")
    shown = "each run" if len(rows) == len(report.rows) else f"the worst {len(rows)} runs"
    axes.set_title(shown, fontsize=10)
    axes.grid(axis="x", color="#e8e8e8", zorder=0)
    axes.set_axisbelow(True)


def _line(axes: Any, place: int, row: RunError, low: float, high: float) -> None:
    """One run: its error before and after, and that of a fit without it."""
    before, after = 100 * row.before, 100 * row.after
    if not low < after < high:
        right = after > 0
        edge = high - 0.02 * (high - low) if right else low + 0.02 * (high - low)
        said = f"{'passed over, ' if row.wild else ''}{row.after:+.0%}"
        axes.text(edge, place, f"{said} →" if right else f"← {said}", color=_PASSED,
                  ha="right" if right else "left", va="center", fontsize=8)  # fmt: skip
        return
    axes.hlines([place], [before], [after], color=_PATH, linewidth=1, zorder=1)
    axes.scatter([before], [place], s=48, facecolors="white", edgecolors=_BEFORE, zorder=2)
    color, marker = (_PASSED, "x") if row.wild else (_AFTER, "o")
    axes.scatter([after], [place], s=26, color=color, marker=marker, zorder=3)
    if row.unseen is not None and not row.wild:
        axes.scatter([100 * row.unseen], [place], s=40, marker="|", color=_UNSEEN, zorder=4)


def _limits(report: CalibrationReport) -> tuple[float, float]:
    """Ends of the errors on the page, in percent: one wild run shall not squeeze the others."""
    tame = [row for row in report.rows if not row.wild]
    errors = [100 * (one or 0.0) for row in tame for one in (row.before, row.after, row.unseen)]
    band = 100 * report.band.value
    low, high = min(*errors, -1.3 * band), max(*errors, 1.3 * band)
    margin = 0.05 * (high - low)
    return low - margin, high + margin


__all__ = ["draw"]
