"""How far a predicted step time can be trusted."""

from __future__ import annotations

from meshplan.constraints.problem import Problem
from meshplan.scenarios import calibration


def error_band(problem: Problem) -> float | None:
    """Relative error of the predicted step time; None where nothing is known about it.

    See :func:`meshplan.scenarios.calibration.error_band`.
    """
    return calibration.error_band(problem.model, problem.calibration)
