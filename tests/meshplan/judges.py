"""What workers run in the tests: stand-ins for the search, importable in a new process."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from meshplan.suite.case import Case
from meshplan.sweeps.work import Task


def judge(file: Path) -> Case:
    """Do what the file's name says: ``sleep-0.2``, ``kill``, ``exit``, ``stuck``, or pass.

    The answer says in which process it was.
    """
    word, _, value = file.stem.partition("-")
    if word == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if word == "exit":
        os._exit(7)
    if word in ("sleep", "stuck"):
        time.sleep(float(value or 1000))
    return Case(file, "pass", said=str(os.getpid()))


def solve_or_die(task: Task) -> Mapping[str, Any]:
    """A row at once; ``kill``: the process dies each time."""
    if task.key == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    return {"status": "optimal", "scenario": task.key}
