"""From terms to CP-SAT: decision variables, and cost terms tabulated over their scope."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

from ortools.sat.python import cp_model

from meshplan.constraints.decisions import (
    CP_COMM_TYPES,
    DECISIONS,
    DERIVED,
    DISPATCHERS,
    GRAPH_FLAGS,
    RECOMPUTE_FLAGS,
)
from meshplan.constraints.layout import Value
from meshplan.constraints.problem import Problem
from meshplan.constraints.rule import Rule
from meshplan.constraints.terms import scope_of
from meshplan.solver.meshes import MESH, MeshTable

Variable: TypeAlias = cp_model.IntVar
#: A variable or a constant.
Expression: TypeAlias = Any
Term: TypeAlias = tuple[Callable[..., int], dict[str, Any]]

#: Decisions beside the degrees.
OPTIONS: tuple[str, ...] = (
    "rc_full", *RECOMPUTE_FLAGS, "offload", "dispatcher", "cp_comm", *GRAPH_FLAGS,
)  # fmt: skip
_CODES: dict[str, tuple[str, ...]] = {"dispatcher": DISPATCHERS, "cp_comm": CP_COMM_TYPES}


def encode(name: str, value: Value) -> int:
    """Integer that stands for a value of a decision."""
    return _CODES[name].index(str(value)) if name in _CODES else int(value)


def decode(name: str, code: int) -> Value:
    """Value of a decision that an integer stands for."""
    return _CODES[name][code] if name in _CODES else code


class Decisions:
    """Variables of all decisions for one pipeline degree, with tables over their values.

    Only this class knows how decisions are indexed.  Decisions with one value have no variable.
    """

    def __init__(
        self,
        model: cp_model.CpModel,
        problem: Problem,
        meshes: MeshTable,
        vpp: Sequence[int],
        option_domains: dict[str, tuple[Value, ...]],
        rules: Iterable[Rule],
    ) -> None:
        self.model = model
        self.problem = problem
        self.meshes = meshes
        self.domains: dict[str, list[Value]] = {"pp": [meshes.pp], "vpp": list(vpp)}
        self.domains |= {name: list(meshes.values(name)) for name in MESH}
        self.domains |= {name: list(option_domains[name]) for name in OPTIONS}
        self._variables: dict[str, Variable] = {}
        self._least: dict[str, tuple[list[str], dict[tuple[int, ...], int]]] = {}
        for name in DECISIONS:
            values = self.domains[name]
            if len(values) > 1:
                domain = cp_model.Domain.from_values(sorted(encode(name, v) for v in values))
                self._variables[name] = model.new_int_var_from_domain(domain, name)
        self._derived()
        free = [name for name in MESH if name in self._variables]
        if free:
            model.add_allowed_assignments(
                [self._variables[name] for name in free], meshes.projections(free)
            )
        self._option_rules = [r for r in rules if not set(r.scope) <= {"pp", *MESH}]
        for rule in self._option_rules:
            self._post_rule(rule)

    def _derived(self) -> None:
        """Variables of the derived quantities, each tied to what it follows from."""
        for name, sources in DERIVED.items():
            rows = []
            for values in self.meshes.projections(sources):
                named = dict(zip(sources, values, strict=True))
                tokens = self.problem.tokens(named["cp"], named["mbs"])
                rows.append((*values, -(-tokens // named.get("tp", 1))))
            self.domains[name] = sorted({row[-1] for row in rows})
            if len(self.domains[name]) > 1:
                domain = cp_model.Domain.from_values([int(v) for v in self.domains[name]])
                variable = self.model.new_int_var_from_domain(domain, name)
                self._variables[name] = variable
                self._allow((*sources, name), rows)

    def expression(self, name: str) -> Expression:
        """Variable of a decision, or its only value as an integer."""
        if name in self._variables:
            return self._variables[name]
        return encode(name, self.domains[name][0])

    @staticmethod
    def code(name: str, value: Value) -> int:
        """Integer that stands for a value of a decision."""
        return encode(name, value)

    def _allow(self, names: Sequence[str], rows: list[tuple[int, ...]]) -> None:
        """Allow exactly these rows of encoded values; constant columns are left out."""
        keep = [i for i, name in enumerate(names) if name in self._variables]
        if not keep:
            if not rows:
                self.model.add_bool_or([])
            return
        kept = sorted({tuple(row[i] for i in keep) for row in rows})
        self.model.add_allowed_assignments([self._variables[names[i]] for i in keep], kept)

    def _post_rule(self, rule: Rule) -> None:
        rows = [
            tuple(encode(n, v) for n, v in zip(rule.scope, values, strict=True))
            for _, values in self.combinations(rule.scope)
            if rule.holds(self.problem, *values)
        ]
        self._allow(rule.scope, rows)

    def combinations(
        self, scope: Sequence[str]
    ) -> Iterator[tuple[tuple[int, ...], tuple[Value, ...]]]:
        """Value tuples of a scope: degrees as they occur together, the rest in all ways.

        Each comes with the degrees that it follows from, in the order of :meth:`bases`.  Degrees
        that give the same derived quantities repeat the values.
        """
        bases = self.bases(scope)
        others = [n for n in scope if n not in MESH and n not in DERIVED]
        options = list(itertools.product(*(self.domains[n] for n in others)))
        for row in self.meshes.projections(bases):
            named: dict[str, Value] = dict(zip(bases, row, strict=True))
            for name in scope:
                if name in DERIVED:
                    tokens = self.problem.tokens(int(named["cp"]), int(named["mbs"]))
                    named[name] = -(-tokens // int(named["tp"])) if name == "moe_tokens" else tokens
            for option in options:
                named.update(zip(others, option, strict=True))
                yield row, tuple(named[n] for n in scope)

    @staticmethod
    def bases(scope: Sequence[str]) -> list[str]:
        """Degrees that the names of a scope follow from, in mesh order."""
        needed = {base for name in scope for base in DERIVED.get(name, (name,))}
        return [name for name in MESH if name in needed]

    def tabulate(self, terms: Sequence[Term], name: str) -> Expression:
        """Variable equal to the sum of ``terms``, by a table over the union of their scopes.

        Rows that an option rule within the scope forbids are left out.
        """
        scope = tuple(dict.fromkeys(n for term, _ in terms for n in scope_of(term)))
        binding = [
            (rule, [scope.index(n) for n in rule.scope])
            for rule in self._option_rules
            if set(rule.scope) <= set(scope)
        ]
        arguments = [
            (term, constants, [(n, scope.index(n)) for n in scope_of(term)])
            for term, constants in terms
        ]
        values_of: dict[tuple[Value, ...], int | None] = {}
        least: dict[tuple[int, ...], int] = {}
        for row, values in self.combinations(scope):
            if values in values_of:
                total = values_of[values]
            elif all(rule.holds(self.problem, *(values[p] for p in at)) for rule, at in binding):
                total = sum(
                    term(self.problem, **constants, **{n: values[i] for n, i in named})
                    for term, constants, named in arguments
                )
                values_of[values] = total
            else:
                total = values_of[values] = None
            if total is not None and (row not in least or total < least[row]):
                least[row] = total
        self._least[name] = (self.bases(scope), least)
        rows = [
            (*(encode(n, v) for n, v in zip(scope, values, strict=True)), total)
            for values, total in values_of.items()
            if total is not None
        ]
        results = sorted({row[-1] for row in rows})
        if not results:
            self.model.add_bool_or([])
            return 0
        if len(results) == 1:
            return results[0]
        variable = self.model.new_int_var_from_domain(cp_model.Domain.from_values(results), name)
        self._variables[name] = variable
        self._allow((*scope, name), rows)
        return variable

    def least(self, name: str, row: dict[str, int]) -> int:
        """Least value of a tabulated term over all options, for one mesh row."""
        bases, least = self._least[name]
        return least[tuple(row[base] for base in bases)]
