"""How fast the command line starts, beside ``python -c pass``, and what it imports.

It measures the checkout that it lies in, with the Python that runs it::

    python benchmarks/startup.py [--runs N] [--json PATH]

CPU time is the least of all runs, of user and system: on a busy machine wall times say little.  The
exit code is 1 if ``meshplan --help`` takes 0.3 s or more of it, or imports more than it needs.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:  # run as a program
    sys.path.insert(0, str(ROOT))

from benchmarks.command_line import Results, dumps, exit_code, json_option  # noqa: E402

#: Most CPU time of ``meshplan --help``, in seconds.
MOST_S = 0.3
#: Packages that ``meshplan --help`` needs.
NEEDED = {"click", "meshplan"}

_BASELINE = "python -c pass"
#: Runs a command and prints the packages from outside the standard library that it imported.
_WATCHED = """
import atexit, json, runpy, sys
before = {name.partition(".")[0] for name in sys.modules} | sys.stdlib_module_names
def tell():
    packages = {name.partition(".")[0] for name in sys.modules} - before
    sys.stderr.write("\\n" + json.dumps(sorted(packages)))
atexit.register(tell)
sys.argv[0] = "meshplan"
runpy.run_module("meshplan", run_name="__main__")
"""


def commands() -> list[list[str]]:
    """What is started: none of it needs a solver."""
    scenario = str(ROOT / "scenarios/seed/dsv3-h100-128k-published.yaml")
    return [["--help"], ["solve", "--help"], ["models"], ["schema"], ["check", scenario]]


def started(command: list[str], runs: int) -> dict[str, float]:
    """Least CPU time and median wall time of a command, in seconds."""
    cpu_s, wall_s = [], []
    for _ in range(runs):
        begin = time.perf_counter()
        process = subprocess.Popen(command, env=_environment(), stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, command)
        wall_s.append(time.perf_counter() - begin)
        cpu_s.append(used.ru_utime + used.ru_stime)
    return {"cpu_s": round(min(cpu_s), 4), "wall_s": round(statistics.median(wall_s), 4)}


def imported(arguments: list[str]) -> list[str]:
    """Packages from outside the standard library that ``meshplan`` with these arguments imports."""
    run = subprocess.run(
        [sys.executable, "-c", _WATCHED, *arguments],
        env=_environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    packages: list[str] = json.loads(run.stderr.splitlines()[-1])
    return packages


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def measure(runs: int) -> list[dict[str, Any]]:
    """A row for each command, the baseline first."""
    rows: list[dict[str, Any]] = [
        {"command": _BASELINE, **started([sys.executable, "-c", "pass"], runs), "imports": []}
    ]
    for arguments in commands():
        figures = started([sys.executable, "-m", "meshplan", *arguments], runs)
        shown = " ".join(Path(argument).name for argument in arguments)
        rows.append({"command": f"meshplan {shown}", **figures, "imports": imported(arguments)})
    return rows


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The rows as Markdown."""
    base = rows[0]["cpu_s"]
    lines = ["| command | CPU s | over the baseline | imports |", "|---|--:|--:|---|"]
    lines += [
        f"| `{row['command']}` | {row['cpu_s']:.3f} | {row['cpu_s'] - base:+.3f} "
        f"| {', '.join(row['imports'])} |"
        for row in rows
    ]
    return "\n".join(lines)


def faults(rows: Sequence[dict[str, Any]]) -> list[str]:
    """What is not as it must be, in sentences."""
    found = []
    row = next(one for one in rows if one["command"] == "meshplan --help")
    if row["cpu_s"] >= MOST_S:
        found.append(f"meshplan --help takes {row['cpu_s']:.2f} s, not less than {MOST_S} s")
    if extra := sorted(set(row["imports"]) - NEEDED):
        found.append(f"meshplan --help imports {', '.join(extra)}")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; 0, or 1 if the start is too slow or too heavy."""
    parser = argparse.ArgumentParser(description="Time the start of the command line.")
    parser.add_argument("--runs", type=int, default=10, help="of each command")
    json_option(parser, "all figures")
    given = parser.parse_args(arguments)
    if given.runs < 1:
        parser.error(f"--runs is {given.runs}, but must be 1 or more")
    return exit_code(lambda: _run(given.runs, given.json))


def _run(runs: int, json_path: str | None) -> int:
    results = Results({"--json": json_path})
    with results.printing():
        rows = measure(runs)
        print(table(rows))
        wrong = faults(rows)
        for text in wrong:
            print(text)
    results.deliver("--json", lambda: dumps(rows))
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
