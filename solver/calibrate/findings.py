"""What a calibration says of each efficiency and of each run."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from meshplan.solver.calibrate.determined import Why
from meshplan.solver.calibrate.runs import Run


@dataclass(frozen=True)
class Parameter:
    """What became of one efficiency.

    Attributes
    ----------
    name
        As in the calibration.
    base, value
        Before and after.
    spread
        Standard deviation of ``value``; None unless it was fitted.
    status
        ``fitted`` by itself; ``shared``, moved by the common factor alone; ``kept`` at its base;
        ``idle``, at its base as no run depends on it.
    why
        Why it was not fitted by itself; None where it was.
    reason
        That in a sentence, or what to know about a fitted value.
    confounded_with, correlation
        The fitted parameters that do the same to the runs, and how strongly their effect and its
        own correlate.
    """

    name: str
    base: float
    value: float
    spread: float | None = None
    status: str = "fitted"
    why: Why | None = None
    reason: str = ""
    confounded_with: tuple[str, ...] = ()
    correlation: float | None = None

    def to_json(self) -> dict[str, Any]:
        """The parameter as plain data."""
        return {
            "name": self.name,
            "status": self.status,
            "base": self.base,
            "value": self.value,
            "spread": None if self.spread is None else round(self.spread, 6),
            "why": None if self.why is None else self.why.value,
            "reason": self.reason,
            "confounded_with": list(self.confounded_with),
            "correlation": None if self.correlation is None else round(self.correlation, 3),
        }


@dataclass(frozen=True)
class Overall:
    """What a common factor on all efficiencies says of the cluster.

    Attributes
    ----------
    factor
        The factor: below 1 the cluster is slower than the base.
    step_ratio
        Predicted step times with it over those of the base, in the mean of the runs.
    """

    factor: float
    step_ratio: float

    def sentence(self, base: str) -> str:
        """What it means, beside the calibration named ``base``."""
        change = self.step_ratio - 1
        than = "slower" if change > 0 else "faster"
        return (
            f"your cluster is {abs(change):.0%} {than} overall: steps take {self.step_ratio:.2f} "
            f"times as long as by {base}"
        )

    def to_json(self) -> dict[str, Any]:
        """Both figures as plain data."""
        return {"factor": round(self.factor, 6), "step_ratio": round(self.step_ratio, 6)}


@dataclass(frozen=True)
class Errors:
    """Mean absolute errors of predicted throughput, runs that are passed over left out.

    Attributes
    ----------
    before, after, unseen
        Of the base, of the fit, and cross-validated (None with too few groups).
    groups
        Groups of equal model, cluster and layout.
    noise
        Noise of a run as the fit sees it.
    """

    before: float
    after: float
    unseen: float | None
    groups: int
    noise: float

    def to_json(self) -> dict[str, Any]:
        """The errors as plain data."""
        return {
            "before": round(self.before, 6),
            "after": round(self.after, 6),
            "cross_validated": None if self.unseen is None else round(self.unseen, 6),
            "groups": self.groups,
            "noise": round(self.noise, 6),
        }


class Grade(StrEnum):
    """What a calibration is worth.

    Members
    -------
    SOUND
        It predicts runs that it has not seen as well as its base claims to, or better.
    WEAK
        It does not, or there are too few runs to know.
    """

    SOUND = "sound"
    WEAK = "weak"


@dataclass(frozen=True)
class Worth:
    """What a calibration is worth, and why: the text is empty where it is sound."""

    grade: Grade
    text: str = ""


@dataclass(frozen=True)
class RunError:
    """Measured and predicted seconds per step of one run.

    Attributes
    ----------
    before_s, after_s
        Predicted by the base and by the fit.
    unseen_s
        Predicted by a fit that has not seen the run's group, if there is one.
    wild
        Whether the run is so far off that fit, errors and band pass it over.
    """

    run: Run
    before_s: float
    after_s: float
    unseen_s: float | None
    wild: bool

    @property
    def before(self) -> float:
        """Error of the throughput that the base predicts."""
        return self.run.step_s / self.before_s - 1

    @property
    def after(self) -> float:
        """Error of the throughput that the fit predicts."""
        return self.run.step_s / self.after_s - 1

    @property
    def unseen(self) -> float | None:
        """Error of the throughput that a fit without the run predicts."""
        return None if self.unseen_s is None else self.run.step_s / self.unseen_s - 1

    def to_json(self) -> dict[str, Any]:
        """The run as plain data."""
        unseen = self.unseen
        return {
            "line": self.run.line,
            "name": self.run.name,
            "scenario": self.run.scenario,
            "layout": self.run.stated,
            "weight": self.run.weight,
            "measured": {self.run.measure: self.run.measured},
            "step_s": round(self.run.step_s, 6),
            "before_s": round(self.before_s, 6),
            "after_s": round(self.after_s, 6),
            "error_before": round(self.before, 6),
            "error_after": round(self.after, 6),
            "error_cross_validated": None if unseen is None else round(unseen, 6),
            "wild": self.wild,
        }


__all__ = ["Errors", "Grade", "Overall", "Parameter", "RunError", "Worth"]
