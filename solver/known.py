"""Values of cost terms and rules that were evaluated already, shared by all searches of a problem.

Terms are evaluated one combination of decisions at a time, in Python, so that each is worth
keeping: pipeline degrees, the searches behind a conflict, a repair or a relaxation mostly ask for
the same ones.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import fields, replace
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from meshplan.constraints.layout import Value
from meshplan.constraints.problem import Problem

_UNKNOWN = np.iinfo(np.int64).min


class Known:
    """Values by term (or rule) and by numbers that stand for values of the decisions."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, ...], dict[tuple[Value, ...], int]] = {}
        self._tables: dict[Hashable, npt.NDArray[np.int64]] = {}

    def codes(
        self, names: tuple[str, ...], values: Sequence[tuple[Value, ...]]
    ) -> npt.NDArray[np.intp]:
        """A number for each combination of values of the decisions ``names``."""
        numbers = self._numbers.setdefault(names, {})
        return np.array([numbers.setdefault(one, len(numbers)) for one in values], dtype=np.intp)

    def table(
        self,
        key: Hashable,
        codes: Sequence[npt.NDArray[np.intp]],
        function: Callable[[Sequence[int]], Any],
    ) -> npt.NDArray[np.int64]:
        """Values of a term for all combinations of the codes along each dimension.

        Parameters
        ----------
        key
            What tells the term from others.
        function
            Value of the term, given a position in ``codes`` along each dimension.
        """
        table = self._tables.get(key)
        size = tuple(int(one.max(initial=-1)) + 1 for one in codes)
        if table is None or any(a > b for a, b in zip(size, table.shape, strict=True)):
            table = self._tables[key] = _grown(table, size)
        index = np.ix_(*codes)
        values: npt.NDArray[np.int64] = table[index]
        unknown = np.argwhere(values == _UNKNOWN)
        if len(unknown):
            for position in unknown.tolist():
                values[tuple(position)] = function(position)
            table[index] = values
        return values


def _grown(table: npt.NDArray[np.int64] | None, size: Sequence[int]) -> npt.NDArray[np.int64]:
    """The table with room for ``size``, and for what is already in it."""
    if table is None:
        return np.full(size, _UNKNOWN)
    larger = np.full(np.maximum(size, table.shape), _UNKNOWN)
    larger[tuple(slice(length) for length in table.shape)] = table
    return larger


#: Fields of a problem that no term reads, nor any rule whose scope is of decisions.
_NOT_READ = frozenset(
    ("name", "candidates", "pins", "layout_string", "even_split", "assumed", "asked", "lines")
)


def _read(problem: Problem) -> tuple[str, ...]:
    """All that terms and rules may read of a problem: equal where they have the same values."""
    values = {
        field.name: getattr(problem, field.name)
        for field in fields(problem)
        if field.name not in _NOT_READ
    }
    node = problem.node_type.model_copy(update={"hbm_gib": 0, "host_memory_gib": 0})
    values["cluster"] = replace(problem.cluster, node_type=node)
    values["limits"] = replace(problem.limits, memory_headroom=0, dp_tolerance=0)
    return tuple(repr(value) for value in values.values())


@lru_cache(maxsize=4)
def _known(_: tuple[str, ...]) -> Known:
    return Known()


_OF_PROBLEM: WeakKeyDictionary[Problem, Known] = WeakKeyDictionary()


def known_of(problem: Problem) -> Known:
    """What is known of the terms and rules of a problem, or of another that is like it for them."""
    if problem not in _OF_PROBLEM:
        _OF_PROBLEM[problem] = _known(_read(problem))
    return _OF_PROBLEM[problem]


#: Problems that stand for all with the same layers, at most so many.
_MOST_TWINS = 16
_BY_LAYERS: dict[Hashable, Problem] = {}
_TWINS: WeakKeyDictionary[Problem, Problem] = WeakKeyDictionary()


def twin(problem: Problem) -> Problem:
    """A problem with the same layers and split, the same for all of these.

    Tables that depend on nothing else are kept under it.
    """
    if problem not in _TWINS:
        card = problem.model
        key = (card.layer_kinds, card.mtp_layers, problem.layout_string, problem.even_split)
        if key not in _BY_LAYERS and len(_BY_LAYERS) == _MOST_TWINS:
            del _BY_LAYERS[next(iter(_BY_LAYERS))]
        _TWINS[problem] = _BY_LAYERS.setdefault(key, problem)
    return _TWINS[problem]


__all__ = ["Known", "known_of", "twin"]
