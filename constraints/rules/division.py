"""The shape that most divisibility rules share: a degree divides one figure of the model."""

from __future__ import annotations

from collections.abc import Callable

from meshplan.constraints.problem import Problem
from meshplan.constraints.rule import Rule
from meshplan.constraints.rules.wording import nearest_divisors


def divides(
    rule_id: str,
    degree: str,
    figure: Callable[[Problem], int],
    *,
    what: str,
    why: str,
    source: str,
    family: str = "divisibility",
    applies: Callable[[Problem], bool] = lambda _: True,
) -> Rule:
    """Rule that every rank's share of a figure is whole.

    Parameters
    ----------
    rule_id, why, source, family, applies
        As in :class:`~meshplan.constraints.rule.Rule`.
    degree
        The decision that must divide.
    figure
        The number that is divided, from the problem.
    what
        What that number is called in formula and explanation.
    """

    def holds(problem: Problem, value: int) -> bool:
        return figure(problem) % value == 0

    def explain(problem: Problem, value: int) -> str:
        number = figure(problem)
        return (
            f"{what} = {number} is not divisible by {degree} = {value} (remainder "
            f"{number % value}); {degree} = {nearest_divisors(number, value)} divides it"
        )

    return Rule(
        id=rule_id,
        scope=(degree,),
        holds=holds,
        explain=explain,
        formula=f"{what} % {degree} == 0",
        why=why,
        source=source,
        family=family,
        applies=applies,
        fields=(f"layout.{degree}",),
    )
