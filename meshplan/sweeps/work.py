"""One scenario of a sweep solved: what a worker does, here, in a process or on a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from meshplan.sweeps.code import code_name
from meshplan.sweeps.grid import Point


@dataclass(frozen=True)
class Task:
    """What a worker is given.

    Attributes
    ----------
    data
        The scenario as plain data; files that it names have whole paths.
    key
        Of the scenario and its files, as the one who asked read them.
    time_limit_s
        Seconds after which the best plan so far is the answer; None for no limit.
    code
        Version and code of meshplan where the sweep was asked for.
    """

    data: Mapping[str, Any]
    key: str
    time_limit_s: float | None = None
    code: str = field(default_factory=code_name)


def task_of(point: Point, time_limit_s: float | None) -> Task:
    """The task that a point is."""
    return Task(point.data, point.key, time_limit_s)


def solve_task(task: Task) -> dict[str, Any]:
    """The row of one scenario; one of status ``error`` if it cannot be solved.

    Raises
    ------
    KeyboardInterrupt
        If the user stops it.
    """
    import meshplan
    from meshplan.constraints.resolve import resolve
    from meshplan.scenarios import from_mapping
    from meshplan.solver.solve import solve
    from meshplan.sweeps.grid import scenario_key
    from meshplan.sweeps.row import failed_row, fault_row, row_of

    if task.code != code_name():
        return failed_row(task.key, f"the worker has meshplan {code_name()}, the sweep {task.code}")
    try:
        scenario = from_mapping(task.data)
        if scenario_key(scenario) != task.key:
            return failed_row(
                task.key, "a file that the scenario names differs here, or changed during the sweep"
            )
        # Not meshplan.solve, which also looks at what a plan is close to: no row holds that.
        result = solve(resolve(scenario), time_limit_s=task.time_limit_s)
    except meshplan.InputError as error:
        return failed_row(task.key, " ".join(str(error).split()))
    except Exception as error:
        return fault_row(task.key, error)
    if getattr(result, "stopped_by", None) == "interrupt":
        raise KeyboardInterrupt
    return row_of(result, task.key)


__all__ = ["Task", "solve_task", "task_of"]
