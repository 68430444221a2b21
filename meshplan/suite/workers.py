"""Cases one after the other in this process, or several at once in processes of their own."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from meshplan.suite.case import Case, Fault, run_case
from meshplan.workers import Busy, Died, in_workers, patience_s

#: What a worker calls with each file.
Judge = Callable[[Path], Case]


@dataclass(frozen=True)
class Tick:
    """Which files are at work just now, each with its seconds so far."""

    running: Mapping[Path, float]


#: Index and outcome of a file, or what is at work.
Event = tuple[int, Case] | Tick


def run_here(
    files: Sequence[Path], time_limit_s: float | None, *, debug: bool = False
) -> Generator[Event, None, None]:
    """Run all cases in this process, one after the other; as :func:`run_in_workers`."""
    for index, file in enumerate(files):
        yield Tick({file: 0.0})
        yield index, run_case(file, time_limit_s, debug=debug)


def run_in_workers(
    files: Sequence[Path],
    jobs: int,
    time_limit_s: float | None,
    *,
    debug: bool = False,
    judge: Judge | None = None,
) -> Generator[Event, None, None]:
    """Run all cases in up to ``jobs`` processes.

    Yields the index and outcome of each file as soon as it has one, and a :class:`Tick` now and
    then.  Closing the iterator ends what still runs.

    Parameters
    ----------
    time_limit_s
        Of each case, as for :func:`~meshplan.suite.case.run_case`; one that long passes it is
        ended.
    judge
        What runs one case in the worker; must be importable there.  By default ``run_case``.
    """
    run = judge or partial(run_case, time_limit_s=time_limit_s, debug=debug)
    with closing(in_workers(files, jobs, run, patience_s(time_limit_s))) as events:
        for event in events:
            if isinstance(event, Busy):
                yield Tick({files[index]: seconds for index, seconds in event.seconds.items()})
                continue
            index, result = event
            yield index, _failed(files[index], result) if isinstance(result, Died) else result


def _failed(file: Path, died: Died) -> Case:
    advice = "Maybe memory ran out: try fewer --jobs, and this file alone."
    fault = Fault(f"{died.text}\n{advice}", str(file), 1)
    return Case(file, "ERROR", died.seconds, (fault,), "no answer")


__all__ = ["Event", "Tick", "run_here", "run_in_workers"]
