"""Calibrate to measured runs: the fit, its error, and what became of each efficiency."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshplan.scenarios.calibration import Calibration, default_calibration, read_calibration
from meshplan.solver.calibrate.determined import MOST_LEFT, PRIOR_SD, Kept
from meshplan.solver.calibrate.findings import Parameter, RunError
from meshplan.solver.calibrate.fit import WILD, Fit, fit
from meshplan.solver.calibrate.predict import CANDIDATES, Predictor
from meshplan.solver.calibrate.runs import DEFAULT, read_runs
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
from meshplan.solver.calibrate.wording import provenance, what_to_know
from meshplan.solver.extras import need
from meshplan.solver.report.data import RESULT_VERSION

if TYPE_CHECKING:
    from rich.console import Console

_WIDTH = 100
#: A logarithm of a multiplier beyond this is two standard deviations of the prior away.
_FAR = 2 * PRIOR_SD


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
            "parameters": [one.to_json() for one in self.parameters],
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
            "runs": [row.to_json() for row in self.rows],
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
        provenance=provenance(runs, source, date, base, errors, groups, band),
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
        notes=what_to_know(runs, rows, parameters, unseen is not None),
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


__all__ = ["CalibrationReport", "Parameter", "RunError", "calibrate"]
