"""What a calibration says of each efficiency and of each run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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
        ``fitted``; ``kept``, as the data cannot tell; ``idle``, as no run depends on it.
    reason
        Why it is kept, or what to know about the value, in a sentence.
    confounded_with, correlation
        The parameter that it cannot be told from, and how strongly.
    """

    name: str
    base: float
    value: float
    spread: float | None = None
    status: str = "fitted"
    reason: str = ""
    confounded_with: str | None = None
    correlation: float | None = None

    def to_json(self) -> dict[str, Any]:
        """The parameter as plain data."""
        return {
            "name": self.name,
            "status": self.status,
            "base": self.base,
            "value": self.value,
            "spread": None if self.spread is None else round(self.spread, 6),
            "reason": self.reason,
            "confounded_with": self.confounded_with,
            "correlation": None if self.correlation is None else round(self.correlation, 3),
        }


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
        Whether the run is so far off that the fit passes it over.
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


__all__ = ["Parameter", "RunError"]
