"""Which efficiencies a set of runs determines, and what the others are confounded with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Spread of the weak Gaussian prior on the logarithm of each multiplier.
PRIOR_SD = 0.3
#: A parameter is fitted if the runs leave less than this share of the prior's spread.
MOST_LEFT = 0.5
#: Two parameters with a stronger correlation cannot be told apart.
CONFOUNDED = 0.95
#: A weaker one is worth naming beside a parameter that the runs do not determine.
_NAMED = 0.5


@dataclass(frozen=True)
class Kept:
    """Why a parameter stays at its base.

    Attributes
    ----------
    left
        Share of the prior's spread that the runs leave, with all others fitted.
    alone
        The same with all others held: below ``MOST_LEFT`` the runs depend on it, but cannot tell
        it from others.
    other
        Place of the parameter that it is most confounded with, or None.
    correlation
        Correlation with that one.
    """

    left: float
    alone: float
    other: int | None = None
    correlation: float = 0.0


def covariance(information: NDArray[np.float64]) -> NDArray[np.float64]:
    """Posterior covariance from what the runs say, and the prior."""
    import numpy as np

    precision = information + np.eye(len(information)) / PRIOR_SD**2
    return np.asarray(np.linalg.inv(precision), dtype=np.float64)


def eliminate(
    information: NDArray[np.float64], places: Sequence[int]
) -> tuple[list[int], dict[int, Kept]]:
    """Places that are determined, and why the others are not.

    One at a time the least determined is left out, as what it is confounded with may be
    determined without it.

    Parameters
    ----------
    information
        ``J' W J`` of the runs, over ``places``.
    places
        Places of the parameters in the vector.
    """
    import numpy as np

    active = list(range(len(places)))
    kept: dict[int, Kept] = {}
    while active:
        block = information[np.ix_(active, active)]
        cov = covariance(block)
        spread = np.sqrt(np.diag(cov))
        correlation = cov / np.outer(spread, spread)
        np.fill_diagonal(correlation, 0.0)
        failing = spread >= MOST_LEFT * PRIOR_SD
        for one, two in zip(*np.where(np.abs(correlation) > CONFOUNDED), strict=True):
            failing[one if spread[one] >= spread[two] else two] = True
        if not failing.any():
            break
        worst = int(np.argmax(np.where(failing, spread, -1.0)))
        alone = (block[worst, worst] + PRIOR_SD**-2) ** -0.5 / PRIOR_SD
        strongest = int(np.argmax(np.abs(correlation[worst])))
        named = len(active) > 1 and abs(correlation[worst, strongest]) > _NAMED
        kept[places[active[worst]]] = Kept(
            left=float(spread[worst] / PRIOR_SD),
            alone=float(alone),
            other=places[active[strongest]] if named else None,
            correlation=float(correlation[worst, strongest]) if named else 0.0,
        )
        del active[worst]
    return [places[index] for index in active], kept


__all__ = ["CONFOUNDED", "MOST_LEFT", "PRIOR_SD", "Kept", "covariance", "eliminate"]
