"""What became of each efficiency in a fit: value, spread, and why it was not fitted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshplan.scenarios.calibration import Efficiencies
from meshplan.solver.calibrate.determined import PRIOR_SD, Kept, Why
from meshplan.solver.calibrate.findings import Overall, Parameter
from meshplan.solver.calibrate.predict import CANDIDATES, OVERALL, SHARED, Predictor
from meshplan.solver.calibrate.solve import Fit

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: A logarithm of a multiplier beyond this is two standard deviations of the prior away.
_FAR = 2 * PRIOR_SD


def rounded(predictor: Predictor, found: Fit) -> Efficiencies:
    """The fitted efficiencies, with four digits: more are noise."""
    exact, base = predictor.parameters(found.theta), predictor.base.parameters
    changes = {
        name: float(f"{getattr(exact, name):.4g}")
        for name in Efficiencies.model_fields
        if getattr(exact, name) != getattr(base, name)
    }
    return base.model_copy(update=changes)


def overall(predictor: Predictor, found: Fit) -> Overall | None:
    """What the common factor says of the cluster; None if it was not fitted."""
    import numpy as np

    if 0 not in found.chosen:
        return None
    shared: NDArray[np.float64] = np.zeros(len(predictor.names))
    before = predictor.log_seconds(shared, found.rows)
    shared[0] = found.theta[0]
    ratio = np.exp(float((predictor.log_seconds(shared, found.rows) - before).mean()))
    return Overall(float(np.exp(found.theta[0])), float(ratio))


def parameters(
    predictor: Predictor, found: Fit, efficiencies: Efficiencies
) -> tuple[Parameter, ...]:
    """The common factor and each efficiency that runs may tell."""
    names = (OVERALL, *CANDIDATES)
    return tuple(_parameter(predictor, found, efficiencies, name) for name in names)


def _parameter(
    predictor: Predictor, found: Fit, efficiencies: Efficiencies, name: str
) -> Parameter:
    import math

    base, value = 1.0, math.exp(float(found.theta[0]))
    if name != OVERALL:
        base, value = getattr(predictor.base.parameters, name), getattr(efficiencies, name)
    moved = name in SHARED and 0 in found.chosen
    if name not in predictor.names:
        status = "shared" if moved else "idle"
        return Parameter(name, base, value, None, status, Why.IDLE, "no run depends on it")
    place = predictor.names.index(name)
    if place in found.chosen:
        spread = value * found.spread(place)
        return Parameter(name, base, value, spread, reason=_caution(predictor, found, place))
    kept = found.kept(place)
    others = tuple(predictor.names[one] for one in kept.others)
    return Parameter(
        name,
        base,
        value,
        status="shared" if moved else "kept",
        why=kept.why,
        reason=_sentence(kept, others, found.noise),
        confounded_with=others,
        correlation=kept.correlation if others else None,
    )


def _caution(predictor: Predictor, found: Fit, place: int) -> str:
    """What to know about a fitted value."""
    log = found.theta[place]
    if log <= predictor.lower[place] + 1e-3 or log >= predictor.upper[place] - 1e-3:
        return "at the limit of what is allowed: something else is off"
    return "far from the base: check the runs that it rests on" if abs(log) > _FAR else ""


def _sentence(kept: Kept, others: tuple[str, ...], noise: float) -> str:
    """Why an efficiency is not fitted, with the figures."""
    change = f"a third less of it changes steps by at most {kept.most:.1%}"
    if kept.why is Why.WEAK:
        return f"the runs hardly depend on it: {change}"
    if kept.why is Why.SCATTER:
        return f"the runs scatter by {noise:.0%}, too much to tell: {change}"
    if kept.why is Why.CONFOUNDED:
        together = " together" if len(others) > 1 else ""
        return (
            f"does to these runs what {_listed(others)}{together} can do (correlation "
            f"{kept.correlation:+.2f})"
        )
    return "no gain on unseen runs"


def _listed(names: tuple[str, ...]) -> str:
    shown = ["the common factor" if name == OVERALL else name for name in names]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


__all__ = ["overall", "parameters", "rounded"]
