"""Tasks on this machine: in this process, or in several."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from typing import Any

from meshplan.sweeps.row import failed_row
from meshplan.sweeps.work import Task, solve_task
from meshplan.workers import Busy, Died, in_workers, patience_s

#: Index and row of a task, or None: it goes on.
Event = tuple[int, Mapping[str, Any]] | None


def run_here(tasks: Sequence[Task]) -> Generator[Event, None, None]:
    """Solve one after the other in this process."""
    for index, task in enumerate(tasks):
        yield None
        yield index, solve_task(task)


def run_in_processes(
    tasks: Sequence[Task],
    jobs: int,
    solve: Callable[[Task], Mapping[str, Any]] = solve_task,
) -> Generator[Event, None, None]:
    """Solve in up to ``jobs`` processes at once; rows come as they are ready.

    A task whose process dies gets another one, once: what ended it may have been meant for
    another process.
    """
    limit = max((task.time_limit_s or 0.0 for task in tasks), default=0.0)
    patience = patience_s(limit or None)
    again: list[int] = []
    for last in (False, True):
        places = again if last else list(range(len(tasks)))
        with closing(in_workers([tasks[one] for one in places], jobs, solve, patience)) as run:
            for event in run:
                if isinstance(event, Busy):
                    yield None
                    continue
                place, result = places[event[0]], event[1]
                if not isinstance(result, Died):
                    yield place, result
                elif last:
                    yield place, failed_row(tasks[place].key, f"{result.text}, twice")
                else:
                    again.append(place)


__all__ = ["Event", "run_here", "run_in_processes"]
