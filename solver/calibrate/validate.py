"""How far a fit can be trusted: its error on runs that it has not seen, and the error band."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from meshplan.solver.calibrate.fit import Fit, fit_all
from meshplan.solver.calibrate.predict import Predictor
from meshplan.solver.calibrate.runs import Run

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Most parts that the groups are left out in.
MOST_FOLDS = 10
#: With fewer groups of runs an error on the others says nothing.
FEWEST_GROUPS = 3
#: No band is narrower: two measurements of one run differ by as much.
LEAST_BAND = 0.02
#: Nor wider, as a schema has it.
_MOST_BAND = 0.99


@dataclass(frozen=True)
class Band:
    """An error band, and where it comes from.

    Attributes
    ----------
    value
        Relative error of predicted throughput.
    source
        ``cross-validation``, ``floor``, ``base`` (too few groups) or ``fit`` (too few groups, and
        the fit itself is worse than the base's band).
    """

    value: float
    source: str


@dataclass(frozen=True)
class Ties:
    """Pairs of layouts of one question, and which of them a band calls ties.

    Attributes
    ----------
    pairs
        Pairs of different layouts of the same model, cluster and workload.
    ties
        Those that are predicted closer together than the band.
    right
        Of the others, those that were measured in the order that is predicted.
    """

    pairs: int
    ties: int
    right: int


def groups_of(runs: Sequence[Run]) -> list[list[int]]:
    """Places of the runs, by model, cluster and layout."""
    groups: dict[object, list[int]] = {}
    for place, run in enumerate(runs):
        groups.setdefault(run.group, []).append(place)
    return list(groups.values())


def cross_validated(
    predictor: Predictor, start: Fit, progress: Callable[[int, int], None] | None = None
) -> NDArray[np.float64] | None:
    """Log predictions of each run by a fit without its group; None with too few groups.

    Each such fit chooses what is determined anew, and leaves out what ``start`` passed over, too.
    """
    import numpy as np

    groups = groups_of(predictor.runs)
    if len(groups) < FEWEST_GROUPS:
        return None
    folds: list[list[int]] = [[] for _ in range(min(MOST_FOLDS, len(groups)))]
    for group in sorted(groups, key=len, reverse=True):
        min(folds, key=len).extend(group)
    result = np.zeros(len(predictor.runs))
    for number, fold in enumerate(folds):
        if progress is not None:
            progress(number, len(folds))
        left = {*fold, *start.passed}
        rest = [row for row in range(len(predictor.runs)) if row not in left]
        found = fit_all(predictor, rest, start)
        result[fold] = predictor.log_seconds(found.theta, fold)
    return result


def throughput_errors(
    log_predicted: NDArray[np.float64], log_measured: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Predicted throughput over the measured one, less 1."""
    import numpy as np

    errors: NDArray[np.float64] = np.expm1(log_measured - log_predicted)
    return errors


def mean_error(errors: NDArray[np.float64], runs: Sequence[Run]) -> float:
    """Weighted mean of the absolute errors."""
    import numpy as np

    return float(np.average(np.abs(errors), weights=[run.weight for run in runs]))


def band_of(base: float, after: float, unseen: float | None) -> Band:
    """The error band of a fit.

    Parameters
    ----------
    base
        Band of the calibration that the fit started from.
    after
        Mean error on the runs of the fit.
    unseen
        Cross-validated mean error, if there is one.
    """
    if unseen is None:
        value, source = (base, "base") if after <= base else (after, "fit")
    else:
        value, source = (unseen, "cross-validation")
        if unseen < LEAST_BAND:
            value, source = LEAST_BAND, "floor"
    return Band(round(min(value, _MOST_BAND), 4), source)


def ties(runs: Sequence[Run], log_predicted: NDArray[np.float64], band: float) -> Ties:
    """What a band makes of the pairs of layouts among the runs."""
    import numpy as np

    batches = np.log([run.layout.gbs for run in runs])
    predicted = log_predicted - batches
    measured = np.log([run.step_s for run in runs]) - batches
    questions: dict[object, list[int]] = {}
    for place, run in enumerate(runs):
        questions.setdefault(run.question, []).append(place)
    pairs = close = right = 0
    for places in questions.values():
        for one, two in combinations(places, 2):
            if runs[one].layout == runs[two].layout:
                continue
            pairs += 1
            apart = predicted[one] - predicted[two]
            if abs(apart) <= np.log1p(band):
                close += 1
            elif apart * (measured[one] - measured[two]) > 0:
                right += 1
    return Ties(pairs, close, right)


__all__ = [
    "FEWEST_GROUPS",
    "LEAST_BAND",
    "MOST_FOLDS",
    "Band",
    "Ties",
    "band_of",
    "cross_validated",
    "groups_of",
    "mean_error",
    "throughput_errors",
    "ties",
]
