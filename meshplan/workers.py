"""Tasks in processes of their own: several at once, and one that crashes takes no other with it.

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
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Generic, TypeVar

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")

#: Each worker does its arithmetic on one thread; more would only wait for each other.
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
#: How often the running tasks are looked at, in seconds.
_TICK_S = 0.2
#: How long a dead process may take to be gone, in seconds.
_BURIAL_S = 60.0
#: A task with a time limit that has not ended after twice the limit and this never will.
_GRACE_S = 60.0
_CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")


@dataclass(frozen=True)
class Busy:
    """Which tasks are at work just now: seconds so far by index."""

    seconds: Mapping[int, float]


@dataclass(frozen=True)
class Died:
    """A task that has no result, and why.

    Attributes
    ----------
    text
        What became of its process.
    seconds
        How long it had worked.
    """

    text: str
    seconds: float


def available_cpus() -> int:
    """CPUs that this process may use: its affinity, or less where a container has a quota."""
    affinity = getattr(os, "sched_getaffinity", None)
    count = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    try:
        quota, period = _CPU_QUOTA.read_text("ascii").split()
        return max(1, min(count, round(int(quota) / int(period))))
    except (OSError, ValueError, ZeroDivisionError):  # no such file, or "max": no quota
        return count


def patience_s(time_limit_s: float | None) -> float | None:
    """Seconds after which a task with this time limit is ended; None for never."""
    return None if time_limit_s is None else 2 * time_limit_s + _GRACE_S


def in_workers(
    tasks: Sequence[_Task],
    jobs: int,
    run: Callable[[_Task], _Result],
    patience_s: float | None = None,
) -> Generator[tuple[int, _Result | Died] | Busy, None, None]:
    """Run all tasks in up to ``jobs`` processes.

    Yields the index and result of each task as soon as it has one, and a :class:`Busy` now and
    then.  Closing the iterator ends what still runs.

    Parameters
    ----------
    run
        What a worker calls with each task; must be importable there.
    patience_s
        A task that takes longer is ended; None for never.
    """
    waiting = deque(enumerate(tasks))
    workers = [_Worker(run) for _ in range(min(jobs, len(tasks)))]
    try:
        while waiting or any(worker.task is not None for worker in workers):
            for worker in workers:
                if worker.task is None and waiting:
                    worker.give(*waiting.popleft())
            yield Busy({one.task: one.seconds for one in workers if one.task is not None})
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


class _Worker(Generic[_Task, _Result]):
    """One process and the task that it works on.

    Attributes
    ----------
    pipe
        To the process.
    task
        Index of the task; None while it waits for one.
    dead
        Whether it can work no more.
    """

    def __init__(self, run: Callable[[_Task], _Result]) -> None:
        context = get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self._process: SpawnProcess = context.Process(target=_work, args=(theirs, run), daemon=True)
        with _interrupts_held_back():
            self._process.start()
        theirs.close()
        self.task: int | None = None
        self.dead = False
        self._started = 0.0

    @property
    def seconds(self) -> float:
        """How long it has worked on its task."""
        return time.perf_counter() - self._started

    def give(self, index: int, task: _Task) -> None:
        """Hand it a task."""
        self.task, self._started = index, time.perf_counter()
        with suppress(OSError):  # it is dead: `done` finds out
            self.pipe.send(task)

    def done(self, patience_s: float | None) -> tuple[int, _Result | Died] | None:
        """Index and result of its task, if it has ended, has crashed or must be ended."""
        if self.task is None:
            return None
        index = self.task
        result: _Result | Died
        if self.pipe.poll():
            result = self._received()
        elif patience_s is not None and self.seconds > patience_s:
            self.dead = True
            text = f"still running after {self.seconds:.0f} s, and ended: its limit does not hold"
            result = Died(text, self.seconds)
        else:
            return None
        self.task = None
        return index, result

    def _received(self) -> _Result | Died:
        try:
            result: _Result = self.pipe.recv()
            return result
        except (EOFError, OSError):
            self.dead = True
            self._process.join(_BURIAL_S)
            return Died(f"its process died ({_way_to_die(self._process.exitcode)})", self.seconds)

    def end(self) -> None:
        """End the process, whatever it does."""
        self.pipe.close()
        self._process.terminate()
        self._process.join(1)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._process.close()


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


def _work(pipe: Connection, run: Callable[[_Task], _Result]) -> None:
    """Life of a worker: tasks in, results out, until the pipe closes."""
    for name in _ONE_THREAD:
        os.environ.setdefault(name, "1")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    # Where the other end is closed with a result in it that nobody read, the next recv is reset.
    with suppress(EOFError, ConnectionError):
        while True:
            pipe.send(run(pipe.recv()))


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


__all__ = ["Busy", "Died", "available_cpus", "in_workers", "patience_s"]
