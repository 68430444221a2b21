"""Sentences of a calibration: where it comes from, and what to know about its runs."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from meshplan.scenarios.calibration import Calibration
from meshplan.scenarios.errors import one_line
from meshplan.solver.calibrate.findings import Parameter, RunError
from meshplan.solver.calibrate.runs import Run
from meshplan.solver.calibrate.validate import Band
from meshplan.solver.report.words import counted
from meshplan.solver.time.trust import error_band


def provenance(
    runs: tuple[Run, ...],
    source: str,
    date: datetime.date,
    base: Calibration,
    errors: dict[str, float | None],
    groups: int,
    band: Band,
) -> str:
    """Where a calibration comes from, in a sentence."""
    models = sorted({run.problem.model.name for run in runs})
    clusters = sorted({run.problem.cluster.node_type.gpu for run in runs})
    said = "1 measured run" if len(runs) == 1 else f"{len(runs)} measured runs"
    file = one_line(Path(source).name)
    text = (
        f"fitted to {said} in {file} ({', '.join(models)}; {', '.join(clusters)}) on "
        f"{date.isoformat()}, from calibration {base.name}; mean error {errors['after']:.1%}"
    )
    if errors["unseen"] is None:
        whose = "the base's" if band.source == "base" else "the error of the fit"
        return (
            f"{text}, not cross-validated: {groups} groups of runs are too few; the band is {whose}"
        )
    return f"{text}, cross-validated {errors['unseen']:.1%} over {groups} groups of runs"


def what_to_know(
    runs: tuple[Run, ...],
    rows: tuple[RunError, ...],
    parameters: tuple[Parameter, ...],
    validated: bool,
) -> tuple[str, ...]:
    """What else to know about a calibration, in sentences."""
    notes = []
    wild = [row.run.name for row in rows if row.wild]
    if wild:
        names = ", ".join(wild[:5]) + (" and others" if len(wild) > 5 else "")
        text = (
            f"{names}: so far off that the fit passes over it, though errors and band count it; "
            "measure it again, or check its layout"
        )
        tame = [row for row in rows if not row.wild]
        if validated and tame:
            total = sum(row.run.weight for row in tame)
            mean = sum(row.run.weight * abs(row.unseen or 0.0) for row in tame) / total
            text += f". Without it the error on unseen runs is {mean:.1%}"
        notes.append(text)
    if not any(one.status == "fitted" for one in parameters):
        notes.append("nothing was fitted: add runs whose layouts and lengths differ more")
    linear = sorted({run.problem.model.name for run in runs if error_band(run.problem) is None})
    if linear:
        notes.append(
            f"{', '.join(linear)}: reports show no error band for gated delta net, calibrated or "
            "not"
        )
    chosen = Counter(key for run in runs for key in _chosen(run))
    if chosen:
        said = ", ".join(f"{key} ({counted(number, 'run')})" for key, number in chosen.items())
        notes.append(
            f"layouts leave open what meshplan then chose, as the fastest that fits: {said}; state "
            "what the runs had"
        )
    return tuple(notes)


def shortened(name: str, width: int) -> str:
    """``name`` in so many characters; of a long one the middle goes, as ends tell runs apart."""
    if len(name) <= width:
        return name
    end = (width - 1) // 2
    return f"{name[: width - 1 - end]}…{name[-end:]}"


def _chosen(run: Run) -> Iterator[str]:
    """What decides the time, was not stated, and was chosen for being fast or legal."""
    for note in run.notes:
        key, _, reason = note.partition(": ")
        if "fastest" in reason or "best that is legal" in reason:
            name, _, value = key.partition(" = ")
            if not (name == "optimizer_offload" and value == "0"):
                yield name


__all__ = ["provenance", "shortened", "what_to_know"]
