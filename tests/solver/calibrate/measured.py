"""Runs that the model itself measures, with other efficiencies and some noise."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import meshplan
from meshplan.scenarios.calibration import default_calibration
from meshplan.solver.calibrate.predict import SHARED
from meshplan.solver.time.step import step_time

#: Efficiencies of an imaginary cluster that is worse than the default in two ways.
_DEFAULT = default_calibration().parameters
TRUTH = {"gemm_bf16": _DEFAULT.gemm_bf16 * 0.85, "memory": _DEFAULT.memory * 0.8}
#: The common factor by which everything is slower on another imaginary cluster.
SLOW = 0.8


def all_scaled(factor: float) -> dict[str, float]:
    """The default with all efficiencies times a factor, times of host and starts over it."""
    return {name: getattr(_DEFAULT, name) * factor**sign for name, sign in SHARED.items()}


SCENARIOS = {
    "moe": ("qwen3-30b-a3b", 4096, 512),
    "long": ("qwen3-30b-a3b", 32768, 64),
    "dense": ("llama-3.1-70b", 8192, 128),
    "small": ("qwen3-4b", 4096, 512),
}
#: Layouts of the runs, by scenario: legal ones on 64 H100.
LAYOUTS: dict[str, tuple[str, ...]] = {
    "moe": (
        "tp=1,ep=8,pp=1", "tp=1,ep=8,pp=2", "tp=2,ep=8,pp=1", "tp=1,ep=16,pp=1", "tp=2,ep=4,pp=2",
        "tp=1,ep=4,pp=4",
    ),
    "long": ("cp=2,ep=8,pp=1", "cp=4,ep=8,pp=1", "cp=8,ep=8,pp=1", "cp=4,ep=16,pp=1"),
    "dense": ("tp=8,pp=1", "tp=4,pp=2", "tp=4,pp=4", "tp=8,pp=2", "tp=2,pp=8", "tp=8,pp=4"),
    "small": ("tp=1,pp=1", "tp=2,pp=1", "tp=1,pp=2", "tp=4,pp=1"),
}  # fmt: skip
#: Layouts that no fit sees.
HELD_OUT: dict[str, tuple[str, ...]] = {
    "moe": ("tp=4,ep=4,pp=1", "tp=1,ep=8,pp=4"),
    "long": ("cp=2,ep=8,pp=2", "cp=2,ep=16,pp=1"),
    "dense": ("tp=8,pp=8", "tp=4,pp=8"),
    "small": ("tp=2,pp=2",),
}


def write_scenarios(folder: Path) -> None:
    """The scenario files of ``SCENARIOS``: 64 H100 in bf16."""
    for name, (model, seq_len, batch) in SCENARIOS.items():
        (folder / f"{name}.yaml").write_text(
            f"meshplan: 1\nname: {name}\nmodel: {model}\ncluster: {{preset: h100-hgx, gpus: 64}}\n"
            f"workload: {{seq_len: {seq_len}, global_batch_size: {batch}}}\n",
            "utf-8",
        )


def true_s(
    folder: Path, scenario: str, layout: str, truth: Mapping[str, float] | None = None
) -> float:
    """Seconds per step that the model predicts with other efficiencies."""
    report = meshplan.check(folder / f"{scenario}.yaml", stated(layout))
    assert report.status != "illegal", (scenario, layout, report.violations)
    calibration = default_calibration().with_parameters(TRUTH if truth is None else truth)
    problem = dataclasses.replace(report.problem, calibration=calibration)
    return step_time(problem, report.layout).step_us / 1e6


def stated(layout: str) -> str:
    """A layout with all that decides its time."""
    return f"{layout},recompute=full,dispatcher=alltoall,cp_comm=p2p,offload=0"


def write_runs(
    folder: Path,
    *,
    noise: float = 0.02,
    seed: int = 1,
    truth: Mapping[str, float] | None = None,
    layouts: Mapping[str, Sequence[str]] | None = None,
    factors: Mapping[int, float] | None = None,
) -> Path:
    """A file of runs with normal noise; ``factors`` slow down single rows, counted from 0."""
    write_scenarios(folder)
    dice = random.Random(seed)
    lines = ["scenario,layout,step_s,name"]
    for name, chosen in (layouts or LAYOUTS).items():
        for layout in chosen:
            place = len(lines) - 1
            step_s = true_s(folder, name, layout, truth) * math.exp(dice.gauss(0, noise))
            step_s *= (factors or {}).get(place, 1.0)
            lines.append(f'{name}.yaml,"{stated(layout)}",{step_s:.6f},{name}-{place}')
    path = folder / "runs.csv"
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path
