"""Comparisons of two layouts as plain data: ``meshplan why`` and ``meshplan diff``."""

from __future__ import annotations

from typing import Any

from meshplan.solver.compare.decisions import Difference
from meshplan.solver.compare.diff import DiffReport
from meshplan.solver.compare.flips import Flip
from meshplan.solver.compare.stored import Stored
from meshplan.solver.compare.terms import TimeComparison, Timed, compare_times
from meshplan.solver.compare.why import WhyReport
from meshplan.solver.report.data import RESULT_VERSION, check_data, gib
from meshplan.solver.results import CheckReport

#: What the two layouts are called in ``why`` and in ``diff``.
WHY_NAMES = ("given", "optimum")
DIFF_NAMES = ("a", "b")


def why_data(report: WhyReport) -> dict[str, Any]:
    """A layout against the optimum as plain data."""
    names = WHY_NAMES
    least = report.least_us
    return {
        "meshplan_result": RESULT_VERSION,
        "name": report.problem.name,
        "status": report.status,
        "given": check_data(report.given),
        "optimum": report.answer.to_json(),
        "least_s": None if least is None else _seconds(least),
        "preferred_for": report.preferred_for,
        "comparison": comparison_data(report.times, names),
        "differences": [difference_data(one, names) for one in report.differences],
        "flips": [flip_data(one, report.given) for one in report.flips],
    }


def diff_data(report: DiffReport) -> dict[str, Any]:
    """Two results side by side as plain data."""
    names = DIFF_NAMES
    return {
        "meshplan_result": RESULT_VERSION,
        "name": report.problem.name,
        "status": report.status,
        **{
            name: _stored_data(one)
            for name, one in zip(names, (report.first, report.second), strict=True)
        },
        "fields": [
            {"path": one.path, names[0]: one.first, names[1]: one.second} for one in report.fields
        ],
        "comparison": comparison_data(report.times, names),
        "differences": [difference_data(one, names) for one in report.differences],
        "flips": [flip_data(one, report.first.report) for one in report.flips],
    }


def _stored_data(one: Stored) -> dict[str, Any]:
    return {**check_data(one.report), "written_s": one.written_s}


def comparison_data(times: TimeComparison | None, names: tuple[str, str]) -> dict[str, Any] | None:
    """Two step times, term by term; ``names`` are those of the layouts."""
    if times is None:
        return None
    return {
        **_pair(names, times.first_us, times.second_us),
        "difference_s": _seconds(times.difference_us),
        "relative": round(times.relative, 6),
        "verdict": times.verdict,
        "error_band": times.band,
        "scale": round(float(times.scale), 6),
        "terms": [
            {
                "name": term.name,
                **_pair(names, term.first_us, term.second_us),
                "difference_s": _seconds(term.difference_us),
            }
            for term in times.terms
        ],
        "micro_batches": {
            name: {
                "number": one.layout.ga,
                "each_s": _seconds(one.time.bottleneck_us),
                "rank": one.time.rank_us.index(max(one.time.rank_us)),
                "imbalance": round(one.imbalance, 6),
            }
            for name, one in zip(names, (times.first, times.second), strict=True)
        },
    }


def _pair(names: tuple[str, str], first_us: int, second_us: int) -> dict[str, float]:
    return {f"{names[0]}_s": _seconds(first_us), f"{names[1]}_s": _seconds(second_us)}


def difference_data(difference: Difference, names: tuple[str, str]) -> dict[str, Any]:
    """One decision in which two layouts differ."""
    return {
        "decision": difference.decision,
        names[0]: difference.first,
        names[1]: difference.second,
        "follows": difference.follows,
    }


def flip_data(flip: Flip, base: CheckReport) -> dict[str, Any]:
    """One decision of the layout ``base`` changed alone; its time is for the batch of ``base``."""
    report = flip.report
    data: dict[str, Any] = {
        "decision": flip.difference.decision,
        "from": flip.difference.first,
        "to": flip.difference.second,
        "with": list(flip.together),
        "status": report.status,
        "rules": [{"rule": one.rule, "text": one.text} for one in report.violations],
        "split": flip.split,
        "step_s": None,
        "difference_s": None,
        "peak_gib": None,
        "rank": None,
        "event": None,
        "over_gib": None,
    }
    if report.cost is None:
        return data
    fullest = max(report.cost.ranks, key=lambda rank: rank.peak)
    data |= {
        "peak_gib": gib(fullest.peak),
        "rank": fullest.rank,
        "event": fullest.event,
        "over_gib": gib(max(0, fullest.peak - report.problem.capacity)),
    }
    if base.cost is not None and base.layout.gpus == report.layout.gpus:
        times = compare_times(
            Timed(base.problem, base.layout, base.cost.time),
            Timed(report.problem, report.layout, report.cost.time),
        )
        data |= {
            "step_s": _seconds(times.second_us),
            "difference_s": _seconds(-times.difference_us),
        }
    return data


def _seconds(us: int) -> float:
    return round(us / 1e6, 6)


__all__ = ["DIFF_NAMES", "WHY_NAMES", "diff_data", "why_data"]
