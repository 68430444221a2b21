"""The result of a calibration for people: parameters, errors, the worst runs, ties."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from meshplan.scenarios.errors import one_line
from meshplan.solver.calibrate.wording import shortened
from meshplan.solver.report.words import counted, seconds

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from meshplan.solver.calibrate.findings import Parameter
    from meshplan.solver.calibrate.result import CalibrationReport

_WORST = 5


def sections(report: CalibrationReport) -> Iterator[RenderableType]:
    """The sections of the report, in order."""
    yield _summary(report)
    yield _parameters(report)
    yield _worst(report)
    if report.notes:
        yield _notes(report)


def _summary(report: CalibrationReport) -> RenderableType:
    from rich.console import Group
    from rich.padding import Padding
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    fitted = sum(one.status == "fitted" for one in report.parameters)
    better = fitted > 0 and report.after < report.before
    style = "green" if better else "yellow"
    said = f"{counted(fitted, 'efficiency')}".replace("efficiencys", "efficiencies")
    head = f"Fitted {said} to {counted(len(report.rows), 'run')} of {one_line(report.source)}."
    rows = Table.grid(padding=(0, 2))
    rows.add_column(style="dim", no_wrap=True)
    rows.add_column(overflow="fold")
    for label, text in _summary_rows(report):
        rows.add_row(label, Text(text))
    return Panel(
        Group(Padding(Text(head, style=f"bold {style}"), (0, 0, 1, 0)), rows),
        title=Text(report.calibration.name, style="bold"),
        title_align="left",
        border_style=style,
    )


def _summary_rows(report: CalibrationReport) -> Iterator[tuple[str, str]]:
    yield "error before", f"{report.before:.1%} mean error of throughput, by {report.base.name}"
    yield "after", f"{report.after:.1%}, on the runs of the fit"
    if report.unseen is None:
        yield "unseen", f"not known: {counted(report.groups, 'group')} of runs, at least 3 needed"
    else:
        yield (
            "unseen",
            f"{report.unseen:.1%}, cross-validated over {counted(report.groups, 'group')} of equal "
            "model, cluster and layout",
        )
    yield "band", f"± {report.band.value:.1%}, {_band_reason(report)}"
    yield "ties", _ties(report)


def _band_reason(report: CalibrationReport) -> str:
    return {
        "cross-validation": "the error on unseen runs",
        "floor": "as measurements of one run differ by as much",
        "base": f"that of {report.base.name}, as there are too few groups to leave some out",
        "fit": "the error of the fit, as there are too few groups to leave some out",
    }[report.band.source]


def _ties(report: CalibrationReport) -> str:
    text = (
        f"plans closer than {report.band.value:.1%} are ties now "
        f"({report.base.error_band:.1%} by {report.base.name})"
    )
    before, after = report.ties_before, report.ties_after
    if not after.pairs:
        return text
    text += (
        f": of {counted(after.pairs, 'pair')} of layouts of one model, cluster and workload "
        f"{before.ties} were ties, {after.ties} are"
    )
    told_before, told_after = before.pairs - before.ties, after.pairs - after.ties
    if not told_before and not told_after:
        return text
    return (
        f"{text}; of the others {before.right} of {told_before} were ordered as measured, "
        f"{after.right} of {told_after} are"
    )


def _table(*columns: tuple[str, str]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for index, (head, side) in enumerate(columns):
        table.add_column(
            Text(head),
            justify="right" if side == "right" else "left",
            no_wrap=index < len(columns) - 1,
            overflow="fold",
        )
    return table


def _titled(title: str, body: RenderableType) -> RenderableType:
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    return Group(Text(title, style="bold"), Padding(body, (0, 0, 0, 2)))


def _parameters(report: CalibrationReport) -> RenderableType:
    from rich.text import Text

    table = _table(("", "left"), ("base", "right"), ("fitted", "right"), ("", "left"))
    order = {"fitted": 0, "kept": 1, "idle": 2}
    shown = sorted(report.parameters, key=lambda one: order[one.status])
    idle = [one.name for one in shown if one.status == "idle"]
    for one in shown:
        if one.status == "idle":
            continue
        style = "" if one.status == "fitted" else "dim"
        cells = (one.name, f"{one.base:g}", _fitted(one), _reason(one))
        table.add_row(*(Text(cell, style=style) for cell in cells))
    if idle:
        return _titled("Efficiencies", _with_line(table, f"no run depends on {', '.join(idle)}"))
    return _titled("Efficiencies", table)


def _with_line(table: Table, text: str) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    return Group(table, Text(text, style="dim"))


def _fitted(parameter: Parameter) -> str:
    if parameter.spread is None:
        return "kept"
    digits = 2 if parameter.value >= 2 else 3
    return f"{parameter.value:.{digits}f} ± {parameter.spread:.{digits}f}"


def _reason(parameter: Parameter) -> str:
    if parameter.status == "fitted":
        change = parameter.value / parameter.base - 1
        return f"{change:+.0%}" + (f", {parameter.reason}" if parameter.reason else "")
    return parameter.reason


def _worst(report: CalibrationReport) -> RenderableType:
    from rich.text import Text

    table = _table(
        ("run", "left"), ("measured", "right"), ("before", "right"), ("after", "right"),
        ("unseen", "right"), ("", "left"),
    )  # fmt: skip
    for row in sorted(report.rows, key=lambda row: -abs(row.after))[:_WORST]:
        unseen = "" if row.unseen is None else f"{row.unseen:+.1%}"
        table.add_row(
            Text(shortened(row.run.name, 40)),
            seconds(row.run.step_s),
            f"{row.before:+.1%}",
            f"{row.after:+.1%}",
            unseen,
            Text(f"line {row.run.line}" + (", passed over" if row.wild else "")),
        )
    few = len(report.rows) <= _WORST
    title = (
        "Runs, by error of predicted throughput"
        if few
        else (f"Worst {_WORST} of {len(report.rows)} runs, by error of predicted throughput")
    )
    return _titled(title, table)


def _notes(report: CalibrationReport) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    rows = Table.grid(padding=(0, 1))
    rows.add_column(no_wrap=True)
    rows.add_column(overflow="fold")
    for note in report.notes:
        rows.add_row("-", Text(note))
    return _titled("Notes", rows)


__all__ = ["sections"]
