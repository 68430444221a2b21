"""The report of ``meshplan why``: a layout against the optimum."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from meshplan.solver.compare.why import WhyReport
from meshplan.solver.report.compare import band_text, comparison_sections, figures, time_text
from meshplan.solver.report.compare_data import WHY_NAMES
from meshplan.solver.report.remarks import conflicts, remarks, violations
from meshplan.solver.report.summary import panel, question_rows, too_much
from meshplan.solver.report.words import EVENT_WORDS, counted, seconds

if TYPE_CHECKING:
    from rich.console import RenderableType

_OPTIMUM = {"optimal": "the optimum", "feasible": "the best plan found in the time"}


def why_sections(report: WhyReport, data: dict[str, Any]) -> Iterator[RenderableType]:
    """The answer in words, rules broken, what differs, time by part, single changes."""
    yield panel(report.problem.name, data["status"], verdict(data), rows(report, data))
    if data["given"]["violations"]:
        yield violations(data["given"]["violations"])
    if data["optimum"]["conflicts"]:
        yield conflicts(data["optimum"]["conflicts"])
    yield from comparison_sections(telling(data), WHY_NAMES)
    yield from remarks({"assumed": data["given"]["assumed"]})


def telling(data: dict[str, Any]) -> dict[str, Any]:
    """``data`` without changes that mend nothing of an illegal layout: they say nothing."""
    if not data["given"]["violations"]:
        return data
    return {**data, "flips": [one for one in data["flips"] if one["status"] != "illegal"]}


def verdict(data: dict[str, Any]) -> str:
    """The answer in a sentence or three."""
    status, given, optimum = data["status"], data["given"], data["optimum"]
    if status == "illegal":
        return f"Illegal: this layout breaks {counted(len(given['violations']), 'rule')}."
    if status == "overfull":
        return f"Overfull: this layout is legal, but {_where_too_much(given['memory'])}."
    if status == "infeasible":
        return (
            "This layout is legal and fits, but takes what the scenario keeps from the search, "
            "which is proved to have no layout."
        )
    if status == "unknown":
        return "This layout is legal and fits; the search was stopped before it found any plan."
    best = _OPTIMUM[optimum["status"]]
    if status == "optimal":
        return f"This layout is {best}."
    sentence = time_text(data["comparison"], "This layout", best)
    return " ".join(
        part for part in (f"{sentence}.", band_text(data["comparison"]), _reason(data)) if part
    )


def _where_too_much(memory: dict[str, Any]) -> str:
    fullest = max(memory["stages"], key=lambda stage: stage["peak_gib"])
    event = EVENT_WORDS[fullest["peak_event"]]
    return too_much(memory, f" on rank {fullest['rank']} ({event})")


def _reason(data: dict[str, Any]) -> str:
    """Why the search puts the optimum first."""
    given, optimum, why = data["given"], data["optimum"], data["preferred_for"]
    if data["status"] == "faster":
        return "It takes what the scenario keeps from the search."
    if why == "dp":
        dp = (optimum["layout"]["dp"], given["layout"]["dp"])
        return f"The search prefers more data parallelism, {dp[0]} against {dp[1]}."
    if why == "memory":
        peak = (optimum["memory"]["peak_gib"], given["memory"]["peak_gib"])
        return f"The search prefers less memory, {peak[0]:.1f} GiB against {peak[1]:.1f}."
    if why == "order":
        return "Nothing that the search looks at tells the two apart but the order of decisions."
    return ""


def rows(report: WhyReport, data: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Question, and the layouts side by side: labels and figures; an empty pair is a gap."""
    yield from question_rows(report.problem)
    yield "", ""
    yield "given", figures(data["given"], None)
    optimum = data["optimum"]
    if optimum["layout"] is None:
        return
    yield (
        report.answer.status if optimum["status"] != "optimal" else "optimum",
        figures(optimum, data["given"]),
    )
    if pinned := [pin.decision for pin in report.problem.pins if pin.path.startswith("layout.")]:
        yield "pinned", f"{', '.join(pinned)}: the optimum keeps to what the scenario pins"
    if data["least_s"] is not None and data["comparison"] is not None:
        gain = 1 - data["least_s"] / data["comparison"]["given_s"]
        text = f"no layout of the search takes less than {seconds(data['least_s'])}"
        yield "bound", text + (f" ({gain:.1%} less than given)" if gain > 0 else "")
