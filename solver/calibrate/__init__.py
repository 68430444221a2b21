"""Fit the efficiencies of the step-time model to a user's own measured runs.

===============  =============================================================================
``runs``         :func:`read_runs`: the CSV file of measured runs, checked
``predict``      step times of the runs under other efficiencies; which run depends on which
``fit``          :func:`fit`: the efficiencies that the runs can tell
``determined``   which efficiencies the runs determine, and what the others are confounded with
``validate``     error on runs that a fit has not seen; the error band
``result``       :func:`calibrate`, and :class:`CalibrationReport`
``findings``     what became of each efficiency, and of each run
``wording``      its sentences
``document``     the calibration as a YAML file that scenarios can name
``report``       the result for people
``picture``      measured against predicted, before and after
===============  =============================================================================

SciPy does the fit and Matplotlib the picture; neither is needed elsewhere, so both are extras.
"""

from __future__ import annotations

from meshplan.solver.calibrate.result import CalibrationReport, calibrate
from meshplan.solver.calibrate.runs import Run, read_runs

__all__ = ["CalibrationReport", "Run", "calibrate", "read_runs"]
