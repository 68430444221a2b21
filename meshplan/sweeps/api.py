"""Sweeps from Python."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from meshplan.arguments import check_limit
from meshplan.scenarios import InputError, Scenario
from meshplan.sweeps.axes import axes_of
from meshplan.sweeps.grid import read_grid
from meshplan.sweeps.result import Sweep
from meshplan.sweeps.run import Means, Run


def sweep(
    scenario: Scenario | str | Path,
    over: Mapping[str, Iterable[object]],
    *,
    jobs: int = 1,
    time_limit_s: float | None = None,
) -> Sweep:
    """Solve a scenario with each combination of values of some fields.

    Parameters
    ----------
    scenario
        A scenario, or the path of its file.
    over
        The values of each field: ``{"workload.seq_len": [4096, 8192], "cluster.gpus": [64, 128]}``.
    jobs
        Processes at once; 1 solves all in this one.
    time_limit_s
        For each scenario.

    Raises
    ------
    InputError
        If the scenario, a field or one of its values is not allowed, or an argument out of range.
    """
    check_limit(time_limit_s)
    if jobs < 1:
        raise InputError(f"jobs is {jobs}, but must be 1 or more", advice="leave it out for 1.")
    run = Run(read_grid(scenario, (), axes_of(over)), Means(jobs, None, time_limit_s))
    run.run()
    return run.result()


__all__ = ["sweep"]
