"""What a lever is, and how the smallest step of one is found."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum

from meshplan.constraints.problem import Problem
from meshplan.solver.repairs.results import Change
from meshplan.solver.repairs.trials import Trials


class Effort(IntEnum):
    """What a change costs a person; repairs come in this order."""

    #: A line of the layout or of the options: the same training on the same GPUs.
    OPTION = 1
    #: A limit that the person set, or the version of the framework.
    LIMIT = 2
    #: A numeric format: the same training, with other rounding.
    RECIPE = 3
    #: The batch or the sequence: another training.
    WORKLOAD = 4
    #: Other GPUs, or more or fewer of them.
    HARDWARE = 5


class Lever(ABC):
    """Something that a person can change.

    Attributes
    ----------
    name
        Path of its field, or what it stands for (``gpus``).
    effort
        What it costs.
    """

    name: str
    effort: Effort

    @abstractmethod
    def applies(self, problem: Problem) -> bool:
        """Whether there is anything to change here."""

    @abstractmethod
    def smallest(self, trials: Trials) -> Change | None:
        """The smallest step that works; None if none does."""

    @abstractmethod
    def widest(self, problem: Problem) -> Change:
        """The step that leaves the most room; for the reason why none works."""

    def further(self, trials: Trials, smallest: Change) -> Iterator[Change]:
        """Larger steps that are worth a look beside the smallest."""
        return iter(())


def values_of(*changes: Change) -> dict[str, object]:
    """Changes as trials take them."""
    return {change.path: change.after for change in changes}


def first_that_works(trials: Trials, steps: Sequence[Change]) -> Change | None:
    """The first step that works, tried one after the other."""
    return next((step for step in steps if trials.works(values_of(step))), None)


def least_that_works(trials: Trials, steps: Sequence[Change]) -> Change | None:
    """The first step that works, where each step allows all that the one before does."""
    if not steps or not trials.works(values_of(steps[-1])):
        return None
    return steps[least_number(0, len(steps) - 1, lambda i: trials.works(values_of(steps[i])))]


def least_number(low: int, high: int, works: Callable[[int], bool]) -> int:
    """The least number from ``low`` that works, by bisection; ``high`` and all above do."""
    while low < high:
        middle = (low + high) // 2
        if works(middle):
            high = middle
        else:
            low = middle + 1
    return high


__all__ = ["Effort", "Lever", "first_that_works", "least_number", "least_that_works", "values_of"]
