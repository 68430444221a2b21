"""Results that were written as JSON, read back and costed again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from meshplan.constraints.decisions import DEGREES
from meshplan.scenarios import Scenario, from_mapping
from meshplan.scenarios.checks import shown
from meshplan.scenarios.errors import InputError
from meshplan.scenarios.files import read_file
from meshplan.solver.check import check, judge_layout
from meshplan.solver.results import CheckReport, Plan

_VERSION = 1
_ADVICE = "give a file that solve --json or check --json wrote."


@dataclass(frozen=True)
class Stored:
    """A layout that a command wrote, judged again.

    Attributes
    ----------
    report
        The layout of the file, or of the plan, judged by this version.
    written_s
        Step time that the file gives; None if it gives none.
    data
        What stands in the file; empty where there is none.
    """

    report: CheckReport
    written_s: float | None
    data: Mapping[str, Any] = field(default_factory=dict)

    @property
    def asked(self) -> Mapping[str, Any]:
        """The scenario as plain data."""
        return self.report.problem.asked


def stored(given: Plan | CheckReport | str | Path) -> Stored:
    """The layout of a result, or of the JSON file of one.

    Raises
    ------
    InputError
        If the file cannot be read, is no result of ``solve`` or ``check``, or has no layout.
    """
    if isinstance(given, Plan | CheckReport):
        report = judge_layout(given.problem, given.layout)
        return Stored(report, None if report.cost is None else report.cost.time.step_us / 1e6)
    if isinstance(given, str | Path):
        return _read(str(given))
    raise InputError(
        f"a {type(given).__name__} has no layout to compare",
        advice="give a Plan, a CheckReport or the path of its JSON.",
    )


def _read(path: str) -> Stored:
    data = _object(path)
    layout = data.get("layout")
    if layout is None:
        raise InputError(
            f"the result has no layout (status {shown(data.get('status'))})",
            advice="compare results that have one: a plan of solve, or a layout of check.",
            file=path,
        )
    try:
        scenario = from_mapping(data["scenario"])
        report = check(scenario, _as_stated(data))
        written = data["time"]["step_s"] if data.get("time") else None
    except InputError as error:
        raise InputError(f"{error.message}", advice=error.advice, file=path) from None
    except (KeyError, TypeError, AttributeError) as error:
        raise _damaged(path, f"the key {error}" if isinstance(error, KeyError) else "") from None
    return Stored(report, _seconds(written, scenario, path), data)


def _object(path: str) -> dict[str, Any]:
    text = read_file(path)
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        why = error.msg if isinstance(error, json.JSONDecodeError) else type(error).__name__
        line = error.lineno if isinstance(error, json.JSONDecodeError) else None
        raise InputError(f"this is no JSON ({why})", advice=_ADVICE, file=path, line=line) from None
    if not isinstance(data, dict) or data.get("meshplan_result") != _VERSION:
        raise InputError(
            f"this is no result of meshplan: it has no meshplan_result = {_VERSION}",
            advice=_ADVICE,
            file=path,
        )
    if "layout" not in data or not isinstance(data.get("scenario"), dict):
        raise InputError(
            "this result has no layout and scenario: it is of another command, or older",
            advice=_ADVICE,
            file=path,
        )
    return data


def _damaged(path: str, what: str) -> InputError:
    missing = f": {what} is missing" if what else ""
    return InputError(f"this result is damaged{missing}", advice=_ADVICE, file=path)


def _as_stated(data: Mapping[str, Any]) -> dict[str, object]:
    """All decisions of a result, by the keys of ``--layout``."""
    layout, recompute = data["layout"], data["recompute"]
    graphs = [scope for scope in data["cuda_graphs"] if scope != "full_iteration"]
    full = recompute["granularity"] == "full"
    return {
        **{name: layout[name] for name in DEGREES},
        "cp_comm": layout["cp_comm"],
        "recompute": "full" if full else recompute["modules"],
        "optimizer_offload": data["optimizer_offload"],
        "dispatcher": data["dispatcher"],
        "graphs": graphs,
        "pipeline": data["pipeline"]["layout"] if data["pipeline"] else None,
    }


def _seconds(value: object, scenario: Scenario, path: str) -> float | None:
    if value is None or (isinstance(value, int | float) and value > 0):
        return value
    raise InputError(f"time.step_s of {scenario.name} is {shown(value)}", advice=_ADVICE, file=path)


__all__ = ["Stored", "stored"]
