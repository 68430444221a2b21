"""Cost terms and rules tabulated over the axes of the search, as numpy arrays.

For one pipeline degree the decisions are grouped into axes: one row of degrees (mesh), one
recompute choice, one set of CUDA-graph scopes, the dispatcher, the offload, the virtual pipeline
degree.  A term reads a few decisions only, so its table has length 1 along all other axes and
numpy broadcasting joins the tables.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from meshplan.constraints.decisions import DERIVED, GRAPH_FLAGS, RECOMPUTE_FLAGS
from meshplan.constraints.layout import Value
from meshplan.constraints.problem import Problem
from meshplan.constraints.rule import Rule
from meshplan.constraints.terms import scope_of

Array: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]

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


def _holds(problem: Problem, rule: Rule, values: tuple[Value, ...]) -> bool:
    return rule.holds(problem, *values)


class Axes:
    """Values along each axis, and tables over them.

    Parameters
    ----------
    mesh_names, mesh
        Names and rows of the mesh axis (``pp`` is the same for all).
    others
        For each other axis its values, each a tuple over ``AXIS_DECISIONS[axis]``.
    """

    def __init__(
        self,
        problem: Problem,
        pp: int,
        mesh_names: Sequence[str],
        mesh: Sequence[tuple[Value, ...]],
        others: dict[str, list[tuple[Value, ...]]],
    ) -> None:
        self.problem = problem
        self.pp = pp
        self.mesh_names = tuple(mesh_names)
        self.mesh = list(mesh)
        self.others = others
        self._projections: dict[tuple[str, ...], tuple[list[tuple[Value, ...]], Any]] = {}

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

    # -- tables --------------------------------------------------------------------------------

    def table(self, term: Callable[..., int], **constants: Any) -> Array:
        """Value of a term for every combination of the decisions that it reads."""
        scope = scope_of(term)

        def value(values: tuple[Value, ...]) -> int:
            return term(self.problem, **constants, **dict(zip(scope, values, strict=True)))

        result: Array = self._tabulate(scope, value, np.int64)
        return result

    def allowed(self, rules: Iterable[Rule]) -> Mask:
        """Where all of these rules hold."""
        mask: Mask = np.ones((1,) * len(AXES), dtype=bool)
        for rule in rules:
            mask = mask & self._tabulate(rule.scope, partial(_holds, self.problem, rule), np.bool_)
        return mask

    def _tabulate(
        self, scope: Sequence[str], function: Callable[[tuple[Value, ...]], Any], dtype: Any
    ) -> Any:
        """Evaluate on the distinct values of the scope, then spread over the axes."""
        parts: list[list[tuple[Value, ...]]] = []
        spreads: list[Any] = []
        order: list[str] = []
        for axis in AXES:
            names = [n for n in scope if self._axis(n) == axis]
            distinct, inverse = self._project(axis, tuple(names))
            parts.append(distinct)
            spreads.append(inverse)
            order += names
        position = {name: order.index(name) for name in order}
        pick = [position[n] if n != "pp" else -1 for n in scope]
        flat = []
        for combination in itertools.product(*parts):
            values = [v for part in combination for v in part]
            flat.append(function(tuple(values[i] if i >= 0 else self.pp for i in pick)))
        array = np.array(flat, dtype=dtype).reshape([len(part) for part in parts])
        for dimension, inverse in enumerate(spreads):
            if inverse is not None:
                array = np.take(array, inverse, axis=dimension)
        return array

    @staticmethod
    def _axis(name: str) -> str | None:
        return None if name == "pp" else _AXIS_OF.get(name, "mesh")

    def _project(self, axis: str, names: tuple[str, ...]) -> tuple[list[tuple[Value, ...]], Any]:
        """Distinct values of ``names`` along an axis, and for each index which of them it has."""
        if not names:
            return [()], None
        if names not in self._projections:
            rows: list[tuple[Value, ...]]
            if axis == "mesh":
                rows = self._mesh_columns(names)
            else:
                columns = [AXIS_DECISIONS[axis].index(n) for n in names]
                rows = [tuple(value[c] for c in columns) for value in self.others[axis]]
            distinct = list(dict.fromkeys(rows))
            index = {value: i for i, value in enumerate(distinct)}
            self._projections[names] = distinct, np.array([index[r] for r in rows], dtype=np.intp)
        return self._projections[names]

    def _mesh_columns(self, names: tuple[str, ...]) -> list[tuple[Value, ...]]:
        column = {name: i for i, name in enumerate(self.mesh_names)}
        if not any(name in DERIVED for name in names):
            picks = [column[name] for name in names]
            return [tuple(row[i] for i in picks) for row in self.mesh]
        rows = []
        for row in self.mesh:
            cp, mbs, tp = int(row[column["cp"]]), int(row[column["mbs"]]), int(row[column["tp"]])
            derived = self.problem.derived(tp, cp, mbs)
            rows.append(tuple(derived[n] if n in derived else row[column[n]] for n in names))
        return rows
