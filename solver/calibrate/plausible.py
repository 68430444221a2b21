"""Whether a measured step time can be one of a scenario: against the peak, and against its log."""

from __future__ import annotations

from dataclasses import dataclass, replace

from meshplan.constraints.layout import Layout
from meshplan.constraints.problem import Problem
from meshplan.scenarios.flops import COUNTINGS, flops_per_token, otherwise_counted
from meshplan.solver.judge import model_tflops_per_gpu, peak_tflops

#: A run this many times slower or faster than predicted is a slip of units.
_ABSURD = 50.0
#: A log whose TFLOP/s differ by more than the first factor from what its steps are, in every way
#: of counting, is doubtful: rounding, a padded vocabulary and forks of the formula make less.  By
#: more than the second it is of another model: both halves of the attention matrix, and recompute
#: counted as work, together make less.
_DOUBTFUL, _ANOTHER = 1.15, 2.0


def beyond_peak(problem: Problem, layout: Layout, step_s: float) -> str | None:
    """The peak, as words, that a run would have surpassed; None if it is below it."""
    label, peak = peak_tflops(problem)
    if achieved_tflops(problem, layout, step_s) <= peak:
        return None
    return f"the {label} peak of {peak:g} of a {problem.node_type.gpu}"


def achieved_tflops(problem: Problem, layout: Layout, step_s: float) -> float:
    """Model TFLOP/s of one GPU, in Megatron's counting, at a measured step time."""
    return model_tflops_per_gpu(problem, layout, 1_000_000) / step_s


def far_from_predicted(step_s: float, predicted_s: float) -> str | None:
    """By how much a run is beyond what any efficiency explains, as words; None if it is not."""
    ratio = step_s / predicted_s
    if 1 / _ABSURD <= ratio <= _ABSURD:
        return None
    times, than = (ratio, "slower") if ratio > 1 else (1 / ratio, "faster")
    return f"{times:,.0f} times {than}" if times < 1e9 else f"{times:.0e} times {than}"


@dataclass(frozen=True)
class LoggedRate:
    """The TFLOP/s that a log prints beside those that its steps are for the scenario's model.

    Attributes
    ----------
    logged
        TFLOP/s of one GPU as printed.
    least, most
        The same from the measured step, the batch and the FLOPs of the scenario's model: by the
        ways of counting that releases have used.
    """

    logged: float
    least: float
    most: float

    @property
    def factor(self) -> float:
        """How far the two are apart, beyond what the ways of counting explain; 1 if they agree."""
        return max(self.logged / self.most, self.least / self.logged, 1.0)

    @property
    def doubtful(self) -> bool:
        """Whether no way of counting makes the two agree."""
        return self.factor > _DOUBTFUL

    @property
    def another(self) -> bool:
        """Whether the log must be of another model, length or number of GPUs."""
        return self.factor > _ANOTHER


def logged_rate(
    problem: Problem, layout: Layout, step_s: float, batch: int, logged: float
) -> LoggedRate:
    """Hold the TFLOP/s of a log to its step time.

    Parameters
    ----------
    problem, layout
        What the run is said to be.
    step_s
        Measured seconds per step.
    batch
        Global batch size of the run.
    logged
        TFLOP/s of one GPU that the log prints.
    """
    ours = achieved_tflops(problem, replace(layout, gbs=batch), step_s)
    model, seq_len = problem.model, problem.seq_len
    plain = flops_per_token(model, seq_len).total
    others = (otherwise_counted(model, seq_len, counting).total for counting in COUNTINGS)
    rates = [ours, *(ours * other / plain for other in others)]
    return LoggedRate(logged, min(rates), max(rates))


__all__ = ["LoggedRate", "achieved_tflops", "beyond_peak", "far_from_predicted", "logged_rate"]
