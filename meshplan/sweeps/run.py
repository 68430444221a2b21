"""Run a sweep: what the journal has is taken from there, the rest is solved and kept at once."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass

from meshplan.sweeps.dask_cluster import run_on_dask
from meshplan.sweeps.grid import Grid
from meshplan.sweeps.journal import Journal
from meshplan.sweeps.local import Event, run_here, run_in_processes
from meshplan.sweeps.result import Sweep, sweep_of
from meshplan.sweeps.row import Row
from meshplan.sweeps.work import Task, task_of


@dataclass(frozen=True)
class Done:
    """How far a sweep is.

    Attributes
    ----------
    rows
        How many scenarios have one.
    scenarios
        How many there are.
    kept
        How many of the rows were in the journal when the sweep began.
    """

    rows: int
    scenarios: int
    kept: int


@dataclass(frozen=True)
class Means:
    """What a sweep is run with.

    Attributes
    ----------
    jobs
        Processes at once; 1 for this one.
    scheduler
        Address of the scheduler of a Dask cluster instead; None for this machine.
    time_limit_s
        For each scenario.
    """

    jobs: int = 1
    scheduler: str | None = None
    time_limit_s: float | None = None


class Run:
    """A sweep that can be stopped at any time.

    Attributes
    ----------
    kept
        Rows that the journal had.
    """

    def __init__(self, grid: Grid, means: Means, journal: Journal | None = None) -> None:
        self._grid, self._means, self._journal = grid, means, journal
        known = journal.rows_of(one.key for one in grid.points) if journal is not None else {}
        self._rows: dict[int, Row] = {
            one.index: known[one.key] for one in grid.points if one.key in known
        }
        self.kept = len(self._rows)

    def run(self, progress: Callable[[Done], None] | None = None) -> None:
        """Solve what is missing.

        Raises
        ------
        InputError
            If the journal or the scheduler is gone; what is finished is kept.
        KeyboardInterrupt
            If the user stops it; what is finished is kept.
        """
        missing = [one for one in self._grid.points if one.index not in self._rows]
        tasks = [task_of(one, self._means.time_limit_s) for one in missing]
        if not tasks:
            return
        with closing(self._events(tasks)) as events:
            for event in events:
                if event is not None:
                    place, row = event
                    # Scenarios that failed by a fault are tried again by the next run.
                    if self._journal is not None and row["status"] != "error":
                        self._journal.add(row)
                    self._rows[missing[place].index] = row
                if progress is not None:
                    progress(Done(len(self._rows), len(self._grid.points), self.kept))

    def result(self) -> Sweep:
        """All that is known so far."""
        values = [one.values for one in self._grid.points]
        return sweep_of(self._grid.name, self._grid.axes, values, self._rows)

    def _events(self, tasks: list[Task]) -> Generator[Event, None, None]:
        if self._means.scheduler is not None:
            return run_on_dask(tasks, self._means.scheduler)
        if self._means.jobs == 1 or len(tasks) == 1:
            return run_here(tasks)
        return run_in_processes(tasks, self._means.jobs)


__all__ = ["Done", "Means", "Run"]
