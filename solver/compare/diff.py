"""Two results side by side: what ``meshplan diff`` does."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from meshplan.constraints.problem import Problem
from meshplan.solver.compare.decisions import Difference, differences
from meshplan.solver.compare.flips import Flip, flips
from meshplan.solver.compare.stored import Stored, stored
from meshplan.solver.compare.terms import TimeComparison, Timed, compare_times
from meshplan.solver.results import CheckReport, Plan
from meshplan.solver.shown import Shown

#: Sections of a scenario in which two questions may differ without being others.
_UNASKED = ("meshplan", "name", "description")


@dataclass(frozen=True)
class FieldDifference:
    """A field in which two scenarios differ; None where it is left open."""

    path: str
    first: Any
    second: Any


@dataclass(frozen=True)
class DiffReport(Shown):
    """Two layouts side by side.

    Attributes
    ----------
    first, second
        The two.
    fields
        Fields in which their scenarios differ.
    differences
        Decisions in which the layouts differ.
    times
        The two step times, term by term; None where one of them has none.
    flips
        Each differing decision of the first changed alone to that of the second, in the scenario
        of the first.
    """

    first: Stored
    second: Stored
    fields: tuple[FieldDifference, ...]
    differences: tuple[Difference, ...]
    times: TimeComparison | None
    flips: tuple[Flip, ...]
    status: Literal["compared"] = "compared"

    @property
    def problem(self) -> Problem:
        """The scenario of the first."""
        return self.first.report.problem

    def to_json(self) -> dict[str, Any]:
        """The comparison as plain data, by the contract ``meshplan_result: 1``."""
        from meshplan.solver.report.compare_data import diff_data

        return diff_data(self)


def diff(
    first: Plan | CheckReport | str | Path,
    second: Plan | CheckReport | str | Path,
    *,
    time_limit_s: float | None = None,
) -> DiffReport:
    """Compare two results, or the JSON files of two.

    Parameters
    ----------
    time_limit_s
        Seconds after which layers are split near-evenly where a change asks for another split.

    Raises
    ------
    InputError
        If a file cannot be read, or is no result with a layout.
    """
    deadline = None if time_limit_s is None else time.monotonic() + time_limit_s
    one, two = stored(first), stored(second)
    mine, other = one.report, two.report
    return DiffReport(
        one,
        two,
        tuple(_field_differences(one.asked, two.asked)),
        differences(mine.problem, mine.layout, other.layout, other.problem),
        _times(mine, other),
        tuple(flips(mine.problem, mine.layout, other.layout, deadline)),
    )


def _times(first: CheckReport, second: CheckReport) -> TimeComparison | None:
    """The two step times; None where one has none, or is of a mesh that is not the cluster's."""
    for report in (first, second):
        if report.cost is None or report.layout.gpus != report.problem.gpus:
            return None
    assert first.cost is not None and second.cost is not None
    return compare_times(
        Timed(first.problem, first.layout, first.cost.time),
        Timed(second.problem, second.layout, second.cost.time),
    )


def _field_differences(
    first: Mapping[str, Any], second: Mapping[str, Any]
) -> Iterator[FieldDifference]:
    one, two = (dict(_flat(data, "")) for data in (first, second))
    for path in dict.fromkeys([*one, *two]):
        if one.get(path) != two.get(path) and path not in _UNASKED:
            yield FieldDifference(path, one.get(path), two.get(path))


def _flat(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Fields by their path: ``workload.seq_len``."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _flat(part, f"{path}.{key}" if path else str(key))
    else:
        yield path, value


__all__ = ["DiffReport", "FieldDifference", "diff"]
