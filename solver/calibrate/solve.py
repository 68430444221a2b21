"""Fit given efficiencies to given runs: robust least squares on log step times, a weak prior.

A residual is ``log(predicted / measured)`` over the noise; the loss is ``soft_l1``, so that a run
far off pulls little more than one that is off by the noise alone.  Repeats of one run together
count as one, as the error of the model, which they share, is not averaged out.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from meshplan.solver.calibrate.choose import KNEE
from meshplan.solver.calibrate.determined import (
    LEAST_NOISE,
    PRIOR_SD,
    Kept,
    covariance,
    reason,
)
from meshplan.solver.calibrate.predict import Predictor

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Noise of a run, before the residuals tell, and how many runs that guess is worth.
GUESSED_NOISE, _WORTH = 0.04, 2.0
_MOST_NOISE = 0.25
#: Rounds of noise and solution.
_ROUNDS = 4
#: Median of the absolute value over the standard deviation, of a normal distribution.
_MEDIAN_SHARE = 0.6745


@dataclass(frozen=True, eq=False)
class Fit:
    """Fitted efficiencies.

    Attributes
    ----------
    theta
        Logarithms as of :class:`.Predictor`; 0 where the base is kept.
    chosen
        Places that were fitted.
    noise
        Noise of a run, as a relative standard deviation.
    slopes, weights
        Derivatives at ``theta`` of all runs of the fit, and what each of them counts.
    rows
        Places of the runs of the fit.
    least_noise
        The same as ``noise`` with everything fitted: what the choice of parameters was judged by.
    passed
        Places of the runs that are passed over.
    """

    theta: NDArray[np.float64]
    chosen: tuple[int, ...]
    noise: float
    slopes: NDArray[np.float64]
    weights: NDArray[np.float64]
    rows: tuple[int, ...]
    least_noise: float = 0.0
    passed: tuple[int, ...] = ()

    def covariance(self) -> NDArray[np.float64]:
        """Posterior covariance of all parameters, as if all were fitted."""
        return covariance(self._information())

    def _information(self) -> NDArray[np.float64]:
        information: NDArray[np.float64] = (
            self.slopes.T @ (self.weights[:, None] * self.slopes) / self.noise**2
        )
        return information

    def spread(self, place: int) -> float:
        """Standard deviation of a fitted logarithm, with what the kept ones may be off by.

        They may be off by what the runs leave of the prior's spread, each beside the fitted ones.
        """
        import numpy as np

        own = list(self.chosen)
        information = self._information()
        inverse = covariance(information[np.ix_(own, own)])
        variance = float(inverse[own.index(place), own.index(place)])
        for other in range(len(self.theta)):
            if other not in own:
                both = [*own, other]
                left = covariance(information[np.ix_(both, both)])[-1, -1]
                bias = inverse[own.index(place)] @ information[own, other]
                variance += float(left * bias**2)
        return math.sqrt(variance)

    def kept(self, place: int) -> Kept:
        """Why a parameter is not fitted."""
        return reason(self.slopes, self.weights, self.noise, self.chosen, place)


def settled(
    predictor: Predictor,
    rows: Sequence[int],
    places: tuple[int, ...],
    theta: NDArray[np.float64],
    noise: float,
) -> Fit:
    """Fit some parameters, and the noise with them, until both stay."""
    import numpy as np

    weights, own = weights_of(predictor, rows), list(places)
    for _ in range(_ROUNDS):
        theta = _solved(predictor, rows, places, theta, weights, noise)
        at = predictor.log_seconds(theta, rows)
        residuals = at - predictor.log_measured[list(rows)]
        slopes = predictor.slopes(theta, rows, own, at)
        robust = weights / np.sqrt(1 + (residuals / (KNEE * noise)) ** 2)
        information = slopes.T @ (robust[:, None] * slopes) / noise**2
        used = float(np.trace(covariance(information) @ information))
        last, noise = noise, _noise(residuals, weights, _independent(predictor, rows), used)
        if abs(noise / last - 1) < 0.05:
            break
    slopes = predictor.slopes(theta, rows, range(len(predictor.names)), at)
    return Fit(theta, places, noise, slopes, robust, tuple(rows))


def weights_of(predictor: Predictor, rows: Sequence[int]) -> NDArray[np.float64]:
    """Weight of each run: its own, shared among repeats."""
    import numpy as np

    runs = [predictor.runs[row] for row in rows]
    repeats = Counter(run.same for run in runs)
    return np.array([run.weight / repeats[run.same] for run in runs])


def _independent(predictor: Predictor, rows: Sequence[int]) -> float:
    """How many runs there are, repeats counted once; fewer where a few weigh most."""
    heaviest: dict[tuple[object, ...], float] = {}
    for row in rows:
        run = predictor.runs[row]
        heaviest[run.same] = max(heaviest.get(run.same, 0.0), run.weight)
    weights = heaviest.values()
    return float(sum(weights) ** 2 / sum(weight**2 for weight in weights))


def _noise(
    residuals: NDArray[np.float64], weights: NDArray[np.float64], runs: float, used: float
) -> float:
    """Noise from the median residual; with few runs mostly what was assumed before."""
    import numpy as np

    order = np.argsort(np.abs(residuals))
    share = np.cumsum(weights[order]) / weights.sum()
    median = float(np.abs(residuals)[order][int(np.searchsorted(share, 0.5))])
    free = max(runs - used, 0.0)
    seen = (median / _MEDIAN_SHARE) ** 2 * (runs / free if free >= 1 else 1.0)
    mixed = math.sqrt((_WORTH * GUESSED_NOISE**2 + free * seen) / (_WORTH + free))
    return min(max(mixed, LEAST_NOISE), _MOST_NOISE)


def _solved(
    predictor: Predictor,
    rows: Sequence[int],
    active: Sequence[int],
    theta: NDArray[np.float64],
    weights: NDArray[np.float64],
    noise: float,
) -> NDArray[np.float64]:
    """The vector of least loss; what is not active stays at the base."""
    import numpy as np
    from scipy.optimize import least_squares

    chosen = list(active)
    if not chosen:
        return np.zeros_like(theta)
    measured = predictor.log_measured[list(rows)]

    def whole(values: NDArray[np.float64]) -> NDArray[np.float64]:
        vector = np.zeros_like(theta)
        vector[chosen] = values
        return vector

    def residuals(values: NDArray[np.float64]) -> NDArray[np.float64]:
        data = (predictor.log_seconds(whole(values), rows) - measured) / noise
        return np.concatenate([data, values / PRIOR_SD])

    def jacobian(values: NDArray[np.float64]) -> NDArray[np.float64]:
        data = predictor.slopes(whole(values), rows, chosen) / noise
        return np.concatenate([data, np.eye(len(chosen)) / PRIOR_SD])

    def loss(squares: NDArray[np.float64]) -> NDArray[np.float64]:
        """``soft_l1`` of the runs, weighted; the prior's rows stay Gaussian."""
        scaled = squares / KNEE**2
        root = np.sqrt(1 + scaled)
        rho: NDArray[np.float64] = np.array(
            [2 * KNEE**2 * (root - 1), 1 / root, -0.5 / KNEE**2 / root**3]
        )
        rho[:, : len(weights)] *= weights
        rho[:, len(weights) :] = [
            squares[len(weights) :],
            np.ones(len(chosen)),
            np.zeros(len(chosen)),
        ]
        return rho

    lower, upper = predictor.lower[chosen], predictor.upper[chosen]
    found: Any = least_squares(
        residuals,
        np.clip(theta[chosen], lower, upper),
        jac=jacobian,
        bounds=(lower, upper),
        loss=loss,
        xtol=1e-4,
        ftol=1e-5,
        gtol=1e-6,
        max_nfev=40,
    )
    return whole(found.x)


__all__ = ["GUESSED_NOISE", "Fit", "settled", "weights_of"]
