"""Sentences of a calibration: where it comes from, and what to know about its runs."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from meshplan.scenarios.calibration import Calibration
from meshplan.scenarios.errors import one_line
from meshplan.solver.calibrate.choose import FEWEST_GROUPS
from meshplan.solver.calibrate.findings import Errors, Grade, Parameter, RunError, Worth
from meshplan.solver.calibrate.runs import Run
from meshplan.solver.calibrate.validate import Band, BandFrom
from meshplan.solver.report.words import counted
from meshplan.solver.time.trust import error_band

#: A fit whose error is below this share of that on unseen runs explains the runs that it has seen.
_EXPLAINED = 0.5
#: Scatter of the runs around the fit that no measurement explains, and that of repeats.
_SCATTER, _REPEATS = 0.10, 0.10


def provenance(
    rows: tuple[RunError, ...],
    source: str,
    date: datetime.date,
    base: Calibration,
    errors: Errors,
    band: Band,
) -> str:
    """Where a calibration comes from, in a sentence."""
    tame = [row.run for row in rows if not row.wild]
    models = sorted({run.problem.model.name for run in tame})
    gpus = sorted({run.problem.cluster.node_type.gpu for run in tame})
    over = len(rows) - len(tame)
    passed = f", {over} more passed over" if over else ""
    text = (
        f"fitted to {counted(len(tame), 'measured run')} in {one_line(Path(source).name)} "
        f"({', '.join(models)}; {', '.join(gpus)}){passed} on {date.isoformat()}, from calibration "
        f"{base.name}; mean error {errors.after:.1%}"
    )
    if errors.unseen is not None:
        return f"{text}, cross-validated {errors.unseen:.1%} over {errors.groups} groups of runs"
    whose = "the base's" if band.source is BandFrom.BASE else "how far the runs are from the base"
    return (
        f"{text}, not cross-validated: {counted(errors.groups, 'group')} of runs are too few; the "
        f"band is {whose}"
    )


def worth_of(errors: Errors, band: Band, base: Calibration) -> Worth:
    """What a calibration is worth."""
    if errors.unseen is None:
        few = "1 layout tells" if errors.groups == 1 else f"{errors.groups} layouts tell"
        text = f"little: {few} a common factor at best, and nothing of other layouts"
        if band.source is BandFrom.DISTANCE:
            text += (
                f"; the runs are {errors.before:.0%} off the prediction, and as far may the others "
                "be: check scenario and log first"
            )
        return Worth(Grade.WEAK, f"{text}; measure {FEWEST_GROUPS} or more layouts")
    if band.value <= base.error_band:
        return Worth(Grade.SOUND)
    if errors.after < _EXPLAINED * errors.unseen:
        why = (
            f"the fit explains them within {errors.after:.0%}, but some are the only ones of their "
            "kind: measure more like those that are worst unseen"
        )
    else:
        why = "they contradict each other, or differ in what their scenarios do not say"
    return Worth(
        Grade.WEAK,
        f"little: runs that the fit has not seen are {errors.unseen:.0%} off and may be "
        f"{band.value:.0%}, where {base.name} claims {base.error_band:.0%}; {why}",
    )


def what_to_know(
    rows: tuple[RunError, ...], parameters: tuple[Parameter, ...], errors: Errors
) -> tuple[str, ...]:
    """What else to know about a calibration, in sentences."""
    runs = tuple(row.run for row in rows)
    notes = [
        f"{row.run.name} (line {row.run.line}) is {row.after:+.0%} off what the other runs say: "
        "fit, errors and band pass over it; measure it again, or check its layout"
        for row in rows
        if row.wild
    ]
    notes += _repeats(runs)
    if errors.noise > _SCATTER:
        notes.append(
            f"the runs scatter by {errors.noise:.0%} around what is predicted: they contradict "
            "each other, or differ in what their scenarios do not say"
        )
    if not any(one.status == "fitted" for one in parameters):
        notes.append(
            "nothing was fitted: no common factor, and no efficiency, predicts unseen runs better"
            if errors.unseen is not None
            else "nothing was fitted: the runs are about what the base predicts"
        )
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


def _repeats(runs: tuple[Run, ...]) -> list[str]:
    """Repeats of one run that differ by more than measurements do."""
    repeats: dict[object, list[Run]] = {}
    for run in runs:
        repeats.setdefault(run.same, []).append(run)
    found = []
    for same in repeats.values():
        fastest = min(same, key=lambda run: run.step_s)
        slowest = max(same, key=lambda run: run.step_s)
        apart = slowest.step_s / fastest.step_s - 1
        if apart > _REPEATS:
            found.append(
                f"lines {min(fastest.line, slowest.line)} and {max(fastest.line, slowest.line)} "
                f"are the same run, but differ by {apart:.0%}"
            )
    return found


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


__all__ = ["provenance", "shortened", "what_to_know", "worth_of"]
