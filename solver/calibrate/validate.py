"""How far a fit can be trusted: its error on runs that it has not seen, and the error band."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations
from typing import TYPE_CHECKING

from meshplan.solver.calibrate.choose import FEWEST_GROUPS
from meshplan.solver.calibrate.determined import LEAST_NOISE
from meshplan.solver.calibrate.fit import fit_again
from meshplan.solver.calibrate.predict import Predictor
from meshplan.solver.calibrate.runs import Run
from meshplan.solver.calibrate.solve import Fit

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Most parts that the groups are left out in.
MOST_FOLDS = 10
#: No band is wider, as a schema has it.
_MOST_BAND = 0.99


class BandFrom(StrEnum):
    """Where an error band comes from.

    Members
    -------
    UNSEEN
        The error on groups of runs left out of the fit.
    FLOOR
        That is less than what two measurements of one run differ by.
    BASE
        The base's: there are too few groups to leave some out.
    DISTANCE
        How far the runs are from the base, which is more: with too few groups nothing shows that
        other layouts are as far off in the same way.
    """

    UNSEEN = "cross-validation"
    FLOOR = "floor"
    BASE = "base"
    DISTANCE = "distance"


@dataclass(frozen=True)
class Band:
    """An error band, and where it comes from.

    Attributes
    ----------
    value
        Relative error of predicted throughput.
    source
        Where it comes from.
    """

    value: float
    source: BandFrom


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


def cross_validated(
    predictor: Predictor, start: Fit, progress: Callable[[int, int], None] | None = None
) -> NDArray[np.float64] | None:
    """Log predictions of each run by a fit without its group; None with too few groups.

    Each such fit chooses anew what to fit, and leaves out what ``start`` passed over, too.
    """
    import numpy as np

    everything = range(len(predictor.runs))
    groups = predictor.groups(everything)
    if len(predictor.groups(start.rows)) < FEWEST_GROUPS:
        return None
    folds: list[list[int]] = [[] for _ in range(min(MOST_FOLDS, len(groups)))]
    for group in sorted(groups, key=len, reverse=True):
        min(folds, key=len).extend(group)
    result = np.zeros(len(predictor.runs))
    for number, fold in enumerate(folds):
        if progress is not None:
            progress(number, len(folds))
        rest = [row for row in start.rows if row not in fold]
        found = start if len(rest) == len(start.rows) else fit_again(predictor, rest, start)
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


def uncertainty(errors: NDArray[np.float64], groups: Sequence[Sequence[int]]) -> float:
    """Standard error of a mean absolute error, from the means of groups."""
    import numpy as np

    means = [float(np.abs(errors[list(group)]).mean()) for group in groups]
    return float(np.std(means, ddof=1) / np.sqrt(len(means)))


def band_of(base: float, before: float, unseen: float | None, doubt: float = 0.0) -> Band:
    """The error band of a fit.

    Parameters
    ----------
    base
        Band of the calibration that the fit started from.
    before
        Mean error of that calibration on the runs.
    unseen
        Cross-validated mean error, if there is one.
    doubt
        Its standard error, which few runs make large.
    """
    if unseen is None:
        source = BandFrom.BASE if before <= base else BandFrom.DISTANCE
        value = max(base, before)
    else:
        value, source = unseen + doubt, BandFrom.UNSEEN
        if value < LEAST_NOISE:
            value, source = LEAST_NOISE, BandFrom.FLOOR
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
    "MOST_FOLDS",
    "Band",
    "BandFrom",
    "Ties",
    "band_of",
    "cross_validated",
    "mean_error",
    "throughput_errors",
    "ties",
    "uncertainty",
]
