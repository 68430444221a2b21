"""Which efficiencies to fit: those that predict runs better that are left out of the fit.

The common factor is the cheapest explanation and is tried first; a single efficiency has to earn
its place.  What earns it is the loss on groups of runs left out in turn, in a linear model around
a fit that is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from meshplan.solver.calibrate.determined import (
    MOST_LEFT,
    PRIOR_SD,
    covariance,
    same_effect,
    too_alike,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Residual, in units of the noise, from which on the loss grows linearly.
KNEE = 1.5
#: What the loss on unseen runs has to fall by for the common factor, and for a single efficiency,
#: in squared standard deviations of a run.  Leaving runs out costs a useless parameter 1 in the
#: mean; 3 more keep out most that gain by chance.
_COST_OVERALL, _COST_SINGLE = 1.0, 3.0
#: With fewer groups of runs an error on the others says nothing.
FEWEST_GROUPS = 3
#: Steps of the reweighting, and most moves of a search.
_REWEIGHTED, _MOST_MOVES = 4, 40


@dataclass(frozen=True, eq=False)
class Linear:
    """Log step times of some runs as a linear function of the parameters.

    Attributes
    ----------
    slopes
        A row for each run, a column for each parameter; the first is the common factor.
    target
        What the product of slopes and parameters should be.
    weights
        Weight of each run.
    groups
        Places of the runs that are left out together.
    noise
        Standard deviation of a run.
    """

    slopes: NDArray[np.float64]
    target: NDArray[np.float64]
    weights: NDArray[np.float64]
    groups: Sequence[Sequence[int]]
    noise: float

    def score(self, places: Sequence[int]) -> float:
        """Loss on unseen runs, and what the parameters cost; infinite if they are not determined.

        With too few groups it is the loss on the runs of the fit.
        """
        import numpy as np

        cost = sum(_COST_SINGLE if place else _COST_OVERALL for place in places)
        if not places:
            return self._loss(self.target)
        slopes = self.slopes[:, list(places)]
        effective = self.weights
        for _ in range(_REWEIGHTED):
            inverse = covariance(slopes.T @ (effective[:, None] * slopes) / self.noise**2)
            found = inverse @ (slopes.T @ (effective * self.target)) / self.noise**2
            residuals = self.target - slopes @ found
            effective = self.weights / np.sqrt(1 + (residuals / (KNEE * self.noise)) ** 2)
        if len(places) > 1 and not self._determined(slopes, inverse, effective):
            return float("inf")
        if len(self.groups) < FEWEST_GROUPS:
            return self._loss(residuals) + cost
        unseen = np.zeros(len(residuals))
        for group in self.groups:
            own = list(group)
            hat = slopes[own] @ inverse @ (slopes[own].T * effective[own]) / self.noise**2
            unseen[own] = np.linalg.solve(np.eye(len(own)) - hat, residuals[own])
        return self._loss(unseen) + cost

    def _determined(
        self,
        slopes: NDArray[np.float64],
        inverse: NDArray[np.float64],
        weights: NDArray[np.float64],
    ) -> bool:
        """Whether each parameter is known well, and no two have the same effect on the runs."""
        import numpy as np

        if np.sqrt(np.diag(inverse)).max() >= MOST_LEFT * PRIOR_SD:
            return False
        pairs = combinations(slopes.T, 2)
        return not any(too_alike(same_effect(one, two, weights)) for one, two in pairs)

    def _loss(self, residuals: NDArray[np.float64]) -> float:
        import numpy as np

        scaled = (residuals / (KNEE * self.noise)) ** 2
        return float(self.weights @ (2 * KNEE**2 * (np.sqrt(1 + scaled) - 1)))


def choose(linear: Linear) -> tuple[int, ...]:
    """The parameters of the least score, by adding, dropping and swapping one at a time.

    The search starts once from the common factor, and once from nothing with single efficiencies
    alone: where two of them explain the runs, the common factor leads astray.
    """
    count = linear.slopes.shape[1]
    if len(linear.groups) < FEWEST_GROUPS:
        count = 1
    known: dict[frozenset[int], float] = {}

    def score(places: frozenset[int]) -> float:
        if places not in known:
            known[places] = linear.score(sorted(places))
        return known[places]

    shared = _searched(frozenset((0,)), range(count), score)
    single = _searched(frozenset(), range(1, count), score)
    best = min((shared, single), key=score)
    return tuple(sorted(best))


def _searched(
    places: frozenset[int], allowed: range, score: Callable[[frozenset[int]], float]
) -> frozenset[int]:
    for _ in range(_MOST_MOVES):
        best = min((places, *_neighbours(places, allowed)), key=score)
        if best == places:
            break
        places = best
    return places


def _neighbours(places: frozenset[int], allowed: range) -> Iterator[frozenset[int]]:
    for place in allowed:
        yield places ^ {place}
    for old in sorted(places):
        for new in allowed:
            if new not in places:
                yield (places - {old}) | {new}


__all__ = ["FEWEST_GROUPS", "KNEE", "Linear", "choose"]
