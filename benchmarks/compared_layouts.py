"""Layouts of one question that were measured, by this model, beside what another estimator said."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

FILE = Path(__file__).resolve().parent / "data" / "compared_layouts.yaml"


@dataclass(frozen=True)
class Compared:
    """Measured and predicted model TFLOP/s of one GPU for a layout."""

    layout: str
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        """Error of the throughput in percent; positive if the model is too fast."""
        return 100 * (self.predicted / self.measured - 1)


def compared() -> list[Compared]:
    """The layouts of the data file, best measured first."""
    data = _data()
    found = [_compared(data["scenario"], one) for one in data["layouts"]]
    return sorted(found, key=lambda one: -one.measured)


def lines() -> list[str]:
    """The table, with the record of the other estimator."""
    data, found = _data(), compared()
    other = data["estimator"]
    ranks = _ranks(found)
    text = [data["title"], f"{'layout':34}{'measured':>9}{'model':>7}{'error':>8}{'rank':>5}"]
    text += [
        f"{one.layout:34}{one.measured:9.0f}{one.predicted:7.0f}{one.error:+7.1f}%{rank:5}"
        for one, rank in zip(found, ranks, strict=True)
    ]
    low, high = other["error_percent"]
    mean = statistics.fmean(abs(one.error) for one in found)
    text += [
        f"this model: mean error {mean:.0f} %, the measured best is number {ranks[0]}",
        f"{other['name']}: errs by {low} to {high} % on published rows, the measured best is "
        f"number {other['rank_of_best']} (as recorded; not run here)",
        f"source of the figures: {data['source']}",
    ]
    return text


def as_data() -> dict[str, Any]:
    """The same as plain data."""
    data, found = _data(), compared()
    return {
        "title": data["title"],
        "source": data["source"],
        "layouts": [
            {**one.__dict__, "error_percent": one.error, "rank": rank}
            for one, rank in zip(found, _ranks(found), strict=True)
        ],
        "estimator": data["estimator"],
    }


def _ranks(found: list[Compared]) -> list[int]:
    return [1 + sum(other.predicted > one.predicted for other in found) for one in found]


def _data() -> dict[str, Any]:
    data: dict[str, Any] = yaml.safe_load(FILE.read_text("utf-8"))
    return data


def _compared(scenario: dict[str, Any], one: dict[str, Any]) -> Compared:
    from meshplan.constraints.resolve import resolve
    from meshplan.scenarios import from_mapping
    from meshplan.solver.complete import complete, with_pins
    from meshplan.solver.judge import model_tflops_per_gpu
    from meshplan.solver.layout_text import Stated
    from meshplan.solver.time.step import step_time

    options = {**scenario["options"], **one["options"]}
    problem = resolve(from_mapping({**scenario, "layout": one["layout"], "options": options}))
    layout, _ = complete(problem, with_pins(problem, Stated()))
    predicted = model_tflops_per_gpu(problem, layout, step_time(problem, layout).step_us)
    named = " ".join(f"{name}{value}" for name, value in one["layout"].items() if value > 1)
    return Compared(f"{named} {layout.dispatcher}", float(one["measured_tflops"]), predicted)
