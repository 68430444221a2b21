"""Which parameters are determined: small cases by hand."""

from __future__ import annotations

import numpy as np
import pytest

from meshplan.scenarios.calibration import Efficiencies, default_calibration
from meshplan.solver.calibrate.determined import PRIOR_SD, covariance, eliminate
from meshplan.solver.calibrate.predict import CANDIDATES


def test_no_runs_leave_the_prior() -> None:
    """Tests that without information the spread is the prior's, and nothing is fitted."""
    assert np.sqrt(covariance(np.zeros((2, 2)))[0, 0]) == pytest.approx(PRIOR_SD)
    active, kept = eliminate(np.zeros((2, 2)), [4, 7])
    assert active == [] and set(kept) == {4, 7}
    assert kept[4].alone == pytest.approx(1.0), "all of the prior's spread is left"


def test_good_information_determines() -> None:
    """Tests the limit: four times the prior's precision in all leaves half of its spread."""
    prior = PRIOR_SD**-2
    assert eliminate(np.array([[3.1 * prior]]), [0])[0] == [0]
    assert eliminate(np.array([[2.9 * prior]]), [0])[0] == []


def test_confounded_pair_keeps_one() -> None:
    """Tests two parameters with the same effect: one is fitted, the other kept, with its name."""
    slopes = np.array([[1.0, 0.9]] * 10)
    active, kept = eliminate(slopes.T @ slopes / 0.02**2, [3, 5])
    assert active == [3], "the one that the runs depend on more"
    assert kept[5].other == 3 and kept[5].correlation < -0.95
    assert kept[5].alone < 0.5, "by itself it would be determined"


def test_strong_correlation_confounds_though_both_spreads_are_small() -> None:
    """Tests that a correlation above 0.95 is enough: only the sum is known well."""
    slopes = np.array([[1.0, 1.0]] * 400 + [[1.0, 0.0]])
    information = slopes.T @ slopes / 0.02**2
    spread = np.sqrt(np.diag(covariance(information)))
    assert (spread < PRIOR_SD / 2).all(), "0.02 each"
    assert len(eliminate(information, [0, 1])[0]) == 1


def test_candidates_are_efficiencies() -> None:
    """Tests that each candidate is a field of a calibration, and listed once."""
    assert set(CANDIDATES) <= set(Efficiencies.model_fields)
    assert len(CANDIDATES) == len(set(CANDIDATES))
    assert all(getattr(default_calibration().parameters, name) > 0 for name in CANDIDATES)
