"""The result of a calibration for people: parameters, errors, the worst runs, ties."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from meshplan.scenarios.errors import one_line
from meshplan.solver.calibrate.choose import FEWEST_GROUPS
from meshplan.solver.calibrate.determined import Why
from meshplan.solver.calibrate.findings import Grade
from meshplan.solver.calibrate.predict import OVERALL, SHARED
from meshplan.solver.calibrate.validate import BandFrom
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

    sound = report.worth.grade is Grade.SOUND
    better = sound and report.errors.after < report.errors.before
    style = "green" if better else "yellow"
    number = sum(not row.wild for row in report.rows)
    head = f"Fitted {_what(report)} to {counted(number, 'run')} of {one_line(report.source)}."
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


def _what(report: CalibrationReport) -> str:
    """What was fitted."""
    single = sum(one.status == "fitted" and one.name != OVERALL for one in report.parameters)
    words = ["a common factor"] if report.overall is not None else []
    words += (
        [counted(single, "efficiency").replace("efficiencys", "efficiencies")] if single else []
    )
    return " and ".join(words) or "nothing"


def _summary_rows(report: CalibrationReport) -> Iterator[tuple[str, str]]:
    errors = report.errors
    if report.overall is not None:
        yield "overall", report.overall.sentence(report.base.name)
    yield "error before", f"{errors.before:.1%} mean error of throughput, by {report.base.name}"
    yield "after", f"{errors.after:.1%}, on the runs of the fit"
    if errors.unseen is None:
        yield (
            "unseen",
            f"not known: {counted(errors.groups, 'group')} of runs, {FEWEST_GROUPS} needed",
        )
    else:
        yield (
            "unseen",
            f"{errors.unseen:.1%}, cross-validated over {counted(errors.groups, 'group')} of equal "
            "model, cluster and layout",
        )
    yield "band", f"± {report.band.value:.1%}, {_band_reason(report)}"
    yield "ties", _ties(report)
    if report.worth.text:
        yield "worth", report.worth.text


def _band_reason(report: CalibrationReport) -> str:
    few = "as there are too few groups to leave some out"
    return {
        BandFrom.UNSEEN: "the error on unseen runs, and what it may be off by",
        BandFrom.FLOOR: "as measurements of one run differ by as much",
        BandFrom.BASE: f"that of {report.base.name}, {few}",
        BandFrom.DISTANCE: f"how far the runs are from {report.base.name}, {few}",
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
    order = {"fitted": 0, "shared": 1, "kept": 2}
    idle = [one.name for one in report.parameters if one.why is Why.IDLE]
    shown = [one for one in report.parameters if one.why is not Why.IDLE]
    for one in sorted(shown, key=lambda one: (one.name != OVERALL, order[one.status])):
        style = "" if one.status == "fitted" else "dim"
        name = "all together" if one.name == OVERALL else one.name
        cells = (name, f"{one.base:g}", _fitted(one), _reason(one, report.overall is not None))
        table.add_row(*(Text(cell, style=style) for cell in cells))
    if idle:
        return _titled("Efficiencies", _with_line(table, f"no run depends on {', '.join(idle)}"))
    return _titled("Efficiencies", table)


def _with_line(table: Table, text: str) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    return Group(table, Text(text, style="dim"))


def _fitted(parameter: Parameter) -> str:
    digits = 2 if parameter.value >= 2 else 3
    if parameter.spread is None:
        return f"{parameter.value:.{digits}f}" if parameter.status == "shared" else "kept"
    return f"{parameter.value:.{digits}f} ± {parameter.spread:.{digits}f}"


def _reason(parameter: Parameter, shared: bool) -> str:
    """What became of a parameter; ``shared`` if a common factor is fitted."""
    if parameter.status == "fitted":
        change = f"{parameter.value / parameter.base - 1:+.0%}"
        change += " in all" if shared and parameter.name in SHARED else ""
        return change + (f", {parameter.reason}" if parameter.reason else "")
    return f"with all; {parameter.reason}" if parameter.status == "shared" else parameter.reason


def _worst(report: CalibrationReport) -> RenderableType:
    from rich.text import Text

    table = _table(
        ("run", "left"), ("measured", "right"), ("before", "right"), ("after", "right"),
        ("unseen", "right"), ("", "left"),
    )  # fmt: skip
    for row in sorted(report.rows, key=lambda row: (not row.wild, -abs(row.after)))[:_WORST]:
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
