"""What a rule is: a named fact about a few decisions that a layout must obey."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from meshplan.constraints.layout import Value
    from meshplan.constraints.problem import Problem


def _always(_: Problem) -> bool:
    return True


@dataclass(frozen=True)
class Rule:
    """A fact that a layout must obey, defined once for solver, checker and oracle.

    Attributes
    ----------
    id
        Kebab-case, never reused.
    scope
        Names of the decisions that the rule reads, in the order of the arguments of ``holds``.
    holds
        ``holds(problem, *values)``: whether a layout with these values obeys the rule.
    explain
        ``explain(problem, *values)``: one sentence with the numbers of a violation.
    applies
        Whether the rule can bite in this problem at all (model, precision, version, ...).
    formula
        The rule as a formula, for ``meshplan rules``.
    why
        One or two sentences for a person: why the rule exists.
    source
        Where it comes from: repository path, symbol, or paper section.
    family
        Group in the catalogue: mesh, divisibility, batch, pipeline, domain, ...
    fields
        The scenario fields a person can change to satisfy it (``layout.tp``), most likely first.
    """

    id: str
    scope: tuple[str, ...]
    holds: Callable[..., bool]
    explain: Callable[..., str]
    formula: str
    why: str
    source: str
    family: str
    applies: Callable[[Problem], bool] = _always
    fields: tuple[str, ...] = ()


@dataclass(frozen=True)
class Violation:
    """One broken rule of a concrete layout, with its numbers."""

    rule: str
    text: str
    values: dict[str, Value]
    nearest: dict[str, list[Value]]
