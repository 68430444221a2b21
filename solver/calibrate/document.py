"""The calibration as a YAML file: what scenarios can name, with the reason of each value."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from meshplan.scenarios.calibration import Efficiencies
from meshplan.solver.calibrate.validate import BandFrom
from meshplan.solver.report.words import counted

if TYPE_CHECKING:
    from meshplan.solver.calibrate.result import CalibrationReport

_WIDTH = 100


def calibration_yaml(report: CalibrationReport) -> str:
    """The file of a fitted calibration."""
    import yaml

    calibration = report.calibration
    head = {
        "name": calibration.name,
        "date": calibration.date,
        "error_band": calibration.error_band,
        "provenance": calibration.provenance,
    }
    lines = [
        "# Efficiencies of the step-time model, written by meshplan calibrate.",
        "# A scenario uses them with the line   calibration: THIS-FILE.yaml",
        f"# Band: {_band_text(report)}.",
        *textwrap.wrap(
            report.worth.text and f"Worth: {report.worth.text}.",
            _WIDTH,
            initial_indent="# ",
            subsequent_indent="#   ",
        ),
        yaml.safe_dump(head, sort_keys=False, width=_WIDTH, allow_unicode=True).rstrip("\n"),
        "parameters:",
    ]
    width = max(len(name) for name in Efficiencies.model_fields) + 10
    for name in Efficiencies.model_fields:
        value = f"  {name}: {_number(getattr(calibration.parameters, name))}"
        lines.append(f"{value:<{width}}  # {_comment(report, name)}")
    return "\n".join(lines) + "\n"


def _number(value: float) -> str:
    """A plain decimal number, as the reader wants it."""
    text = f"{value:.10f}".rstrip("0")
    return text + "0" if text.endswith(".") else text


def _comment(report: CalibrationReport, name: str) -> str:
    base, value = (
        getattr(report.base.parameters, name),
        getattr(report.calibration.parameters, name),
    )
    parameter = next((one for one in report.parameters if one.name == name), None)
    if parameter is not None and parameter.status == "fitted":
        text = f"fitted, {base:g} in the base, spread {parameter.spread:.2g}"
        return text + (f"; {parameter.reason}" if parameter.reason else "")
    reason = "not fitted to runs by itself" if parameter is None else parameter.reason
    if value == base:
        return f"base: {reason}"
    return f"with all, {base:g} in the base: {reason}"


def _band_text(report: CalibrationReport) -> str:
    errors = report.errors
    few = f"{counted(errors.groups, 'group')} of runs are too few to leave some out"
    return {
        BandFrom.UNSEEN: "mean error of throughput on groups of runs left out of the fit, with its "
        "standard error",
        BandFrom.FLOOR: "measurements differ by as much; cross-validated error is less",
        BandFrom.BASE: f"{few}; that of the base",
        BandFrom.DISTANCE: f"{few}; how far the runs are from the base",
    }[report.band.source]


__all__ = ["calibration_yaml"]
