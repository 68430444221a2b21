"""Calibrate to measured runs: the fit, its error, and what became of each efficiency."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshplan.scenarios.calibration import Calibration, default_calibration, read_calibration
from meshplan.solver.calibrate.determined import MOST_LEFT, PRIOR_SD, Kept
from meshplan.solver.calibrate.extras import need
from meshplan.solver.calibrate.fit import WILD, Fit, fit
from meshplan.solver.calibrate.predict import CANDIDATES, Predictor
from meshplan.solver.calibrate.runs import DEFAULT, Run, read_runs
from meshplan.solver.calibrate.validate import (
    Band,
    Ties,
    band_of,
    cross_validated,
    groups_of,
    mean_error,
    throughput_errors,
    ties,
)
from meshplan.solver.report.data import RESULT_VERSION
from meshplan.solver.report.words import counted
from meshplan.solver.time.trust import LINEAR_ATTENTION

if TYPE_CHECKING:
    from rich.console import Console

_WIDTH = 100
#: A logarithm of a multiplier beyond this is two standard deviations of the prior away.
_FAR = 2 * PRIOR_SD


@dataclass(frozen=True)
class Parameter:
    """What became of one efficiency.

    Attributes
    ----------
    name
        As in the calibration.
    base, value
        Before and after.
    spread
        Standard deviation of ``value``; None unless it was fitted.
    status
        ``fitted``; ``kept``, as the data cannot tell; ``idle``, as no run depends on it.
    reason
        Why it is kept, or what to know about the value, in a sentence.
    confounded_with, correlation
        The parameter that it cannot be told from, and how strongly.
    """

    name: str
    base: float
    value: float
    spread: float | None = None
    status: str = "fitted"
    reason: str = ""
    confounded_with: str | None = None
    correlation: float | None = None


@dataclass(frozen=True)
class RunError:
    """Measured and predicted seconds per step of one run.

    Attributes
    ----------
    before_s, after_s
        Predicted by the base and by the fit.
    unseen_s
        Predicted by a fit that has not seen the run's group, if there is one.
    wild
        Whether the run is so far off that the fit passes it over.
    """

    run: Run
    before_s: float
    after_s: float
    unseen_s: float | None
    wild: bool

    @property
    def before(self) -> float:
        """Error of the throughput that the base predicts."""
        return self.run.step_s / self.before_s - 1

    @property
    def after(self) -> float:
        """Error of the throughput that the fit predicts."""
        return self.run.step_s / self.after_s - 1

    @property
    def unseen(self) -> float | None:
        """Error of the throughput that a fit without the run predicts."""
        return None if self.unseen_s is None else self.run.step_s / self.unseen_s - 1


@dataclass(frozen=True)
class CalibrationReport:
    """A calibration fitted to measured runs.

    Attributes
    ----------
    calibration, base
        The result, and what the fit started from.
    source
        Name of the file of runs.
    parameters
        What became of each efficiency that runs may tell.
    rows
        Each run with its predictions, in the order of the file.
    before, after, unseen
        Mean error of predicted throughput: of the base, of the fit, and cross-validated (None
        with too few groups).
    groups
        Groups of equal model, cluster and layout.
    noise
        Noise of a run as the fit sees it.
    band
        The error band.
    ties_before, ties_after
        What the bands of base and result make of pairs of layouts.
    notes
        What else to know, in sentences.
    """

    calibration: Calibration
    base: Calibration
    source: str
    parameters: tuple[Parameter, ...]
    rows: tuple[RunError, ...]
    before: float
    after: float
    unseen: float | None
    groups: int
    noise: float
    band: Band
    ties_before: Ties
    ties_after: Ties
    notes: tuple[str, ...] = ()

    @property
    def status(self) -> str:
        """Always ``ok``: what cannot be fitted is an error."""
        return "ok"

    def to_json(self) -> dict[str, Any]:
        """The report as plain data (``docs/calibration.md``)."""
        return {
            "meshplan_result": RESULT_VERSION,
            "name": self.calibration.name,
            "status": self.status,
            "source": self.source,
            "base": {"name": self.base.name, "error_band": self.base.error_band},
            "calibration": self.calibration.model_dump(mode="json"),
            "parameters": [
                {
                    "name": one.name,
                    "status": one.status,
                    "base": one.base,
                    "value": one.value,
                    "spread": None if one.spread is None else round(one.spread, 6),
                    "reason": one.reason,
                    "confounded_with": one.confounded_with,
                    "correlation": None if one.correlation is None else round(one.correlation, 3),
                }
                for one in self.parameters
            ],
            "errors": {
                "before": round(self.before, 6),
                "after": round(self.after, 6),
                "cross_validated": None if self.unseen is None else round(self.unseen, 6),
                "groups": self.groups,
                "noise": round(self.noise, 6),
                "error_band": self.band.value,
                "band_from": self.band.source,
            },
            "ties": {
                "pairs": self.ties_after.pairs,
                "before": {"ties": self.ties_before.ties, "right": self.ties_before.right},
                "after": {"ties": self.ties_after.ties, "right": self.ties_after.right},
            },
            "runs": [_row_data(row) for row in self.rows],
            "notes": list(self.notes),
        }

    def to_yaml(self) -> str:
        """The calibration as a file that a scenario can name, with comments."""
        from meshplan.solver.calibrate.document import calibration_yaml

        return calibration_yaml(self)

    def picture(self) -> bytes:
        """Measured against predicted, before and after, as PNG.

        Raises
        ------
        InputError
            If Matplotlib is not installed.
        """
        from meshplan.solver.calibrate.picture import draw

        return draw(self)

    def render(self, console: Console) -> None:
        """Print the report on a rich console."""
        from meshplan.solver.calibrate.report import sections

        for index, section in enumerate(sections(self)):
            if index:
                console.print()
            console.print(section, width=min(console.width, _WIDTH), highlight=False)

    def __str__(self) -> str:
        import io

        from rich.console import Console

        console = Console(file=io.StringIO(), width=_WIDTH, color_system=None, legacy_windows=False)
        with console.capture() as captured:
            self.render(console)
        return "\n".join(line.rstrip() for line in captured.get().splitlines()) + "\n"


def calibrate(
    runs: str | Path,
    *,
    base: str | Path = DEFAULT,
    name: str | None = None,
    date: datetime.date | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> CalibrationReport:
    """Fit the efficiencies of the step-time model to measured runs.

    Parameters
    ----------
    runs
        A CSV file of runs (``docs/calibration.md``).
    base
        Where the fit starts, and what is kept where the runs cannot tell: ``default``, or the path
        of a calibration.
    name
        Name of the result; else that of the file of runs.
    date
        Day of the fit; today by default.
    progress
        Called before each fit of the cross-validation with its number and their total.

    Raises
    ------
    InputError
        If SciPy is not installed, a file cannot be read, or a run is not allowed.
    """
    need("scipy", "calibrate", "meshplan calibrate")
    start = default_calibration() if str(base) == DEFAULT else _read_base(base)
    measured = read_runs(runs, base)
    predictor = Predictor(measured, start)
    found = fit(predictor, range(len(measured)))
    unseen = cross_validated(predictor, found, progress)
    return _report(
        predictor, found, unseen, str(runs), name or Path(runs).stem, date or datetime.date.today()
    )


def _read_base(base: str | Path) -> Calibration:
    return read_calibration(Path(base).expanduser())


def _report(
    predictor: Predictor, found: Fit, unseen: Any, source: str, name: str, date: datetime.date
) -> CalibrationReport:
    import numpy as np

    runs, base, measured = predictor.runs, predictor.base, predictor.log_measured
    everything = range(len(runs))
    before = predictor.log_seconds(np.zeros(len(predictor.names)), everything)
    after = predictor.log_seconds(found.theta, everything)
    errors = {
        "before": mean_error(throughput_errors(before, measured), runs),
        "after": mean_error(throughput_errors(after, measured), runs),
        "unseen": None if unseen is None else mean_error(throughput_errors(unseen, measured), runs),
    }
    groups = len(groups_of(runs))
    band = band_of(base.error_band, errors["after"] or 0.0, errors["unseen"])
    efficiencies = _rounded(predictor, found)
    rows = tuple(
        RunError(
            run,
            float(np.exp(before[place])),
            float(np.exp(after[place])),
            None if unseen is None else float(np.exp(unseen[place])),
            place in found.passed
            or abs(float(after[place] - measured[place])) > WILD * found.noise,
        )
        for place, run in enumerate(runs)
    )
    parameters = tuple(_parameter(predictor, found, efficiencies, one) for one in CANDIDATES)
    calibration = Calibration(
        name=name,
        date=date,
        error_band=band.value,
        provenance=_provenance(runs, source, date, base, errors, groups, band),
        parameters=efficiencies,
    )
    return CalibrationReport(
        calibration=calibration,
        base=base,
        source=source,
        parameters=parameters,
        rows=rows,
        before=errors["before"] or 0.0,
        after=errors["after"] or 0.0,
        unseen=errors["unseen"],
        groups=groups,
        noise=found.noise,
        band=band,
        ties_before=ties(runs, before, base.error_band),
        ties_after=ties(runs, after, band.value),
        notes=_notes(runs, rows, parameters, unseen is not None),
    )


def _rounded(predictor: Predictor, found: Fit) -> Any:
    """The efficiencies, with four digits: more are noise."""
    exact = predictor.parameters(found.theta)
    changes = {
        predictor.names[place]: float(f"{getattr(exact, predictor.names[place]):.4g}")
        for place in found.active
    }
    return predictor.base.parameters.model_copy(update=changes)


def _parameter(predictor: Predictor, found: Fit, efficiencies: Any, name: str) -> Parameter:
    base, value = getattr(predictor.base.parameters, name), getattr(efficiencies, name)
    if name not in predictor.names:
        return Parameter(name, base, value, status="idle", reason="no run depends on it")
    place = predictor.names.index(name)
    if place in found.active:
        log = found.theta[place]
        at_limit = log <= predictor.lower[place] + 1e-3 or log >= predictor.upper[place] - 1e-3
        reason = "at the limit of what is allowed: something else is off" if at_limit else ""
        if not reason and abs(log) > _FAR:
            reason = "far from the base: check the runs that it rests on"
        return Parameter(name, base, value, value * found.spread[place], reason=reason)
    why = found.kept[place]
    other = None if why.other is None else predictor.names[why.other]
    return Parameter(
        name,
        base,
        value,
        status="kept",
        reason=f"the data cannot tell{_why(why, other)}",
        confounded_with=other,
        correlation=None if other is None else why.correlation,
    )


def _why(kept: Kept, other: str | None) -> str:
    if kept.alone >= MOST_LEFT:
        return ": the runs hardly depend on it"
    if other is not None:
        return f" it from {other} (correlation {kept.correlation:+.2f})"
    return " it from the others"


def _provenance(
    runs: tuple[Run, ...],
    source: str,
    date: datetime.date,
    base: Calibration,
    errors: dict[str, float | None],
    groups: int,
    band: Band,
) -> str:
    models = sorted({run.problem.model.name for run in runs})
    clusters = sorted({run.problem.cluster.node_type.gpu for run in runs})
    said = "1 measured run" if len(runs) == 1 else f"{len(runs)} measured runs"
    text = (
        f"fitted to {said} in {Path(source).name} ({', '.join(models)}; {', '.join(clusters)}) on "
        f"{date.isoformat()}, from calibration {base.name}; mean error {errors['after']:.1%}"
    )
    if errors["unseen"] is None:
        whose = "the base's" if band.source == "base" else "the error of the fit"
        return (
            f"{text}, not cross-validated: {groups} groups of runs are too few; the band is {whose}"
        )
    return f"{text}, cross-validated {errors['unseen']:.1%} over {groups} groups of runs"


def _notes(
    runs: tuple[Run, ...],
    rows: tuple[RunError, ...],
    parameters: tuple[Parameter, ...],
    validated: bool,
) -> tuple[str, ...]:
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
    linear = sorted(
        {
            run.problem.model.name
            for run in runs
            if any(kind.attention in LINEAR_ATTENTION for kind in run.problem.kinds)
        }
    )
    if linear:
        notes.append(
            f"{', '.join(linear)}: reports show no error band for linear attention, calibrated or "
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


def _chosen(run: Run) -> Iterator[str]:
    """What decides the time, was not stated, and was chosen for being fast or legal."""
    for note in run.notes:
        key, _, reason = note.partition(": ")
        if "fastest" in reason or "best that is legal" in reason:
            name, _, value = key.partition(" = ")
            if not (name == "optimizer_offload" and value == "0"):
                yield name


def _row_data(row: RunError) -> dict[str, Any]:
    unseen = row.unseen
    return {
        "line": row.run.line,
        "name": row.run.name,
        "scenario": row.run.scenario,
        "layout": row.run.stated,
        "weight": row.run.weight,
        "measured": {row.run.measure: row.run.measured},
        "step_s": round(row.run.step_s, 6),
        "before_s": round(row.before_s, 6),
        "after_s": round(row.after_s, 6),
        "error_before": round(row.before, 6),
        "error_after": round(row.after, 6),
        "error_cross_validated": None if unseen is None else round(unseen, 6),
        "wild": row.wild,
    }


__all__ = ["CalibrationReport", "Parameter", "RunError", "calibrate"]
