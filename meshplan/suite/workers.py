"""Cases in processes of their own: several at once, and one that crashes takes no other with it.

Workers are spawned, not forked: a fork of a process with threads may hang.  They end with the
process that started them, however that ends.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path

from meshplan.suite.case import Case, Fault, run_case

#: What a worker calls with each file.
Judge = Callable[[Path], Case]

#: Each worker does its arithmetic on one thread; more would only wait for each other.
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
#: How often the running cases are looked at, in seconds.
_TICK_S = 0.2
#: A case with a time limit that has not ended after twice the limit and this never will.
_GRACE_S = 60.0
_CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")


@dataclass(frozen=True)
class Tick:
    """Which files are at work just now, each with its seconds so far."""

    running: Mapping[Path, float]


#: Index and outcome of a file, or what is at work.
Event = tuple[int, Case] | Tick


def available_cpus() -> int:
    """CPUs that this process may use: its affinity, or less where a container has a quota."""
    affinity = getattr(os, "sched_getaffinity", None)
    count = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    try:
        quota, period = _CPU_QUOTA.read_text("ascii").split()
        return max(1, min(count, round(int(quota) / int(period))))
    except (OSError, ValueError, ZeroDivisionError):  # no such file, or "max": no quota
        return count


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
    patience_s = None if time_limit_s is None else 2 * time_limit_s + _GRACE_S
    waiting = deque(enumerate(files))
    workers = [_Worker(run) for _ in range(min(jobs, len(files)))]
    try:
        while waiting or any(worker.task for worker in workers):
            for worker in workers:
                if worker.task is None and waiting:
                    worker.give(*waiting.popleft())
            yield Tick({one.task[1]: one.seconds for one in workers if one.task is not None})
            busy = {one.pipe: one for one in workers if one.task is not None}
            wait(list(busy), _TICK_S)
            for place, worker in enumerate(workers):
                if (done := worker.done(patience_s)) is None:
                    continue
                yield done
                if worker.dead:
                    worker.end()
                    workers[place] = _Worker(run)
    finally:
        for worker in workers:
            worker.end()


class _Worker:
    """One process and the file that it works on.

    Attributes
    ----------
    pipe
        To the process.
    task
        Index and path of the file; None while it waits for one.
    dead
        Whether it can work no more.
    """

    def __init__(self, run: Judge) -> None:
        context = get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self._process: SpawnProcess = context.Process(target=_work, args=(theirs, run), daemon=True)
        with _interrupts_held_back():
            self._process.start()
        theirs.close()
        self.task: tuple[int, Path] | None = None
        self.dead = False
        self._started = 0.0

    @property
    def seconds(self) -> float:
        """How long it has worked on its file."""
        return time.perf_counter() - self._started

    def give(self, index: int, file: Path) -> None:
        """Hand it a file."""
        self.task, self._started = (index, file), time.perf_counter()
        with suppress(OSError):  # it is dead: `done` finds out
            self.pipe.send(file)

    def done(self, patience_s: float | None) -> tuple[int, Case] | None:
        """Index and outcome of its file, if it has ended, has crashed or must be ended."""
        if self.task is None:
            return None
        index, file = self.task
        if self.pipe.poll():
            case = self._received(file)
        elif patience_s is not None and self.seconds > patience_s:
            self.dead = True
            text = f"still running after {self.seconds:.0f} s, and ended: its limit does not hold"
            case = Case(file, "ERROR", self.seconds, (_fault(file, text),), "no answer")
        else:
            return None
        self.task = None
        return index, case

    def _received(self, file: Path) -> Case:
        try:
            case: Case = self.pipe.recv()
            return case
        except (EOFError, OSError):
            self.dead = True
            self._process.join(_GRACE_S)
            text = f"its process died ({_way_to_die(self._process.exitcode)})"
            return Case(file, "ERROR", self.seconds, (_fault(file, text),), "no answer")

    def end(self) -> None:
        """End the process, whatever it does."""
        self.pipe.close()
        self._process.terminate()
        self._process.join(1)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._process.close()


def _fault(file: Path, text: str) -> Fault:
    advice = "Maybe memory ran out: try fewer --jobs, and this file alone."
    return Fault(f"{text}\n{advice}", str(file), 1)


def _way_to_die(code: int | None) -> str:
    if code is None or code >= 0:
        return f"exit code {code}"
    with suppress(ValueError):
        return f"signal {-code}, {signal.Signals(-code).name}"
    return f"signal {-code}"


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """A process started inside never sees Ctrl-C, which a terminal sends to all: we end it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _work(pipe: Connection, run: Judge) -> None:
    """Life of a worker: files in, outcomes out, until the pipe closes."""
    for name in _ONE_THREAD:
        os.environ.setdefault(name, "1")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with suppress(EOFError, BrokenPipeError):
        while True:
            pipe.send(run(pipe.recv()))


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


__all__ = ["Event", "Tick", "available_cpus", "run_here", "run_in_workers"]
