"""How long ``solve`` takes, and how much memory.

It measures the checkout that it lies in, with the Python that runs it (which needs meshplan's
dependencies)::

    python benchmarks/solve_time.py [--json PATH] [--time-limit S] [FILES...]

Without files these are all seed scenarios, and the instances of :mod:`benchmarks.solve_instances`.
Each scenario file is solved twice, each time in a fresh process: *as written*, and *free*, with its
pins, options and expectation removed, so that everything but cluster, workload and limits is left
to the search.  Scenarios that differ in what was removed only are solved free once.  The
instances are free as they are.

What the columns say: ``solve`` is the wall time of :func:`meshplan.solve`, ``cpu`` its CPU time
(the same on an idle machine: it runs in one thread), ``process`` the wall time of the whole Python
process with its imports.  ``solver`` is the time inside CP-SAT, ``programs`` the
number of programs it was given (those of the conflict search included), ``size`` the variables
and constraints of the largest.  ``peak`` is the most memory that the process held (``ru_maxrss``).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:  # run as a program
    sys.path.insert(0, str(ROOT))
#: Keys of a scenario that ask for something particular; the free variant has none of them.
ASKED = ("layout", "options", "expect")
#: Keys that do not change the question.
NAMES = ("name", "description")
#: Environment of the processes: meshplan is that of this checkout.
_ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


def free(scenario: dict[str, Any]) -> dict[str, Any]:
    """The scenario with everything free that a scenario can leave free."""
    return {key: value for key, value in scenario.items() if key not in ASKED}


def variants(files: Iterable[Path]) -> list[tuple[str, str, dict[str, Any]]]:
    """What is solved, as (name, variant, scenario): all as written, then the free ones."""
    written = [(file.stem, yaml.safe_load(file.read_text("utf-8"))) for file in files]
    cases = [(name, "as written", scenario) for name, scenario in written]
    seen: set[str] = set()
    for name, scenario in written:
        stripped = free(scenario)
        question = {key: value for key, value in stripped.items() if key not in NAMES}
        key = json.dumps(question, sort_keys=True)
        if key not in seen:
            seen.add(key)
            cases.append((name, "free", stripped))
    return cases


def size(scenario: dict[str, Any]) -> tuple[int, int]:
    """GPUs of a scenario (0 where the file does not say plainly) and its sequence length."""
    cluster = scenario["cluster"]
    return int(cluster.get("gpus", 0)), int(scenario["workload"]["seq_len"])


def percentile(values: Sequence[float], percent: float) -> float:
    """Smallest value that at least ``percent`` of ``values`` do not exceed (nearest rank).

    Raises
    ------
    ValueError
        If there are no values.
    """
    if not values:
        raise ValueError("a percentile of nothing")
    rank = max(1, math.ceil(percent / 100 * len(values)))
    return sorted(values)[rank - 1]


# -- one scenario, in a process of its own -----------------------------------------------------


class Recorder:
    """Counts what the search does, from the outside."""

    def __init__(self) -> None:
        self.searches: list[Any] = []
        self.programs = 0
        self.solver_s = 0.0
        self.largest = (0, 0)

    def attach(self) -> None:
        """Watch every search and every call of CP-SAT of this process."""
        from ortools.sat.python import cp_model

        from meshplan.solver import refiner

        recorder, plain, solve = self, refiner.Statistics, cp_model.CpSolver.solve

        def recorded() -> Any:
            recorder.searches.append(plain())
            return recorder.searches[-1]

        def timed(solver: Any, model: Any, *arguments: Any, **options: Any) -> Any:
            started = time.perf_counter()
            try:
                return solve(solver, model, *arguments, **options)
            finally:
                recorder.solver_s += time.perf_counter() - started
                recorder.programs += 1
                size = (len(model.proto.variables), len(model.proto.constraints))
                recorder.largest = max(recorder.largest, size)

        refiner.Statistics = recorded  # type: ignore[assignment, misc]
        cp_model.CpSolver.solve = timed  # type: ignore[assignment, method-assign]


def measure(path: str, time_limit_s: float) -> dict[str, Any]:
    """Solve one scenario file in this process and say what it took."""
    import resource

    import meshplan
    import meshplan.solver.solve

    recorder = Recorder()
    recorder.attach()
    scenario = meshplan.load(path)
    started, started_cpu = time.perf_counter(), time.process_time()
    result = meshplan.solve(scenario, time_limit_s=time_limit_s)
    solve_s, cpu_s = time.perf_counter() - started, time.process_time() - started_cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    unit = 1 if sys.platform == "darwin" else 1024  # bytes there, KiB elsewhere
    return {
        "status": result.status,
        "solve_s": solve_s,
        "cpu_s": cpu_s,
        "solver_s": recorder.solver_s,
        "cells": sum(one.cells for one in recorder.searches),
        "refined": sum(one.refined for one in recorder.searches),
        "programs": recorder.programs,
        "variables": recorder.largest[0],
        "constraints": recorder.largest[1],
        "peak_mib": peak * unit / 2**20,
    }


def in_fresh_process(scenario: dict[str, Any], time_limit_s: float) -> dict[str, Any]:
    """Measure one scenario in a fresh process; ``status`` is ``failed`` if that fails."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, f"{scenario['name']}.yaml")
        file.write_text(yaml.safe_dump(scenario), "utf-8")
        command = [sys.executable, __file__, "--child", "--time-limit", str(time_limit_s)]
        started = time.perf_counter()
        run = subprocess.run(
            [*command, str(file)], env=_ENVIRONMENT, capture_output=True, text=True, check=False
        )
        process_s = time.perf_counter() - started
    if run.returncode != 0:
        sys.stderr.write(run.stderr)
        return {"status": "failed", "process_s": process_s}
    measured: dict[str, Any] = json.loads(run.stdout)
    return {**measured, "process_s": process_s}


# -- the report --------------------------------------------------------------------------------

_HEAD = (
    "| scenario | GPUs | tokens | status | solve s | cpu s | process s | solver s | cells "
    "| refined | programs | size | peak MiB |\n"
    "|---|--:|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
)


def row(case: dict[str, Any]) -> str:
    """One case as a line of a Markdown table."""
    start = f"| {case['name']} | {case['gpus']:,} | {case['seq_len']:,}"
    if case["status"] == "failed":
        return f"{start} | failed | | | {case['process_s']:.2f} | | | | | | |"
    return (
        f"{start} | {case['status']} | {case['solve_s']:.2f} | {case['cpu_s']:.2f} "
        f"| {case['process_s']:.2f} | {case['solver_s']:.2f} "
        f"| {case['cells']:,} | {case['refined']:,} | {case['programs']} "
        f"| {case['variables']:,} × {case['constraints']:,} | {case['peak_mib']:.0f} |"
    )


def summary(cases: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Median, 90th percentile and largest solve time, and the most memory, of some cases."""
    done = [case for case in cases if case["status"] != "failed"]
    found: dict[str, Any] = {"cases": len(cases), "failed": len(cases) - len(done)}
    found["unproved"] = sum(case["status"] in ("feasible", "unknown") for case in done)
    if done:
        seconds = [case["solve_s"] for case in done]
        found["median_s"] = statistics.median(seconds)
        found["p95_s"] = percentile(seconds, 95)
        found["p95_cpu_s"] = percentile([case["cpu_s"] for case in done], 95)
        found["max_s"] = max(seconds)
        found["median_cpu_s"] = statistics.median(case["cpu_s"] for case in done)
        found["max_cpu_s"] = max(case["cpu_s"] for case in done)
        found["peak_mib"] = max(case["peak_mib"] for case in done)
    infeasible = [case for case in done if case["status"] == "infeasible"]
    for key in ("solve_s", "cpu_s"):
        found[f"infeasible_max_{key}"] = max((case[key] for case in infeasible), default=None)
    return found


def summary_text(title: str, found: dict[str, Any]) -> str:
    """A summary as one sentence."""
    if "median_s" not in found:
        return f"{title}: {found['cases']} cases, all failed."
    text = (
        f"{title}: {found['cases']} cases, {found['failed']} failed, {found['unproved']} stopped "
        f"by the limit; solve median {found['median_s']:.2f} s (CPU time "
        f"{found['median_cpu_s']:.2f} s), 95th percentile {found['p95_s']:.2f} s "
        f"({found['p95_cpu_s']:.2f} s), max {found['max_s']:.2f} s ({found['max_cpu_s']:.2f} s); "
    )
    if found["infeasible_max_solve_s"] is not None:
        text += (
            f"infeasible max {found['infeasible_max_solve_s']:.2f} s "
            f"({found['infeasible_max_cpu_s']:.2f} s); "
        )
    return f"{text}peak memory max {found['peak_mib']:.0f} MiB."


def machine() -> str:
    """Where this runs, in one line."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return (
        f"{date.today().isoformat()}, {cores} cores ({platform.machine()}), {platform.system()}, "
        f"Python {platform.python_version()}, OR-Tools {_ortools_version()}; load average "
        f"{os.getloadavg()[0]:.1f} at the start"
    )


def _ortools_version() -> str:
    from importlib.metadata import version

    return version("ortools")


def by_gpus(cases: Sequence[dict[str, Any]]) -> str:
    """Cases by their number of GPUs, as a Markdown table."""
    lines = [
        "| GPUs | cases | median s | median cpu s | max s | median cells | peak MiB |",
        "|--:|--:|--:|--:|--:|--:|--:|",
    ]
    done = [case for case in cases if case["status"] != "failed"]
    for gpus in sorted({case["gpus"] for case in done}):
        some = [case for case in done if case["gpus"] == gpus]
        wall, cpu, cells = ([case[key] for case in some] for key in ("solve_s", "cpu_s", "cells"))
        lines.append(
            f"| {gpus:,} | {len(some)} | {statistics.median(wall):.2f} "
            f"| {statistics.median(cpu):.2f} | {max(wall):.2f} "
            f"| {statistics.median(cells):,.0f} | {max(case['peak_mib'] for case in some):.0f} |"
        )
    return "\n".join(lines)


def run(cases_: Sequence[tuple[str, str, dict[str, Any]]], time_limit_s: float) -> dict[str, Any]:
    """Measure all variants, printing a table as it grows."""
    report: dict[str, Any] = {"machine": machine(), "time_limit_s": time_limit_s}
    print(report["machine"])
    titles = {"as written": "As written", "free": "Everything free"}
    cases: list[dict[str, Any]] = []
    shown = ""
    for name, variant, scenario in cases_:
        if variant != shown:
            print(f"\n{titles[variant]}:\n\n{_HEAD}")
            shown = variant
        gpus, seq_len = size(scenario)
        case = {"name": name, "variant": variant, "gpus": gpus, "seq_len": seq_len}
        case |= in_fresh_process(scenario, time_limit_s)
        cases.append(case)
        print(row(case), flush=True)
    report["cases"] = cases
    report["summary"] = {v: summary([c for c in cases if c["variant"] == v]) for v in titles}
    print()
    for variant, title in titles.items():
        print(f"- {summary_text(title, report['summary'][variant])}")
    print(f"\nEverything free, by GPUs:\n\n{by_gpus([c for c in cases if c['variant'] == 'free'])}")
    return report


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; 0, or 1 if a scenario failed or was not proved."""
    parser = argparse.ArgumentParser(description="Time meshplan on scenarios.")
    parser.add_argument(
        "files", metavar="FILE", nargs="*", type=Path, help="default: seeds and instances"
    )
    parser.add_argument("--json", metavar="PATH|-", help="write all figures there, too")
    parser.add_argument("--time-limit", metavar="S", type=float, default=120.0)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.child:
        print(json.dumps(measure(str(given.files[0]), given.time_limit)))
        return 0
    # Not for a child: what it imports would count as its own.
    from benchmarks.command_line import exit_code

    return exit_code(lambda: _measure_all(given), yaml.YAMLError)


def _measure_all(given: argparse.Namespace) -> int:
    from benchmarks.command_line import Results, dumps
    from benchmarks.solve_instances import instances

    files = given.files or sorted((ROOT / "scenarios/seed").glob("*.yaml"))
    cases = variants(files)
    if not given.files:
        cases += [(one["name"], "free", one) for one in instances()]
    results = Results({"--json": given.json}, files)
    with results.printing():
        report = run(cases, given.time_limit)
    results.deliver("--json", lambda: dumps(report))
    bad = sum(one["failed"] + one["unproved"] for one in report["summary"].values())
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
