"""What a lever is, and how the smallest step of one is found."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from typing import TypeAlias

from meshplan.constraints.problem import Problem
from meshplan.solver.repairs.results import Change
from meshplan.solver.repairs.trials import Trials

#: What is changed at once: mostly one thing.
Step: TypeAlias = tuple[Change, ...]


class Effort(IntEnum):
    """What a change costs a person; repairs come in this order."""

    #: A line of the layout or of the options: the same training on the same GPUs.
    OPTION = 1
    #: All pinned degrees given up.
    LAYOUT = 2
    #: A limit that the person set, GPUs left idle, or the version of the framework.
    LIMIT = 3
    #: A numeric format: the same training, with other rounding.
    RECIPE = 4
    #: The batch or the sequence: another training.
    WORKLOAD = 5
    #: More GPUs, or other ones.
    HARDWARE = 6
    #: What a GPU or node would need; there may be none like it.
    FIGURE = 7


class Lever(ABC):
    """Something that a person can change.

    Attributes
    ----------
    name
        Path of its field, or what it stands for (``gpus``); the ``lever`` of its repairs.
    effort
        What it costs.
    neutral
        Whether weights, gradients and optimizer state stay as they are, so that it cannot help
        where these alone are too much.
    obscure
        Whether nobody would ask why it does not help.
    """

    name: str
    effort: Effort
    neutral: bool = False
    obscure: bool = False

    def shown(self, problem: Problem) -> str:
        """What a report calls it: the scenario's own fields, or a figure of the hardware."""
        return self.name

    @abstractmethod
    def applies(self, problem: Problem) -> bool:
        """Whether there is anything to change here."""

    @abstractmethod
    def smallest(self, trials: Trials) -> Step | None:
        """The smallest step that works; None if none does."""

    @abstractmethod
    def widest(self, trials: Trials) -> Step:
        """The step that leaves the most room; for the reason why none works."""

    def further(self, trials: Trials, smallest: Step) -> Iterator[Step]:
        """Larger steps that are worth a look beside the smallest."""
        return iter(())


def values_of(step: Step) -> dict[str, object]:
    """A step as trials take it."""
    return {change.path: change.after for change in step}


def first_that_works(trials: Trials, steps: Sequence[Step]) -> Step | None:
    """The first step that works, tried one after the other."""
    return next((step for step in steps if trials.works(values_of(step))), None)


def least_that_works(trials: Trials, steps: Sequence[Step]) -> Step | None:
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


__all__ = [
    "Effort", "Lever", "Step", "first_that_works", "least_number", "least_that_works", "values_of",
]  # fmt: skip
