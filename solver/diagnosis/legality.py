"""Which rules and pins clash, memory aside: one small CP-SAT model with a switch for each fact.

Every rule is a table of allowed assignments over the values of its scope, enforced by the literal
of its fact; every pin a domain, enforced likewise.  Facts are switched on as assumptions, so one
model answers every question of the shrinking procedure.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from meshplan.constraints.decisions import CP_COMM_TYPES, DECISIONS, DERIVED, DISPATCHERS
from meshplan.constraints.layout import Value
from meshplan.constraints.problem import Problem
from meshplan.constraints.rule import Rule
from meshplan.constraints.split_rules import SLOTS_HOLD_LAYERS, split_rule
from meshplan.solver.diagnosis.facts import PIPELINE_PIN

_CODES: dict[str, tuple[str, ...]] = {"dispatcher": DISPATCHERS, "cp_comm": CP_COMM_TYPES}
#: Values of a pin that are looked at beyond the candidates.
_MOST_PINNED = 4096
_MOST_DERIVED = 16


def _divisors(number: int) -> list[int]:
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return sorted({*small, *(number // d for d in small)})


def decision_domains(problem: Problem) -> dict[str, list[Value]]:
    """Values that each decision can take without pins; derived degrees divide what they split."""
    batches = [int(v) for v in problem.candidates["gbs"]]
    derived: dict[str, list[Value]] = {
        "dp": list(_divisors(problem.gpus)),
        "edp": list(_divisors(problem.gpus)),
        "ga": sorted({d for batch in batches for d in _divisors(batch)}),
    }
    return {name: list(problem.candidates.get(name, derived.get(name, [1]))) for name in DECISIONS}


class Legality:
    """The model; facts are named by rule id or by the path of the pinned field."""

    def __init__(self, problem: Problem, rules: Iterable[Rule]) -> None:
        from ortools.sat.python import cp_model

        self.problem = problem
        self.model = cp_model.CpModel()
        self.domains = self._domains()
        self.variables: dict[str, Any] = {}
        self.literals: dict[str, Any] = {}
        for name, values in self.domains.items():
            codes = sorted(self._code(name, v) for v in values)
            domain = cp_model.Domain.from_values(codes)
            self.variables[name] = self.model.new_int_var_from_domain(domain, name)
        for pin in problem.pins:
            self._post_pin(pin.path, pin.decision, pin.values)
        for rule in rules:
            self._post_rule(rule, rule.id)
        split = split_rule(problem)
        if split is not SLOTS_HOLD_LAYERS:
            self._post_rule(split, split.id, PIPELINE_PIN)
        # Asked about where the given split is left out, too.
        self._post_rule(SLOTS_HOLD_LAYERS, SLOTS_HOLD_LAYERS.id)

    def _domains(self) -> dict[str, list[Value]]:
        domains = decision_domains(self.problem)
        for name, values in self.problem.pinned.items():
            # A wide range only narrows a derived degree; a few values are known to it, so that the
            # rule that refuses them is named.
            most = _MOST_DERIVED if name in ("dp", "edp", "ga") else _MOST_PINNED
            if len(values) <= most:
                known = domains[name]
                known += [v for v in values if v not in known]
        # So that the rules on groups of micro-batches hold by some value where gbs-divisible, which
        # alone says that ga divides the batch, is left out.
        largest = max(int(size) for size in self.problem.candidates["gbs"])
        groups = [pp for pp in domains["pp"] if int(pp) <= largest]
        domains["ga"] = [*domains["ga"], *(pp for pp in groups if pp not in domains["ga"])]
        for name, sources in DERIVED.items():
            domains[name] = sorted(set(self._tokens(name, sources, domains).values()))
        return domains

    def _tokens(
        self, name: str, sources: Sequence[str], domains: dict[str, list[Value]]
    ) -> dict[tuple[Value, ...], int]:
        result: dict[tuple[Value, ...], int] = {}
        for values in itertools.product(*(domains[s] for s in sources)):
            named = {source: int(v) for source, v in zip(sources, values, strict=True)}
            result[values] = self.problem.derived(named.get("tp", 1), named["cp"], named["mbs"])[
                name
            ]
        return result

    @staticmethod
    def _code(name: str, value: Value) -> int:
        return _CODES[name].index(str(value)) if name in _CODES else int(value)

    def _literal(self, fact: str) -> Any:
        if fact not in self.literals:
            self.literals[fact] = self.model.new_bool_var(fact)
        return self.literals[fact]

    def _post_pin(self, path: str, name: str, values: Sequence[Value]) -> None:
        from ortools.sat.python import cp_model

        codes = [self._code(name, v) for v in self.domains[name] if v in values]
        domain = cp_model.Domain.from_values(codes)
        constraint = self.model.add_linear_expression_in_domain(self.variables[name], domain)
        constraint.only_enforce_if(self._literal(path))

    def _post_rule(self, rule: Rule, *facts: str) -> None:
        columns = [self.domains[name] for name in rule.scope]
        rows = [
            tuple(self._code(n, v) for n, v in zip(rule.scope, values, strict=True))
            for values in itertools.product(*columns)
            if rule.holds(self.problem, *values)
        ]
        variables = [self.variables[name] for name in rule.scope]
        literals = [self._literal(fact) for fact in facts]
        if rows:
            self.model.add_allowed_assignments(variables, rows).only_enforce_if(literals)
        else:
            self.model.add_bool_or([literal.negated() for literal in literals])

    def possible(self, facts: Iterable[str]) -> bool:
        """Whether some layout respects these facts."""
        return self._solve(facts)[0]

    def core(self, facts: Sequence[str]) -> list[str]:
        """A subset of impossible facts that is impossible and from which none can be left out.

        Facts are left out first to last where that keeps the rest impossible.
        """
        _, indices = self._solve(facts)
        by_index = {self.literals[fact].index: fact for fact in facts if fact in self.literals}
        core = [fact for fact in facts if fact in {by_index[i] for i in indices if i in by_index}]
        for fact in list(core):
            rest = [other for other in core if other != fact]
            if not self.possible(rest):
                core = rest
        return core

    def _solve(self, facts: Iterable[str]) -> tuple[bool, list[int]]:
        from ortools.sat.python import cp_model

        self.model.clear_assumptions()
        self.model.add_assumptions([self.literals[f] for f in facts if f in self.literals])
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.catch_sigint_signal = False
        status = solver.solve(self.model)
        if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return True, []
        return False, list(solver.sufficient_assumptions_for_infeasibility())
