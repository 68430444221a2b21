"""The fit: wild runs are passed over, and of the others what they tell is fitted.

First everything is fitted, to see what the runs scatter by at least; then :mod:`.choose` finds
the few parameters that are worth it.  A run that is wild by what all others say of it, not by a
fit that it may have bent, is passed over.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from meshplan.solver.calibrate.choose import KNEE, Linear, choose
from meshplan.solver.calibrate.determined import PRIOR_SD
from meshplan.solver.calibrate.predict import Predictor
from meshplan.solver.calibrate.solve import GUESSED_NOISE, Fit, settled, weights_of

#: A run is wild if it is further off than this many standard deviations of its prediction.
WILD = 5.0
#: At most this share of the runs is passed over, or one; so many are looked at each time; and so
#: many are left at least.
_MOST_WILD, _SUSPECTS, _FEWEST = 0.2, 4, 3
#: Rounds of choice and solution.
_CHOICES = 3


def fit(predictor: Predictor, rows: Sequence[int]) -> Fit:
    """Fit to some runs of ``predictor`` what they tell, and pass over wild ones."""
    rest = list(rows)
    found = _everything(predictor, rest)
    passed: list[int] = []
    while len(passed) < max(1, int(_MOST_WILD * len(rows))) and len(rest) > _FEWEST:
        wildest, without = _wildest(predictor, rest, found)
        if wildest is None or without is None:
            break
        passed.append(wildest)
        rest.remove(wildest)
        found = without
    return replace(_chosen(predictor, found, found.noise), passed=tuple(passed))


def fit_again(predictor: Predictor, rows: Sequence[int], start: Fit) -> Fit:
    """Fit to some of the runs of a fit what they tell; it is where the search begins."""
    places = [start.rows.index(row) for row in rows]
    part = replace(
        start, slopes=start.slopes[places], weights=start.weights[places], rows=tuple(rows)
    )
    return _chosen(predictor, part, start.least_noise)


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
        without = _everything(predictor, [one for one in rows if one != row], found)
        off = predictor.log_seconds(without.theta, [row])[0] - predictor.log_measured[row]
        slope = predictor.slopes(without.theta, [row], range(len(predictor.names)))[0]
        sd = math.sqrt(without.noise**2 + float(slope @ without.covariance() @ slope))
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
    losses = 2 * KNEE**2 * (np.sqrt(1 + (off / KNEE) ** 2) - 1)
    weighted = float(weights_of(predictor, rest) @ losses)
    return weighted + float((found.theta**2).sum()) / PRIOR_SD**2


def _everything(predictor: Predictor, rows: Sequence[int], start: Fit | None = None) -> Fit:
    """Fit all parameters to all of some runs; ``start`` is a fit that may be close."""
    import numpy as np

    theta = start.theta if start is not None else np.zeros(len(predictor.names))
    noise = start.noise if start is not None else GUESSED_NOISE
    return settled(predictor, rows, tuple(range(len(predictor.names))), theta, noise)


def _chosen(predictor: Predictor, start: Fit, noise: float) -> Fit:
    """Fit what is worth it to the runs of a fit that is close; ``noise`` is their least scatter."""
    found, before = start, None
    for _ in range(_CHOICES):
        at = predictor.log_seconds(found.theta, found.rows)
        measured = predictor.log_measured[list(found.rows)]
        linear = Linear(
            slopes=found.slopes,
            target=measured - at + found.slopes @ found.theta,
            weights=weights_of(predictor, found.rows),
            groups=predictor.groups(found.rows),
            noise=noise,
        )
        places = choose(linear)
        if places == before:
            break
        found, before = settled(predictor, found.rows, places, found.theta, noise), places
    return replace(found, least_noise=noise)


__all__ = ["WILD", "fit", "fit_again"]
