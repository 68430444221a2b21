"""The report of ``meshplan limits``, as text and as plain data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from meshplan.solver.limits.results import Limit, LimitsReport
from meshplan.solver.report.data import RESULT_VERSION
from meshplan.solver.report.diagnosis_data import plan_figures
from meshplan.solver.report.diagnosis_words import result_text
from meshplan.solver.report.words import counted

#: Fields that count something else than their limit: whole nodes or domains, where it is GPUs.
_IN_OTHER_UNITS = ("cluster.nodes", "cluster.domains")


def limits_data(report: LimitsReport) -> dict[str, Any]:
    """``meshplan_result: 1``: the limits, each with the plan that it buys."""
    return {
        "meshplan_result": RESULT_VERSION,
        "name": report.problem.name,
        "status": report.status,
        "possible": report.possible,
        "wall_s": round(report.wall_s, 3),
        "limits": [_limit_data(one) for one in report.limits],
        "assumed": list(report.problem.assumed),
    }


def _limit_data(one: Limit) -> dict[str, Any]:
    return {
        "path": one.path,
        "limit": one.title,
        "now": one.now,
        "value": one.value,
        "proved": one.proved,
        "bounded": one.bounded,
        "proof": one.proof,
        "result": None if one.plan is None else plan_figures(one.plan),
    }


def limits_text(report: LimitsReport) -> str:
    """The limits as text, two or three lines each."""
    lines = [f"{report.problem.name}: {_verdict(report)}", ""]
    for one in report.limits:
        lines += _lines(one)
    lines += ["", "Each limit holds with all else as the scenario says."]
    return "\n".join(lines) + "\n"


def _verdict(report: LimitsReport) -> str:
    if report.possible is None:
        return "whether it has a layout was not known in time"
    has = "has a layout" if report.possible else "has no layout (meshplan diagnose says why)"
    left = sum(not one.proved for one in report.limits)
    if left:
        return f"{has}; the time was up before {counted(left, 'limit')} could be proved"
    return f"{has}; all limits are proved"


def _lines(one: Limit) -> Iterator[str]:
    now = "open" if one.now is None else f"{one.now:,g}" if one.now < 1e6 else f"{one.now:,.0f}"
    if one.value is None:
        figure = "none" if one.proved else "not known"
    else:
        figure = f"{one.value:,}{'' if one.bounded else ' or more'}"
        if not one.proved:
            figure += " or better"
    field = f"now {now}, of {one.path}" if one.path in _IN_OTHER_UNITS else f"{one.path}, now {now}"
    yield f"{one.title:28}{figure:>14}   {field}"
    yield f"    {one.proof}"
    if one.plan is not None:
        yield f"    {result_text(plan_figures(one.plan))}"


__all__ = ["limits_data", "limits_text"]
