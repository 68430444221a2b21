"""Search time on clusters of unequal racks, where the number of GPUs is open.

Racks of GB200 have 18 trays, or fewer: drawn by a fixed seed, so that they are the same on every
run. Each case is solved in a fresh process::

    python benchmarks/racks.py [--json PATH|-] [--racks N ...]

``wall`` is the time of ``meshplan.solve``, ``cpu`` that of the whole process with its imports, both
in seconds; ``gap`` is what the proof leaves open, 0 where it is closed.  It exits with 1 if a case
misses its aim: 30 s on up to 200 racks, and two minutes or a gap below 1 % on more.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:  # run as a program
    sys.path.insert(0, str(ROOT))

from benchmarks.command_line import Results, dumps, exit_code, json_option  # noqa: E402

GPUS_A_TRAY = 4
#: Trays of a rack, and how many racks of a hundred have so many.
TRAYS = {18: 75, 17: 10, 16: 5, 14: 5, 13: 3, 11: 2}
#: Models, tokens of a sequence, and what divides the batch: many numbers of GPUs suit one of 2,520.
WORKLOADS = (
    ("deepseek-v3", 4096, 2520),
    ("deepseek-v3", 4096, 1024),
    ("deepseek-v3", 131_072, 2520),
    ("kimi-k2", 8192, 2520),
    ("qwen3-235b-a22b", 32_768, 2520),
    ("llama-3.1-405b", 8192, 2520),
)
SMALL_RACKS, SMALL_S = 200, 30.0
LARGE_S, LARGE_GAP = 120.0, 0.01
#: A search that is still running is stopped, s.
LIMIT_S = 300.0


def domains(racks: int) -> list[int]:
    """GPUs of each of so many racks, the same on every run."""
    trays, weights = list(TRAYS), list(TRAYS.values())
    drawn = random.Random(racks).choices(trays, weights, k=racks)
    return [GPUS_A_TRAY * one for one in drawn]


def batch(gpus: int, divisor: int) -> int:
    """The largest batch of no more sequences than GPUs that is a multiple of ``divisor``."""
    return max(gpus // divisor, 1) * divisor


def scenario(model: str, seq_len: int, divisor: int, racks: int) -> dict[str, Any]:
    """A scenario with everything free, the number of GPUs too."""
    sizes = domains(racks)
    return {
        "meshplan": 1,
        "name": f"{model.replace('.', '-')}-{racks}-racks",
        "model": model,
        "cluster": {"preset": "gb200-nvl72", "domains": sizes, "use": "best"},
        "workload": {"seq_len": seq_len, "global_batch_size": batch(sum(sizes), divisor)},
    }


def measure(data: dict[str, Any]) -> dict[str, Any]:
    """Solve a scenario in this process."""
    import meshplan
    from meshplan.scenarios import from_mapping

    loaded = from_mapping(data)
    start = time.perf_counter()
    result = meshplan.solve(loaded, time_limit_s=LIMIT_S)
    row: dict[str, Any] = {"wall_s": round(time.perf_counter() - start, 2)}
    times = os.times()
    row["cpu_s"] = round(times.user + times.system, 2)
    answer = result.to_json()
    return {
        **row,
        "status": answer["status"],
        "gap": answer["proof"]["gap"],
        "used": answer["cluster"]["used"],
        "gpus": sum(data["cluster"]["domains"]),
    }


def in_aim(row: dict[str, Any]) -> bool:
    """Whether a case has reached its aim."""
    if row["status"] not in ("optimal", "feasible"):
        return False
    closed = row["gap"] == 0
    if row["racks"] <= SMALL_RACKS:
        return bool(closed and row["wall_s"] < SMALL_S)
    return bool((closed and row["wall_s"] < LARGE_S) or row["gap"] < LARGE_GAP)


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as a Markdown table."""
    lines = [
        "| racks | GPUs | model | tokens | batch | used | status | gap | wall s | cpu s |",
        "|--:|--:|---|--:|--:|--:|---|--:|--:|--:|",
    ]
    for row in rows:
        lines.append(
            f"| {row['racks']:,} | {row['gpus']:,} | {row['model']} | {row['seq_len']:,} | "
            f"{row['global_batch_size']:,} | {row['used']:,} | {row['status']} | "
            f"{row['gap']:.2%} | {row['wall_s']:.1f} | {row['cpu_s']:.1f} |"
        )
    return "\n".join(lines)


def _in_own_process(model: str, seq_len: int, divisor: int, racks: int) -> dict[str, Any]:
    data = scenario(model, seq_len, divisor, racks)
    run = subprocess.run(
        [sys.executable, __file__, "--one"],
        input=json.dumps(data),
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    return {"racks": racks, "model": model, **data["workload"], **json.loads(run.stdout)}


def main(arguments: list[str] | None = None) -> int:
    """Solve all cases; 1 if one misses its aim."""
    parser = argparse.ArgumentParser(description=__doc__)
    json_option(parser, "the rows")
    parser.add_argument(
        "--racks", type=int, nargs="+", default=[200, 1400], metavar="N", help="racks (200 1400)"
    )
    parser.add_argument("--one", action="store_true", help="solve what stands on standard input")
    options = parser.parse_args(arguments)
    if options.one:
        print(json.dumps(measure(json.load(sys.stdin))))
        return 0
    return exit_code(lambda: _all(options.racks, options.json))


def _all(sizes: list[int], path: str | None) -> int:
    results = Results({"--json": path})
    rows = [_in_own_process(*workload, racks) for racks in sizes for workload in WORKLOADS]
    with results.printing():
        print(table(rows))
    results.deliver("--json", lambda: dumps(rows))
    return int(not all(in_aim(row) for row in rows))


if __name__ == "__main__":
    sys.exit(main())
