"""Cost terms: plain functions whose parameter names are the decisions that they read.

A term is ``f(problem, *, constants..., decisions...) -> int``.  Its *scope* is the list of its
parameters that name a decision or a derived quantity; other parameters (``kind``, ``part``) are
constants that the caller fixes.  The checker evaluates a term on a layout; the encoder tabulates
it over the values of its scope.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any

from meshplan.constraints.decisions import DECISIONS, DERIVED
from meshplan.constraints.layout import Layout
from meshplan.constraints.problem import Problem, scope_value

_SCOPE_NAMES = frozenset(DECISIONS) | frozenset(DERIVED)


@lru_cache(maxsize=1024)
def scope_of(term: Callable[..., int]) -> tuple[str, ...]:
    """Scope of a term: its parameters that are decisions, in order."""
    return tuple(name for name in inspect.signature(term).parameters if name in _SCOPE_NAMES)


def with_constants(
    term: Callable[..., int], problem: Problem, constants: Mapping[str, Any]
) -> Callable[..., int]:
    """The term as a function of the values of its scope, in order."""
    scope = scope_of(term)
    if tuple(inspect.signature(term).parameters)[1:] == (*constants, *scope):
        return partial(term, problem, *constants.values())
    return lambda *values: term(problem, **constants, **dict(zip(scope, values, strict=True)))


def evaluate(term: Callable[..., int], problem: Problem, layout: Layout, **constants: Any) -> int:
    """Value of a term on a concrete layout."""
    values = {name: scope_value(problem, layout, name) for name in scope_of(term)}
    return term(problem, **constants, **values)
