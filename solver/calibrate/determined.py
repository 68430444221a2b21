"""What a set of runs says of each efficiency, and why one is not fitted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Spread of the weak Gaussian prior on the logarithm of each multiplier.
PRIOR_SD = 0.3
#: A parameter is determined if the runs leave less than this share of the prior's spread.
MOST_LEFT = 0.5
#: Two parameters whose effects on the runs correlate more strongly cannot be told apart.
CONFOUNDED = 0.95
#: Noise of good measurements: two of one run differ by as much.
LEAST_NOISE = 0.02
#: Noise of so many times that is the runs' fault.
_SCATTERED = 2.0


class Why(StrEnum):
    """Why an efficiency is not fitted.

    Members
    -------
    IDLE
        No run depends on it.
    WEAK
        The runs depend on it so little that even good measurements would not tell.
    SCATTER
        Good measurements would tell, but these runs scatter too much.
    CONFOUNDED
        What it does to the runs, fitted ones do as well.
    NO_GAIN
        The runs would tell, but fitting it does not predict runs better that are left out.
    """

    IDLE = "idle"
    WEAK = "weak"
    SCATTER = "scatter"
    CONFOUNDED = "confounded"
    NO_GAIN = "no-gain"


@dataclass(frozen=True)
class Kept:
    """Why a parameter that runs depend on is not fitted.

    Attributes
    ----------
    why
        The kind of reason.
    most
        The most that a third less of it changes the step time of a run, relatively; beside what
        fitted parameters do, except where these do all of it (``CONFOUNDED``).
    others
        Places of the fitted parameters that do the same to the runs (``CONFOUNDED``): one, or all.
    correlation
        Correlation of its effect on the runs with that of ``others``, from -1 to 1; of several
        the multiple correlation.
    """

    why: Why
    most: float
    others: tuple[int, ...] = ()
    correlation: float = 0.0


def covariance(information: NDArray[np.float64]) -> NDArray[np.float64]:
    """Posterior covariance from what the runs say, and the prior."""
    import numpy as np

    precision = information + np.eye(len(information)) / PRIOR_SD**2
    return np.asarray(np.linalg.inv(precision), dtype=np.float64)


def same_effect(
    one: NDArray[np.float64], two: NDArray[np.float64], weights: NDArray[np.float64]
) -> float:
    """Correlation of two columns of slopes: 1 or -1 if each does to the runs what the other does.

    It is about 0 and not about the mean, as the same change of all runs is an effect, too.
    """
    import numpy as np

    size = float((weights * one**2).sum() * (weights * two**2).sum())
    return float((weights * one * two).sum() / np.sqrt(size)) if size > 0 else 0.0


def too_alike(correlation: float) -> bool:
    """Whether two effects on the runs, or one and that of several others, cannot be told apart."""
    return abs(correlation) > CONFOUNDED


def reason(
    slopes: NDArray[np.float64],
    weights: NDArray[np.float64],
    noise: float,
    chosen: Sequence[int],
    place: int,
) -> Kept:
    """Why a parameter is not among the chosen ones.

    Parameters
    ----------
    slopes
        Derivatives of the log step times, a column for each parameter.
    weights
        Weight of each run in the fit.
    noise
        Standard deviation of a run.
    chosen
        Places of the parameters that are fitted.
    place
        The parameter that is asked about.
    """
    import numpy as np

    own = slopes[:, place]
    said = float((weights * own**2).sum())
    if not _tells(said / LEAST_NOISE**2):
        return Kept(Why.WEAK, _most(own))
    alike = [(same_effect(own, slopes[:, one], weights), one) for one in chosen]
    strongest, one = max(alike, key=lambda pair: abs(pair[0]), default=(0.0, -1))
    if too_alike(strongest):
        return Kept(Why.CONFOUNDED, _most(own), (one,), strongest)
    left = _unexplained(slopes[:, list(chosen)], own, weights)
    rest = float((weights * left**2).sum())
    together = float(np.sqrt(max(0.0, 1 - rest / said)))
    if too_alike(together):
        return Kept(Why.CONFOUNDED, _most(own), tuple(chosen), together)
    if _tells(rest / noise**2):
        return Kept(Why.NO_GAIN, _most(left))
    scattered = noise > _SCATTERED * LEAST_NOISE and _tells(rest / LEAST_NOISE**2)
    return Kept(Why.SCATTER if scattered else Why.WEAK, _most(left))


def _tells(information: float) -> bool:
    """Whether so much information on one parameter determines it."""
    return float((information + PRIOR_SD**-2) ** -0.5) < MOST_LEFT * PRIOR_SD


def _most(column: NDArray[np.float64]) -> float:
    """The largest change of a step time by a third less of a parameter."""
    import numpy as np

    return float(np.expm1(np.abs(column).max() * -np.log(2 / 3)))


def _unexplained(
    others: NDArray[np.float64], own: NDArray[np.float64], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """What is left of a column of slopes when others explain what they can."""
    import numpy as np

    root = np.sqrt(weights)[:, None]
    found, *_ = np.linalg.lstsq(others * root, own * root[:, 0], rcond=None)
    left: NDArray[np.float64] = own - others @ found
    return left


__all__ = [
    "CONFOUNDED",
    "LEAST_NOISE",
    "MOST_LEFT",
    "PRIOR_SD",
    "Kept",
    "Why",
    "covariance",
    "reason",
    "same_effect",
    "too_alike",
]
