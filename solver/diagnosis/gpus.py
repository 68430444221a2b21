"""The number of GPUs that is diagnosed, where the scenario leaves it open."""

from __future__ import annotations

from meshplan.constraints.parts import Part, fixed_to, parts
from meshplan.constraints.problem import Problem
from meshplan.solver.search import Search


def with_fixed_gpus(problem: Problem) -> Problem:
    """The problem with the most GPUs that allow a layout, else the most of all.

    Of each size of groups the largest number is tried: with fewer GPUs in the same groups there is
    less memory for the same layouts.
    """
    if not problem.gpus_open:
        return problem
    largest: dict[int, Part] = {}
    for part in parts(problem):
        largest.setdefault(part.group, part)
    trials = [fixed_to(problem, part) for part in largest.values()]
    possible = (trial for trial in trials if Search(trial).any_plan())
    return next(possible, trials[0] if trials else problem)


__all__ = ["with_fixed_gpus"]
