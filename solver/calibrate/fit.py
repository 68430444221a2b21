"""The fit: robust least squares on log step times, with a weak prior, on what the runs determine.

A residual is ``log(predicted / measured)`` over the noise; the loss is ``soft_l1``, so that a run
far off pulls little more than one that is off by the noise alone.  One that is wild by what all
others say of it, not by a fit that it may have bent, is passed over.  Repeats of one run together
count as one, as the error of the model, which they share, is not averaged out.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from meshplan.solver.calibrate.determined import PRIOR_SD, Kept, covariance, eliminate
from meshplan.solver.calibrate.predict import Predictor

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Noise of a run, before the residuals tell, and how many runs that guess is worth.
_NOISE, _WORTH = 0.04, 2.0
_LEAST_NOISE, _MOST_NOISE = 0.02, 0.25
#: Residual, in units of the noise, from which on the loss grows linearly.
_KNEE = 1.5
#: A run is wild if it is further off than this many standard deviations of its prediction.
WILD = 5.0
#: At most this share of the runs is passed over, or one, and so many are looked at each time.
_MOST_WILD, _SUSPECTS = 0.1, 4
_ROUNDS = 6
#: Median of the absolute value over the standard deviation, of a normal distribution.
_MEDIAN_SHARE = 0.6745


@dataclass(frozen=True, eq=False)
class Fit:
    """Fitted efficiencies.

    Attributes
    ----------
    theta
        Logarithm of each multiplier; 0 where the base is kept.
    active
        Places that were fitted.
    spread
        Standard deviation of each logarithm of ``active``, by place: the posterior's, with what
        the parameters that are kept may be off by.
    kept
        Why a place is kept at the base.
    noise
        Noise of a run, as a relative standard deviation.
    covariance
        Posterior covariance of all parameters, as if all were fitted.
    passed
        Places of the runs that are passed over.
    """

    theta: NDArray[np.float64]
    active: tuple[int, ...]
    spread: dict[int, float]
    kept: dict[int, Kept]
    noise: float
    covariance: NDArray[np.float64]
    passed: tuple[int, ...] = ()


def fit(predictor: Predictor, rows: Sequence[int]) -> Fit:
    """Fit to some runs of ``predictor``, and pass over wild ones."""
    rest = list(rows)
    found = fit_all(predictor, rest)
    passed: list[int] = []
    while len(passed) < max(1, int(_MOST_WILD * len(rows))) and len(rest) > 2:
        wildest, without = _wildest(predictor, rest, found)
        if wildest is None or without is None:
            break
        passed.append(wildest)
        rest.remove(wildest)
        found = without
    return replace(found, passed=tuple(passed))


def _wildest(
    predictor: Predictor, rows: list[int], found: Fit
) -> tuple[int, Fit] | tuple[None, None]:
    """The run without which all else agrees best, if the others contradict it; and the fit then.

    How far a run is from what the others say is not enough: where two runs alone depend on a
    parameter, each contradicts the other.  The prior then tells which of them is the odd one.
    """
    import numpy as np

    residuals = predictor.log_seconds(found.theta, rows) - predictor.log_measured[rows]
    suspects = [index for index in np.argsort(-np.abs(residuals))[:_SUSPECTS]
                if abs(residuals[index]) > WILD * found.noise]  # fmt: skip
    trials: list[tuple[int, Fit]] = []
    for row in [rows[int(index)] for index in suspects]:
        without = fit_all(predictor, [one for one in rows if one != row], found)
        off = predictor.log_seconds(without.theta, [row])[0] - predictor.log_measured[row]
        slope = predictor.slopes(without.theta, [row], range(len(predictor.names)))[0]
        sd = math.sqrt(without.noise**2 + float(slope @ without.covariance @ slope))
        if abs(off) > WILD * sd:
            trials.append((row, without))
    if not trials:
        return None, None
    noise = min(without.noise for _, without in trials)
    return min(trials, key=lambda trial: _disagreement(predictor, rows, trial, noise))


def _disagreement(
    predictor: Predictor, rows: list[int], trial: tuple[int, Fit], noise: float
) -> float:
    """What a fit without one run leaves: the loss of the others, and the prior's."""
    import numpy as np

    row, found = trial
    rest = [one for one in rows if one != row]
    off = (predictor.log_seconds(found.theta, rest) - predictor.log_measured[rest]) / noise
    losses = 2 * _KNEE**2 * (np.sqrt(1 + (off / _KNEE) ** 2) - 1)
    weighted = float(_weights(predictor, rest) @ losses)
    return weighted + float((found.theta**2).sum()) / PRIOR_SD**2


def fit_all(predictor: Predictor, rows: Sequence[int], start: Fit | None = None) -> Fit:
    """Fit to all of some runs of ``predictor``; ``start`` is a fit that may be close."""
    import numpy as np

    weights = _weights(predictor, rows)
    noise = start.noise if start is not None else _NOISE
    theta = start.theta.copy() if start is not None else np.zeros(len(predictor.names))
    active = list(range(len(predictor.names)))
    kept: dict[int, Kept] = {}
    cov = np.zeros((0, 0))
    for _ in range(_ROUNDS):
        theta = _solved(predictor, rows, active, theta, weights, noise)
        at = predictor.log_seconds(theta, rows)
        residuals = at - predictor.log_measured[list(rows)]
        everything = [*active, *sorted(kept)]
        slopes = predictor.slopes(theta, rows, everything, at)
        robust = weights / np.sqrt(1 + (residuals / (_KNEE * noise)) ** 2)
        information = slopes.T @ (robust[:, None] * slopes) / noise**2
        size = len(active)
        cov = covariance(information[:size, :size])
        used = float(np.trace(cov @ information[:size, :size]))
        last, noise = noise, _noise(residuals, weights, _independent(predictor, rows), used)
        remaining, dropped = eliminate(information[:size, :size] * (last / noise) ** 2, active)
        kept |= dropped
        if not dropped and abs(noise / last - 1) < 0.05:
            break
        active = remaining
        for place in dropped:
            theta[place] = 0.0
    others = information[:size, size:]
    bias = cov @ others
    total = np.diag(cov) + PRIOR_SD**2 * (bias**2).sum(axis=1)
    spread = {place: float(math.sqrt(v)) for place, v in zip(everything[:size], total, strict=True)}
    whole = np.zeros((len(theta), len(theta)))
    whole[np.ix_(everything, everything)] = covariance(information)
    return Fit(theta, tuple(active), {p: spread[p] for p in active}, kept, noise, whole)


def _weights(predictor: Predictor, rows: Sequence[int]) -> NDArray[np.float64]:
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
    mixed = math.sqrt((_WORTH * _NOISE**2 + free * seen) / (_WORTH + free))
    return min(max(mixed, _LEAST_NOISE), _MOST_NOISE)


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
        scaled = squares / _KNEE**2
        root = np.sqrt(1 + scaled)
        rho: NDArray[np.float64] = np.array(
            [2 * _KNEE**2 * (root - 1), 1 / root, -0.5 / _KNEE**2 / root**3]
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


__all__ = ["WILD", "Fit", "fit", "fit_all"]
