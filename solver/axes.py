"""Cost terms and rules tabulated over the axes of the search, as numpy arrays.

For one pipeline degree the decisions are grouped into axes: one row of degrees (mesh), one
recompute choice, one set of CUDA-graph scopes, the dispatcher, the offload, the virtual pipeline
degree.  A term reads a few decisions only, so its table has length 1 along all other axes and
numpy broadcasting joins the tables.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from meshplan.constraints.decisions import DERIVED, GRAPH_FLAGS, RECOMPUTE_FLAGS
from meshplan.constraints.layout import Value
from meshplan.constraints.problem import Problem
from meshplan.constraints.rule import Rule
from meshplan.constraints.terms import scope_of, with_constants
from meshplan.solver.known import known_of

Array: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]
Index: TypeAlias = npt.NDArray[np.intp]

#: Axes in the order of the arrays' dimensions.
AXES: tuple[str, ...] = ("mesh", "recompute", "graphs", "dispatcher", "offload", "vpp")

#: Decisions of each axis but the mesh.
AXIS_DECISIONS: dict[str, tuple[str, ...]] = {
    "recompute": ("rc_full", *RECOMPUTE_FLAGS),
    "graphs": GRAPH_FLAGS,
    "dispatcher": ("dispatcher",),
    "offload": ("offload",),
    "vpp": ("vpp",),
}
_AXIS_OF = {name: axis for axis, names in AXIS_DECISIONS.items() for name in names}


#: A term and the constants that it is called with besides decisions (``kind``, ``part``).
Term: TypeAlias = tuple[Callable[..., int], dict[str, Any]]


@dataclass(frozen=True, eq=False)
class _Projection:
    """Distinct values of some decisions along one axis.

    Attributes
    ----------
    names
        The decisions; none if the axis does not matter.
    distinct
        Their values.
    codes
        Numbers of these in :class:`Known`.
    first
        For each of these an index along the axis that has it.
    inverse
        For each index along the axis, which of them it has.
    """

    names: tuple[str, ...]
    distinct: list[tuple[Value, ...]]
    codes: Index
    first: Index
    inverse: Index


_NONE = np.zeros(1, dtype=np.intp)
_NO_NAMES = _Projection((), [()], _NONE, _NONE, _NONE)


class Axes:
    """Values along each axis, and tables over them.

    Parameters
    ----------
    mesh_names, mesh
        Names and rows of the mesh axis (``pp`` is the same for all).
    others
        For each other axis its values, each a tuple over ``AXIS_DECISIONS[axis]``.
    cheapest
        Whether tables keep the mesh axis only, with the least value over all others.
    """

    def __init__(
        self,
        problem: Problem,
        pp: int,
        mesh_names: Sequence[str],
        mesh: Sequence[tuple[Value, ...]],
        others: dict[str, list[tuple[Value, ...]]],
        *,
        cheapest: bool = False,
    ) -> None:
        self.problem = problem
        self.pp = pp
        self.mesh_names = tuple(mesh_names)
        self.mesh = list(mesh)
        self.others = others
        self.cheapest = cheapest
        self._columns: dict[str, tuple[list[Value], Index]] = {}
        self._projections: dict[tuple[str, tuple[str, ...]], _Projection] = {}
        self._known = known_of(problem)

    def rows_cheapest(self) -> Axes:
        """The same axes, whose tables keep the mesh axis only."""
        same = Axes(self.problem, self.pp, self.mesh_names, self.mesh, self.others, cheapest=True)
        same._columns, same._projections = self._columns, self._projections
        return same

    def some_rows(self, chosen: Index) -> Axes:
        """The same axes with some of the mesh rows."""
        mesh = [self.mesh[i] for i in chosen.tolist()]
        return Axes(self.problem, self.pp, self.mesh_names, mesh, self.others)

    @property
    def shape(self) -> tuple[int, ...]:
        """Length of each axis."""
        return (len(self.mesh), *(len(self.others[axis]) for axis in AXES[1:]))

    def values(self, indices: Sequence[int]) -> dict[str, Value]:
        """All decisions of one cell, given its index along each axis."""
        named: dict[str, Value] = {"pp": self.pp}
        named |= dict(zip(self.mesh_names, self.mesh[indices[0]], strict=True))
        for axis, index in zip(AXES[1:], indices[1:], strict=True):
            named |= dict(zip(AXIS_DECISIONS[axis], self.others[axis][index], strict=True))
        return named

    def column(self, name: str) -> Array:
        """One degree of every mesh row."""
        values, codes = self._column(name)
        numbers: Array = np.array(values, dtype=np.int64)[codes]
        return numbers

    # -- tables --------------------------------------------------------------------------------

    def table(self, term: Callable[..., int], **constants: Any) -> Array:
        """Value of a term for every combination of the decisions that it reads."""
        return self.total([(term, constants)])

    def total(self, terms: Iterable[Term]) -> Array:
        """Sum of terms for every combination of the decisions that any of them reads."""
        return self._joined(np.add, terms)

    def largest(self, terms: Iterable[Term]) -> Array:
        """Largest of terms for every combination of the decisions that any of them reads."""
        return self._joined(np.maximum, terms)

    def allowed(self, rules: Iterable[Rule]) -> list[Mask]:
        """Masks all of which hold where all of these rules hold."""
        masks: dict[tuple[_Projection, ...], Any] = {}
        for rule in rules:
            holds = partial(rule.holds, self.problem)
            parts, mask = self._compact(rule, rule.scope, lambda *v, f=holds: f(*v), np.bool_)
            masks[parts] = masks[parts] & mask if parts in masks else mask
        return [self._expanded(mask, parts) for parts, mask in masks.items()]

    def _joined(self, join: np.ufunc, terms: Iterable[Term]) -> Array:
        """Join terms on the distinct combinations of all decisions that they read, then spread."""
        tables: dict[tuple[_Projection, ...], Array] = {}
        for term, constants in terms:
            key = (term, *sorted(constants.items()))
            value = with_constants(term, self.problem, constants)
            parts, array = self._compact(key, scope_of(term), value, np.int64)
            tables[parts] = join(tables[parts], array) if parts in tables else array
        whole = tuple(
            self._projection(axis, [name for parts in tables for name in parts[i].names])
            for i, axis in enumerate(AXES)
        )
        joined: Array | None = None
        for parts, array in tables.items():
            for dimension, (part, all_) in enumerate(zip(parts, whole, strict=True)):
                if part.names and part is not all_:
                    array = np.take(array, part.inverse[all_.first], axis=dimension)
            joined = array if joined is None else join(joined, array)
        assert joined is not None
        if self.cheapest:
            joined = joined.min(axis=tuple(range(1, len(AXES))), keepdims=True)
            whole = (whole[0], *(_NO_NAMES for _ in AXES[1:]))
        result: Array = self._expanded(joined, whole)
        return result

    def _compact(
        self, key: Hashable, scope: Sequence[str], function: Callable[..., Any], dtype: Any
    ) -> tuple[tuple[_Projection, ...], Any]:
        """A function of the scope on the distinct values of the scope along each axis."""
        parts = tuple(
            self._projection(axis, [n for n in scope if self._axis(n) == axis]) for axis in AXES
        )
        values = [part.distinct for part in parts]
        places = [
            next((d, part.names.index(n)) for d, part in enumerate(parts) if n in part.names)
            for n in scope
            if n != "pp"
        ]
        pp_at = scope.index("pp") if "pp" in scope else None

        def at(position: Sequence[int]) -> Any:
            arguments = [values[d][position[d]][i] for d, i in places]
            if pp_at is not None:
                arguments.insert(pp_at, self.pp)
            return function(*arguments)

        whole_key = (key, self.pp if "pp" in scope else None)
        table = self._known.table(whole_key, [part.codes for part in parts], at)
        return parts, table.astype(dtype, copy=False)

    @staticmethod
    def _expanded(array: Any, parts: Sequence[_Projection]) -> Any:
        for dimension, part in enumerate(parts):
            if part.names:
                array = np.take(array, part.inverse, axis=dimension)
        return array

    @staticmethod
    def _axis(name: str) -> str | None:
        return None if name == "pp" else _AXIS_OF.get(name, "mesh")

    # -- projections ---------------------------------------------------------------------------

    def _projection(self, axis: str, names: Iterable[str]) -> _Projection:
        """Distinct values of ``names`` along an axis; the order of the names does not matter."""
        ordered = tuple(sorted(set(names)))
        if not ordered:
            return _NO_NAMES
        if (axis, ordered) not in self._projections:
            self._projections[axis, ordered] = self._projected(axis, ordered)
        return self._projections[axis, ordered]

    def _projected(self, axis: str, names: tuple[str, ...]) -> _Projection:
        if axis == "mesh":
            columns = [self._column(name) for name in names]
        else:
            places = [AXIS_DECISIONS[axis].index(n) for n in names]
            columns = [_coded([value[p] for value in self.others[axis]]) for p in places]
        codes = columns[0][1]
        size = len(columns[0][0])
        first, inverse = _distinct(codes, size)
        for values, more in columns[1:]:
            first, inverse = _distinct(inverse * len(values) + more, len(first) * len(values))
        distinct = list(zip(*([v[c] for c in k[first].tolist()] for v, k in columns), strict=True))
        return _Projection(names, distinct, self._known.codes(names, distinct), first, inverse)

    def _column(self, name: str) -> tuple[list[Value], Index]:
        """Values of one decision (or derived quantity) of the mesh, and which each row has."""
        if name not in self._columns:
            if name in DERIVED:
                base = self._projection("mesh", ("tp", "cp", "mbs"))
                named = [dict(zip(base.names, row, strict=True)) for row in base.distinct]
                values, codes = _coded(
                    [self.problem.derived(**{k: int(v) for k, v in n.items()})[name] for n in named]
                )
                self._columns[name] = values, codes[base.inverse]
            else:
                place = self.mesh_names.index(name)
                self._columns[name] = _coded([row[place] for row in self.mesh])
        return self._columns[name]


def _coded(values: Sequence[Value]) -> tuple[list[Value], Index]:
    """Distinct values, and for each value which of them it is."""
    number: dict[Value, int] = {}
    codes = [number.setdefault(value, len(number)) for value in values]
    return list(number), np.array(codes, dtype=np.intp)


def _distinct(codes: Index, size: int) -> tuple[Index, Index]:
    """First index of each distinct code below ``size``, and for each index which code it has."""
    first = np.full(size, -1, dtype=np.intp)
    first[codes[::-1]] = np.arange(len(codes), dtype=np.intp)[::-1]
    found = np.flatnonzero(first >= 0)
    number = np.empty(size, dtype=np.intp)
    number[found] = np.arange(len(found))
    return first[found], number[codes]
