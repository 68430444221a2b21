"""Fit the efficiencies of the step-time model to a user's own measured runs.

===============  =============================================================================
``runs``         :func:`read_runs`: the CSV file of measured runs, checked
``plausible``    whether a measured step can be one of its scenario
``predict``      step times of the runs under other efficiencies; which run depends on which
``solve``        given efficiencies fitted to given runs
``determined``   what runs say of an efficiency, and why one is not fitted
``choose``       the efficiencies that are worth fitting: a common factor first
``fit``          :func:`fit`: wild runs are passed over, and what is worth it is fitted
``validate``     error on runs that a fit has not seen; the error band
``result``       :func:`calibrate`, and :class:`CalibrationReport`
``findings``     what became of the common factor, each efficiency and each run
``efficiencies`` these, from a fit
``wording``      sentences on the whole
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
