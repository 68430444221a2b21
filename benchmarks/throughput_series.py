"""Published series over the sequence length, predicted from the shipped scenarios.

The rows leave open what the scenarios fix, so that this table shows the trend of each series.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from benchmarks.throughput_rows import Measured

if TYPE_CHECKING:
    from meshplan.constraints.layout import Layout
    from meshplan.constraints.problem import Problem

ROOT = Path(__file__).resolve().parent
SERIES = ROOT / "data" / "throughput_series.yaml"
SCENARIOS = ROOT.parent / "scenarios" / "seed"
COMMS = ("p2p", "a2a", "a2a+p2p", "all_gather")


def series(rows: Sequence[Measured]) -> list[str]:
    """Lines of the tables, for the series of which a row is among these."""
    figures = {row.run.id: row.tflops for row in rows if row.tflops is not None}
    lines: list[str] = []
    for one in yaml.safe_load(SERIES.read_text("utf-8"))["series"]:
        points = [point for point in one["points"] if point["row"] in figures]
        if not points:
            continue
        lines += ["", f"{one['title']:50}{'model':>7}{'measured':>9}{'error':>8}  by cp_comm"]
        for point in points:
            lines.append(_line(point["scenario"], figures[point["row"]]))
    return lines


def _line(name: str, measured: float) -> str:
    from meshplan.constraints.resolve import resolve
    from meshplan.scenarios import load
    from meshplan.solver.complete import complete, with_pins
    from meshplan.solver.layout_text import Stated

    problem = resolve(load(SCENARIOS / f"{name}.yaml"))
    layout, _ = complete(problem, with_pins(problem, Stated()))
    best = _tflops(problem, layout)
    ways = ""
    if layout.cp > 1:
        each = {comm: _tflops(problem, replace(layout, cp_comm=comm)) for comm in COMMS}
        ways = f"{layout.cp_comm} taken; " + ", ".join(f"{k} {v:.0f}" for k, v in each.items())
    return f"  {name:48}{best:7.0f}{measured:9.0f}{100 * (best / measured - 1):+7.1f}%  {ways}"


def _tflops(problem: Problem, layout: Layout) -> float:
    from meshplan.solver.judge import model_tflops_per_gpu
    from meshplan.solver.time.step import step_time

    return model_tflops_per_gpu(problem, layout, step_time(problem, layout).step_us)
