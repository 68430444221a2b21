"""Tasks on a Dask cluster, which somebody else started."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from queue import Empty, Queue
from typing import Any

from meshplan.scenarios.checks import shown
from meshplan.scenarios.errors import InputError
from meshplan.solver.extras import need
from meshplan.sweeps.local import Event
from meshplan.sweeps.row import fault_row
from meshplan.sweeps.work import Task, solve_task

#: How long a scheduler may take to answer at first, in seconds.
_PATIENCE_S = 10.0
#: How often the sweep looks up from waiting, in seconds.
_TICK_S = 1.0
#: Tries of a task beyond the first, when a worker cannot even load it.
_RETRIES = 2
#: Tasks that the scheduler knows at once for each thread of its workers.
_AHEAD = 4
_LEAST_AHEAD = 64


def check_scheduler(address: str) -> None:
    """Refuse an address of no scheduler, and a machine without the extra.

    Raises
    ------
    InputError
        If Dask is not installed, or nobody answers there.
    """
    need("distributed", "dask", "--scheduler")
    if not address.startswith(("tcp://", "tls://", "ucx://", "ws://", "wss://")):
        raise InputError(
            f"--scheduler is {shown(address)}, which is no address of a scheduler",
            advice="give what `dask scheduler` prints: tcp://10.0.0.1:8786.",
        )
    _client(address).close()


def run_on_dask(tasks: Sequence[Task], address: str) -> Generator[Event, None, None]:
    """Solve on the workers of a Dask cluster; rows come as they are ready.

    The scheduler gives the tasks of a worker that died to another one.  Closing the iterator takes
    back what is not done.

    Raises
    ------
    InputError
        If the scheduler cannot be reached, or no longer.
    """
    client = _client(address)
    waiting = iter(enumerate(tasks))
    running: dict[Any, int] = {}
    ended: Queue[Any] = Queue()
    try:
        while True:
            threads = sum(client.nthreads().values())
            room = max(_LEAST_AHEAD, _AHEAD * threads) - len(running)
            for _, (index, task) in zip(range(room), waiting, strict=False):
                # Not pure: Dask shall not take one task for another, nor keep its row for later.
                future = client.submit(solve_task, task, pure=False, retries=_RETRIES)
                running[future] = index
                future.add_done_callback(ended.put)
            if not running:
                return
            try:
                done = ended.get(timeout=_TICK_S)
            except Empty:
                done = None
            _refuse_lost(client, done, address)
            if done is None:
                yield None
                continue
            index = running.pop(done)
            yield index, _row(done, tasks[index])
    except OSError as error:
        raise _lost(address) from error
    finally:
        if client.status == "running":
            client.cancel(list(running), force=True)
        client.close(timeout=_PATIENCE_S)


def _client(address: str) -> Any:
    import logging

    from distributed import Client

    # What Dask would print on a lost connection is said in our own message.  Its import gives
    # each of its loggers a level.
    for name in list(logging.root.manager.loggerDict):
        if name.partition(".")[0] == "distributed":
            logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        return Client(address, timeout=_PATIENCE_S, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        why = " ".join(str(error).split())[:200]
        raise InputError(
            f"--scheduler is {shown(address)}, where no scheduler answers ({why})",
            advice="start one with `dask scheduler` and workers with `dask worker ADDRESS`, and "
            "give the address that it prints.",
        ) from None


def _refuse_lost(client: Any, done: Any | None, address: str) -> None:
    """Notice a scheduler that is gone: its tasks count as cancelled then."""
    cut_off = done is not None and done.status in ("cancelled", "lost")
    if client.status != "running" or cut_off:
        raise _lost(address)


def _lost(address: str) -> InputError:
    return InputError(
        f"the scheduler at {shown(address)} was lost",
        advice="start it and run the same command again: with --output what is finished is kept.",
    )


def _row(future: Any, task: Task) -> dict[str, Any]:
    if future.status == "finished":
        row: dict[str, Any] = future.result()
        return row
    return fault_row(task.key, future.exception())


__all__ = ["check_scheduler", "run_on_dask"]
