"""What runs say of each parameter, and why one is not fitted: small cases by hand."""

from __future__ import annotations

import numpy as np
import pytest

from meshplan.scenarios.calibration import Efficiencies, default_calibration
from meshplan.solver.calibrate.choose import Linear, choose
from meshplan.solver.calibrate.determined import PRIOR_SD, Why, covariance, reason
from meshplan.solver.calibrate.predict import CANDIDATES, SHARED

#: Ten runs.  All depend on the common factor alike, on the second parameter by 30 to 80 %, and on
#: the third, a link, by none to 30 %.
SHARES = np.linspace(0.3, 0.8, 10)
LINK = np.array([0.0, 0.3] * 5)
SLOPES = -np.column_stack([np.ones(10), SHARES, LINK])
ONES = np.ones(10)


def _linear(truth: tuple[float, float, float], noise: float = 0.02, runs: int = 10) -> Linear:
    target = SLOPES @ np.array(truth)
    groups = [[place] for place in range(runs)]
    return Linear(SLOPES[:runs], target[:runs], ONES[:runs], groups, noise)


def test_no_runs_leave_the_prior() -> None:
    """Tests that without information the spread is the prior's."""
    assert np.sqrt(covariance(np.zeros((2, 2)))[0, 0]) == pytest.approx(PRIOR_SD)


@pytest.mark.parametrize(
    ("truth", "chosen"),
    [
        ((0.0, 0.0, 0.0), ()),
        ((-0.22, 0.0, 0.0), (0,)),
        ((0.0, -0.16, 0.0), (1,)),
        ((0.0, 0.0, -0.4), (2,)),
        ((-0.22, 0.0, -0.4), (0, 2)),
        ((0.0, -0.16, -0.4), (1, 2)),
        ((0.002, 0.003, -0.01), ()),
    ],
)
def test_what_was_put_in_is_chosen(truth: tuple[float, float, float], chosen: object) -> None:
    """Tests each parameter alone, pairs, and changes far below the noise, which are not worth it.

    All 20 % slower is the common factor, not one parameter that most runs depend on.
    """
    assert choose(_linear(truth)) == chosen


def test_common_factor_wins_where_it_cannot_be_told_apart() -> None:
    """Tests runs that depend on a parameter alike: it does what the common factor does."""
    slopes = -np.column_stack([np.ones(10), np.full(10, 0.7)])
    linear = Linear(slopes, slopes[:, 1] * -0.2, ONES, [[place] for place in range(10)], 0.02)
    assert choose(linear) == (0,)


def test_few_groups_tell_the_common_factor_alone() -> None:
    """Tests two runs that one link explains exactly: only the common factor is tried."""
    assert choose(_linear((0.0, 0.0, -0.8), runs=2)) == (0,)
    assert choose(_linear((0.0, 0.0, 0.0), runs=2)) == ()


def test_noise_hides_what_is_smaller() -> None:
    """Tests the same change in runs that scatter by 2 % and by 25 %."""
    assert choose(_linear((0.0, 0.0, -0.4), noise=0.02)) == (2,)
    assert choose(_linear((0.0, 0.0, -0.4), noise=0.25)) == ()


def test_hardly_any_effect_is_weak() -> None:
    """Tests a share of 1 %: a third less, 0.41 of a logarithm, changes a step by 0.4 %."""
    slopes = np.column_stack([np.full(10, -0.01)])
    kept = reason(slopes, ONES, 0.02, (), 0)
    assert kept.why is Why.WEAK
    assert kept.most == pytest.approx(np.expm1(0.01 * np.log(1.5)))


def test_scatter_is_the_reason_where_good_runs_would_tell() -> None:
    """Tests a link of 0.3 in five runs: 2 % of noise leave 0.03 of it, 25 % leave 0.25."""
    kept = reason(SLOPES, ONES, 0.25, (), 2)
    assert kept.why is Why.SCATTER and kept.most == pytest.approx(1.5**0.3 - 1)
    assert reason(SLOPES, ONES, 0.02, (), 2).why is Why.NO_GAIN


def test_confounded_names_one_or_all() -> None:
    """Tests what the common factor does as well, and what two parameters do together.

    A share of 0.65 to 0.75 is within 0.1 % of a constant; the half of two columns is both.
    """
    near = -np.linspace(0.65, 0.75, 10)
    kept = reason(np.column_stack([SLOPES, near]), ONES, 0.02, (0,), 3)
    assert (kept.why, kept.others) == (Why.CONFOUNDED, (0,))
    assert kept.correlation > 0.998
    both = SLOPES[:, 1] - 2 * SLOPES[:, 2]
    kept = reason(np.column_stack([SLOPES, both]), ONES, 0.02, (1, 2), 3)
    assert (kept.why, kept.others) == (Why.CONFOUNDED, (1, 2))
    assert kept.correlation == pytest.approx(1.0)


def test_no_weaker_correlation_is_a_reason() -> None:
    """Tests that a correlation of 0.7, of a link that half of the runs use, confounds nothing."""
    kept = reason(SLOPES, ONES, 0.02, (0,), 2)
    assert (kept.why, kept.others) == (Why.NO_GAIN, ())
    assert kept.most == pytest.approx(1.5**0.15 - 1), "half of 0.3 is left"


def test_candidates_are_efficiencies() -> None:
    """Tests that each candidate is a field of a calibration, and listed once."""
    assert set(CANDIDATES) | set(SHARED) <= set(Efficiencies.model_fields)
    assert len(CANDIDATES) == len(set(CANDIDATES))
    assert all(getattr(default_calibration().parameters, name) > 0 for name in CANDIDATES)
