"""How much faster a sweep of 200 small scenarios is on two processes than on one.

It measures the checkout that it lies in, with the Python that runs it::

    python benchmarks/sweep.py [--scenarios N] [--jobs N] [--json PATH]

Wall times, so the machine has to be idle: the load is printed.  The exit code is 1 if the ratio is
below 1.7, or the tables of the two runs differ in a byte.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:  # run as a program
    sys.path.insert(0, str(ROOT))

from benchmarks.command_line import Results, dumps, exit_code, json_option  # noqa: E402

#: Least ratio of the wall times.
LEAST_RATIO = 1.7
_SCENARIO = """\
meshplan: 1
name: small
model: toy-moe
cluster: {preset: h100-hgx, gpus: 8}
workload: {seq_len: 4096, global_batch_size: 8}
"""


def wall_s(folder: Path, scenarios: int, jobs: int) -> float:
    """Seconds of a sweep over ``scenarios`` batch sizes, from start to end of the command."""
    over = f"workload.global_batch_size=8..{8 * scenarios}+8"
    started = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "meshplan", "sweep", "small.yaml", "--over", over,
         "--jobs", str(jobs), "--output", f"{jobs}.csv", "--quiet"],
        cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True,
    )  # fmt: skip
    return time.perf_counter() - started


def measure(scenarios: int, jobs: int) -> dict[str, Any]:
    """Wall seconds of both runs, their ratio, and whether their tables are the same bytes."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "small.yaml").write_text(_SCENARIO, "utf-8")
        load = os.getloadavg()[0]
        one_s = wall_s(folder, scenarios, 1)
        more_s = wall_s(folder, scenarios, jobs)
        same = (folder / "1.csv").read_bytes() == (folder / f"{jobs}.csv").read_bytes()
    return {
        "scenarios": scenarios, "jobs": jobs, "one_s": one_s, "more_s": more_s,
        "ratio": one_s / more_s, "same": same, "load": load,
    }  # fmt: skip


def table(figures: dict[str, Any]) -> str:
    """The figures for people."""
    reached = "reached" if figures["ratio"] >= LEAST_RATIO else "MISSED"
    lines = [
        f"{figures['scenarios']} scenarios, load {figures['load']:.2f} at the start",
        f"1 process    {figures['one_s']:7.1f} s",
        f"{figures['jobs']} processes  {figures['more_s']:7.1f} s",
        f"ratio        {figures['ratio']:7.2f}    aim {LEAST_RATIO}: {reached}",
        f"tables       {'the same bytes' if figures['same'] else 'DIFFER'}",
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; 0, or 1 if the aim is missed or the tables differ."""
    parser = argparse.ArgumentParser(description="Time a sweep on one process and on several.")
    parser.add_argument("--scenarios", type=int, default=200, metavar="N")
    parser.add_argument("--jobs", type=int, default=2, metavar="N")
    json_option(parser, "all figures")
    given = parser.parse_args(arguments)
    if given.scenarios < 1 or given.jobs < 2:
        parser.error("--scenarios must be 1 or more, and --jobs 2 or more")
    return exit_code(lambda: _run(given.scenarios, given.jobs, given.json))


def _run(scenarios: int, jobs: int, json_path: str | None) -> int:
    results = Results({"--json": json_path})
    with results.printing():
        figures = measure(scenarios, jobs)
        print(table(figures))
    results.deliver("--json", lambda: dumps(figures))
    return 0 if figures["ratio"] >= LEAST_RATIO and figures["same"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
