"""Calibrate to measured runs: the fit, its error, and what became of each efficiency."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshplan.scenarios.calibration import Calibration, default_calibration, read_calibration
from meshplan.solver.calibrate.efficiencies import overall, parameters, rounded
from meshplan.solver.calibrate.findings import Errors, Overall, Parameter, RunError, Worth
from meshplan.solver.calibrate.fit import fit
from meshplan.solver.calibrate.predict import Predictor
from meshplan.solver.calibrate.runs import DEFAULT, read_runs
from meshplan.solver.calibrate.solve import Fit
from meshplan.solver.calibrate.validate import (
    Band,
    Ties,
    band_of,
    cross_validated,
    mean_error,
    throughput_errors,
    ties,
    uncertainty,
)
from meshplan.solver.calibrate.wording import provenance, what_to_know, worth_of
from meshplan.solver.extras import need
from meshplan.solver.report.data import RESULT_VERSION

if TYPE_CHECKING:
    from rich.console import Console

_WIDTH = 100


@dataclass(frozen=True)
class CalibrationReport:
    """A calibration fitted to measured runs.

    Attributes
    ----------
    calibration, base
        The result, and what the fit started from.
    source
        Name of the file of runs.
    overall
        What a common factor on all efficiencies says of the cluster; None if it was not fitted.
    parameters
        What became of the common factor, and of each efficiency that runs may tell.
    rows
        Each run with its predictions, in the order of the file.
    errors
        Mean errors of predicted throughput.
    band
        The error band.
    worth
        What the calibration is worth.
    ties_before, ties_after
        What the bands of base and result make of pairs of layouts.
    notes
        What else to know, in sentences.
    """

    calibration: Calibration
    base: Calibration
    source: str
    overall: Overall | None
    parameters: tuple[Parameter, ...]
    rows: tuple[RunError, ...]
    errors: Errors
    band: Band
    worth: Worth
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
            "overall": None if self.overall is None else self.overall.to_json(),
            "parameters": [one.to_json() for one in self.parameters],
            "errors": self.errors.to_json()
            | {"error_band": self.band.value, "band_from": self.band.source.value},
            "worth": {"grade": self.worth.grade.value, "text": self.worth.text},
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
    everything, counted = range(len(runs)), list(found.rows)
    before = predictor.log_seconds(np.zeros(len(predictor.names)), everything)
    after = predictor.log_seconds(found.theta, everything)
    tame = [runs[row] for row in counted]

    def errors(log_predicted: Any) -> Any:
        return throughput_errors(log_predicted[counted], measured[counted])

    means = Errors(
        before=mean_error(errors(before), tame),
        after=mean_error(errors(after), tame),
        unseen=None if unseen is None else mean_error(errors(unseen), tame),
        groups=len(predictor.groups(counted)),
        noise=found.noise,
    )
    doubt = 0.0 if unseen is None else uncertainty(errors(unseen), predictor.groups(counted))
    band = band_of(base.error_band, means.before, means.unseen, doubt)
    efficiencies = rounded(predictor, found)
    rows = tuple(
        RunError(
            run,
            float(np.exp(before[place])),
            float(np.exp(after[place])),
            None if unseen is None else float(np.exp(unseen[place])),
            place in found.passed,
        )
        for place, run in enumerate(runs)
    )
    told = parameters(predictor, found, efficiencies)
    worth = worth_of(means, band, base)
    calibration = Calibration(
        name=name,
        date=date,
        error_band=band.value,
        provenance=provenance(rows, source, date, base, means, band),
        parameters=efficiencies,
    )
    return CalibrationReport(
        calibration=calibration,
        base=base,
        source=source,
        overall=overall(predictor, found),
        parameters=told,
        rows=rows,
        errors=means,
        band=band,
        worth=worth,
        ties_before=ties(tame, before[counted], base.error_band),
        ties_after=ties(tame, after[counted], band.value),
        notes=what_to_know(rows, told, means),
    )


__all__ = ["CalibrationReport", "Parameter", "RunError", "calibrate"]
