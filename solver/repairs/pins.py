"""Pinned degrees: the nearest value that works; and all pins at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from meshplan.constraints.layout import Value
from meshplan.constraints.problem import Pin, Problem
from meshplan.solver.changed import asked_value
from meshplan.solver.diagnosis.legality import decision_domains
from meshplan.solver.repairs.lever import Effort, Lever, Step, first_that_works
from meshplan.solver.repairs.results import Change
from meshplan.solver.repairs.trials import Trials

#: Degrees that a scenario may pin.
PINNABLE = ("tp", "cp", "pp", "vpp", "ep", "etp", "mbs", "dp", "edp", "ga")


@dataclass(frozen=True)
class PinnedDegree(Lever):
    """One pinned degree.

    Its steps are the values that the search would try for it unpinned, and for ``pp`` every
    divisor of the GPUs; the nearest is the one that is the least times larger or smaller.
    """

    decision: str
    effort: Effort = Effort.OPTION

    @property
    def name(self) -> str:  # type: ignore[override]
        """Path of the pin."""
        return f"layout.{self.decision}"

    @property
    def neutral(self) -> bool:  # type: ignore[override]
        """Micro-batches have nothing to do with the model's state."""
        return self.decision in ("mbs", "ga")

    def applies(self, problem: Problem) -> bool:
        """Whether it is pinned and could be anything else."""
        return _pin(problem, self.name) is not None and bool(self._others(problem))

    def widest(self, trials: Trials) -> Step:
        """Left to the search."""
        return self._step(trials.problem, None)

    def smallest(self, trials: Trials) -> Step | None:
        """The nearest value."""
        problem = trials.problem
        value = nearest_choice(trials, self.name, self.decision, self._others(problem))
        return None if value is None else self._step(problem, value)

    def _step(self, problem: Problem, value: int | None) -> Step:
        pin = _pin(problem, self.name)
        assert pin is not None
        shown = "left to the search" if value is None else value
        text = f"{self.name}: {shown} instead of {pin.text.partition(' = ')[2]}"
        return (Change(self.name, asked_value(problem, self.name), value, text),)

    def _others(self, problem: Problem) -> list[int]:
        """Values that the pin forbids, the nearest first."""
        pin = _pin(problem, self.name)
        assert pin is not None
        held = [int(value) for value in pin.values] or [1]
        known = {int(value) for value in decision_domains(problem)[self.decision]}
        if self.decision == "pp":
            known |= set(_pipeline_degrees(problem))

        def distance(value: int) -> float:
            return min(abs(math.log(value / one)) for one in held)

        return sorted(known - set(held), key=lambda value: (distance(value), value))


def nearest_choice(trials: Trials, path: str, decision: str, ordered: Sequence[int]) -> int | None:
    """The first of some values of a decision with which some layout is possible.

    All values are tried at once; while there is a plan, only those before the one that it has are
    left.
    """
    best: int | None = None
    left = list(ordered)
    while left:
        trial = trials.trial({path: left if len(left) > 1 else left[0]})
        if trial is None or trial.found is None:
            break
        best = int(trial.found.decisions[decision])
        left = left[: left.index(best)]
    return best


@dataclass(frozen=True)
class AllPins(Lever):
    """All pinned degrees at once, left to the search; PP then may be any divisor of the GPUs."""

    name: str = "layout"
    effort: Effort = Effort.LAYOUT

    def shown(self, problem: Problem) -> str:
        """As its own repair calls it."""
        return "layout (all degrees left to the search)"

    def applies(self, problem: Problem) -> bool:
        """Whether there are several."""
        return len(problem.asked.get("layout", {})) > 1

    def widest(self, trials: Trials) -> Step:
        """With PP beyond powers of two, where these are not all divisors."""
        return self._steps(trials.problem)[-1]

    def smallest(self, trials: Trials) -> Step | None:
        """Powers of two alone, if they do."""
        return first_that_works(trials, self._steps(trials.problem))

    def _steps(self, problem: Problem) -> list[Step]:
        before = asked_value(problem, "layout")
        text = "layout: all degrees left to the search"
        steps: list[Step] = [(Change("layout", before, None, text),)]
        powers = decision_domains(problem)["pp"]
        divisors = _pipeline_degrees(problem)
        if set(divisors) - set(powers):
            text += f", pp any of {', '.join(map(str, divisors))}"
            steps.append((Change("layout", before, {"pp": divisors}, text),))
        return steps


def _pipeline_degrees(problem: Problem) -> list[int]:
    """Divisors of the GPUs, up to the most stages that the search would try by itself."""
    most = max(int(degree) for degree in decision_domains(problem)["pp"])
    return [degree for degree in range(1, most + 1) if problem.gpus % degree == 0]


def _pin(problem: Problem, path: str) -> Pin | None:
    return next((pin for pin in problem.pins if pin.path == path), None)


def other_values(problem: Problem, path: str, known: Sequence[Value]) -> list[Value]:
    """Values that a pin forbids, in their order."""
    pin = _pin(problem, path)
    return [] if pin is None else [value for value in known if value not in pin.values]


__all__ = ["PINNABLE", "AllPins", "PinnedDegree", "nearest_choice", "other_values"]
