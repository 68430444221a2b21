"""The calibration as a YAML file: what scenarios can name, with the reason of each value."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshplan.scenarios.calibration import Efficiencies

if TYPE_CHECKING:
    from meshplan.solver.calibrate.findings import Parameter
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
    known = {one.name: one for one in report.parameters}
    lines = [
        "# Efficiencies of the step-time model, written by meshplan calibrate.",
        "# A scenario uses them with the line   calibration: THIS-FILE.yaml",
        f"# Band: {_band_text(report)}.",
        yaml.safe_dump(head, sort_keys=False, width=_WIDTH, allow_unicode=True).rstrip("\n"),
        "parameters:",
    ]
    width = max(len(name) for name in Efficiencies.model_fields) + 10
    for name in Efficiencies.model_fields:
        value = f"  {name}: {_number(getattr(calibration.parameters, name))}"
        lines.append(f"{value:<{width}}  # {_comment(known.get(name))}")
    return "\n".join(lines) + "\n"


def _number(value: float) -> str:
    """A plain decimal number, as the reader wants it."""
    text = f"{value:.10f}".rstrip("0")
    return text + "0" if text.endswith(".") else text


def _comment(parameter: Parameter | None) -> str:
    if parameter is None:
        return "base: not fitted to runs"
    if parameter.status == "fitted":
        text = f"fitted, {parameter.base:g} in the base, spread {parameter.spread:.2g}"
        return text + (f"; {parameter.reason}" if parameter.reason else "")
    return f"base: {parameter.reason}"


def _band_text(report: CalibrationReport) -> str:
    source = report.band.source
    if source == "cross-validation":
        return "mean error of predicted throughput on groups of runs left out of the fit"
    if source == "floor":
        return f"{report.band.value:.0%}, as measurements differ by as much; cross-validated " + (
            f"{report.unseen:.1%}"
        )
    few = f"{report.groups} groups of runs are too few to leave some out"
    return f"{few}; that of the base" if source == "base" else f"{few}; the error of the fit"


__all__ = ["calibration_yaml"]
