"""Published series over the sequence length, predicted from the shipped scenarios.

The rows leave open what the scenarios fix, so that this table shows the trend of each series.  For
a series that leaves most open, the least and the most that any legal layout that fits would give
stand beside it: a published figure within that range says nothing against the model, nor for it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
            if "unpublished" in one:
                lines.append(_range(point["scenario"], one["unpublished"]))
    return lines


def _range(name: str, choices: Mapping[str, Sequence[Any]]) -> str:
    """The slowest and the fastest of all choices of what is not published."""
    found = sorted(_choices(name, choices))
    if not found:
        return "    no choice of what is not published is legal and fits"
    ends = "; ".join(f"{tflops:.0f} ({layout})" for tflops, layout in (found[0], found[-1]))
    return f"    {len(found)} legal choices that fit: {ends}"


def _choices(name: str, choices: Mapping[str, Sequence[Any]]) -> Iterator[tuple[float, str]]:
    import meshplan
    from meshplan.scenarios import from_mapping

    scenario = yaml.safe_load((SCENARIOS / f"{name}.yaml").read_text("utf-8"))
    cp, gpus = scenario.pop("layout")["cp"], scenario["cluster"]["gpus"]
    scenario["options"].pop("recompute")
    scenario.pop("expect")
    for values in itertools.product(*choices.values()):
        chosen = dict(zip(choices, values, strict=True))
        number = chosen.pop("micro_batches")
        ways, left = divmod(gpus, chosen["tp"] * cp * chosen["pp"])
        if left or not ways:
            continue
        batch = ways * chosen["mbs"] * number
        work = {**scenario["workload"], "global_batch_size": batch}
        layout = ",".join(f"{key}={value}" for key, value in {**chosen, "cp": cp}.items())
        report = meshplan.check(from_mapping({**scenario, "workload": work}), layout)
        if report.status == "ok":
            recompute = chosen.pop("recompute")
            degrees = " ".join(f"{key}{value}" for key, value in chosen.items())
            yield _tflops(report.problem, report.layout), f"{degrees} ga{number}, {recompute}"


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
