"""What the accuracy of the time model is held to, and whether it is reached: one line an aim.

Errors are means over rows that the fit has not seen, rows in doubt left out; pairs are those of the
predictions with the layouts left out of the fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.throughput_fit import Outcome
from benchmarks.throughput_report import (
    LONG,
    baseline,
    errors_of,
    held_out,
    pairs,
    summary,
)
from benchmarks.throughput_scenario import Case


@dataclass(frozen=True)
class Aim:
    """A figure in percent beside its limit; ``least``: the figure has to be that or more."""

    text: str
    figure: float
    limit: float
    least: bool = False
    rows: int = 0
    of: str = "predictions"

    @property
    def reached(self) -> bool:
        """Whether the limit holds."""
        return self.figure >= self.limit if self.least else self.figure < self.limit

    def line(self) -> str:
        """The aim as a line of the report."""
        bound = "at least" if self.least else "under"
        verdict = "reached" if self.reached else "MISSED"
        return (
            f"  {self.text:56}{bound:>8} {self.limit:2.0f} %{self.figure:8.1f} %  {verdict:8}"
            f"{self.rows:4} {self.of}"
        )


#: Kind of split, limit of its mean error in percent.
_SPLITS = (("layouts", 8.0), ("model", 11.0), ("GPU type", 11.0))
#: Smallest difference of a pair, least share of right signs; both in percent.
_PAIRS = ((10, 90.0), (3, 78.0))
_LONG_LIMIT = 8.0
#: The model is to be better than the mean of a model's other runs by this, in percentage points.
_BETTER_BY = 2.0


def aims(cases: Sequence[Case], outcomes: Sequence[Outcome]) -> list[Aim]:
    """All aims of which a fit can say something; none without a fit."""
    found: list[Aim] = []
    for family, limit in _SPLITS:
        chosen = [one for one in outcomes if one.split.family == family]
        for text, least, bound in (
            (f"mean error, {family} left out", 0, limit),
            (f"mean error at 16K and more, {family} left out", LONG, _LONG_LIMIT),
        ):
            errors = [
                error
                for one in chosen
                for error in errors_of(cases, one.predicted, least_seq_len=least)
            ]
            if errors:
                found.append(Aim(text, summary(errors)["mape"], bound, rows=len(errors)))
    predicted = held_out(outcomes, "layouts")
    for layouts, text in ((False, "row left out"), (True, "row and its layout left out")):
        plain = baseline(cases, layouts=layouts)
        same = errors_of(cases, {i: v for i, v in predicted.items() if i in plain})
        trivial = errors_of(cases, {i: v for i, v in plain.items() if i in predicted})
        if same:
            gain = summary(trivial)["mape"] - summary(same)["mape"]
            found.append(
                Aim(f"better than the baseline, {text}", gain, _BETTER_BY, True, len(same))
            )
    for gap, limit in _PAIRS:
        chosen_pairs = [p for p in pairs(cases, predicted, precision=False) if p.gap > gap]
        if chosen_pairs:
            right = 100 * sum(pair.right for pair in chosen_pairs) / len(chosen_pairs)
            text = f"pairs over {gap} % apart with the right sign"
            found.append(Aim(text, right, limit, True, len(chosen_pairs), "pairs"))
    return found


def aim_lines(cases: Sequence[Case], outcomes: Sequence[Outcome]) -> list[str]:
    """The aims under a title; nothing without a fit."""
    found = aims(cases, outcomes)
    if not found:
        return []
    return ["", "aims, judged by what the fit has not seen", *(one.line() for one in found)]
