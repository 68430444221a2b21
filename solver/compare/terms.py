"""The difference of two step times, split into named terms that add up to it exactly."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from meshplan.constraints.layout import Layout
from meshplan.constraints.problem import Problem
from meshplan.solver.breakdown import WORK_PARTS, work_breakdown_us
from meshplan.solver.time.step import StepTime
from meshplan.solver.time.trust import error_band

TimeVerdict = Literal["equal", "tie", "slower", "faster"]


@dataclass(frozen=True)
class Timed:
    """A layout of a problem with its step time."""

    problem: Problem
    layout: Layout
    time: StepTime

    @property
    def tokens_per_gpu(self) -> Fraction:
        """Tokens that a step trains, for each GPU."""
        return Fraction(self.layout.gbs * self.problem.seq_len, self.problem.gpus)

    @property
    def imbalance(self) -> float:
        """What the pipeline takes for a micro-batch over the mean rank, as a fraction of it."""
        return self.time.bottleneck_us * self.layout.pp / sum(self.time.rank_us) - 1


@dataclass(frozen=True)
class Term:
    """One part of two steps, in us; the second is scaled to the work of the first."""

    name: str
    first_us: int
    second_us: int

    @property
    def difference_us(self) -> int:
        """What the first takes more."""
        return self.first_us - self.second_us


@dataclass(frozen=True)
class TimeComparison:
    """Two step times for the same work, which is the first step's tokens per GPU.

    Attributes
    ----------
    first, second
        The two.
    terms
        In the order of reports; their sums are the two step times.
    scale
        What the second step was multiplied by; 1 if both train equally many tokens per GPU.
    band
        Relative error of predicted step times, the wider of the two; None where it is not known.
    """

    first: Timed
    second: Timed
    terms: tuple[Term, ...]
    scale: Fraction
    band: float | None

    @property
    def first_us(self) -> int:
        """The first step."""
        return sum(term.first_us for term in self.terms)

    @property
    def second_us(self) -> int:
        """The second step, scaled."""
        return sum(term.second_us for term in self.terms)

    @property
    def difference_us(self) -> int:
        """What the first takes more."""
        return self.first_us - self.second_us

    @property
    def relative(self) -> float:
        """What the first takes more, as a fraction of the second."""
        return self.difference_us / self.second_us

    @property
    def verdict(self) -> TimeVerdict:
        """The first against the second; within the error band it is a tie."""
        if self.difference_us == 0:
            return "equal"
        if self.band is not None and abs(self.relative) <= self.band:
            return "tie"
        return "slower" if self.difference_us > 0 else "faster"


def compare_times(first: Timed, second: Timed, *, per_gpu: bool = True) -> TimeComparison:
    """Split the difference of two step times into the parts of a step.

    The work of layers is the mean over the pipeline ranks and over all micro-batches; what the
    heaviest rank takes more is a part of its own.  Where the two steps train different numbers of
    tokens per GPU, the second is scaled; of tokens in all, if not ``per_gpu``.
    """
    scale = first.tokens_per_gpu / second.tokens_per_gpu
    if not per_gpu:
        scale *= Fraction(first.problem.gpus, second.problem.gpus)
    times = zip(_terms_us(first, Fraction(1)), _terms_us(second, scale), strict=True)
    terms = tuple(Term(name, *both) for name, both in zip(WORK_PARTS, times, strict=True))
    return TimeComparison(first, second, terms, scale, _band(first.problem, second.problem))


def _terms_us(timed: Timed, scale: Fraction) -> list[int]:
    """The parts of a step, scaled, as whole numbers whose sum is the scaled step, rounded."""
    parts = work_breakdown_us(timed.problem, timed.layout, timed.time)
    done, exact, terms = 0, Fraction(0), []
    for name in WORK_PARTS:
        exact += parts[name] * scale
        terms.append(round(exact) - done)
        done += terms[-1]
    return terms


def _band(first: Problem, second: Problem) -> float | None:
    bands = (error_band(first), error_band(second))
    return None if None in bands else max(band for band in bands if band is not None)
