"""The integer program over degrees, options and layers per pipeline rank, for one pipeline degree.

Everything that does not depend on where each layer lies is exact.  How a rank's layers fall into
kinds (dense, MoE, attention kinds) is relaxed, so the program bounds every split from below;
:mod:`meshplan.solver.split` finds the best real split for its answer.

No products of variables: a rank's layers are order-encoded (one literal for "at least j"), and
under these literals, the chosen schedule and the number of first dense layers, memory and time
are linear in the tabulated costs of one layer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ortools.sat.python import cp_model

from meshplan.constraints.decisions import DECISIONS
from meshplan.constraints.layout import Slot, Value
from meshplan.constraints.pipeline import chunk_counts, kind_counts, rank_slots
from meshplan.constraints.problem import Problem
from meshplan.constraints.rule import Rule
from meshplan.constraints.schedule import live_chunks
from meshplan.scenarios.model_card import LayerKind
from meshplan.solver.layer_costs import LARGEST, LONGEST_US, LayerCosts
from meshplan.solver.meshes import MESH, MeshTable
from meshplan.solver.tables import Decisions, Expression, Variable, decode
from meshplan.solver.time.step import STEP_OVERHEAD_US
from meshplan.solver.windows import prefix_kind, rank_kind_range


def live_class(pp: int, vpp: int, ga: int) -> int:
    """Micro-batches a step beyond which the live sets of all ranks stay the same."""
    return min(ga, 2 * pp if vpp > 1 else pp)


@dataclass
class Master:
    """One program: its variables by name, ready to be given an objective and solved."""

    problem: Problem
    pp: int
    model: cp_model.CpModel
    decisions: Decisions
    step_us: Expression = 0
    per_sample: Expression = 0
    peak: Expression = 0
    rank_layers: list[Expression] = field(default_factory=list)

    def values(self, solver: cp_model.CpSolver) -> dict[str, Value]:
        """Values of all decisions in a solution."""
        return {name: self._value(solver, name) for name in DECISIONS}

    def _value(self, solver: cp_model.CpSolver, name: str) -> Value:
        expression = self.decisions.expression(name)
        return decode(name, expression if isinstance(expression, int) else solver.value(expression))

    def exclude(self, values: dict[str, Value], bound: Any = None) -> None:
        """Forbid these decisions together, or let them pass only if ``bound`` holds.

        ``bound`` is a linear constraint that every split for these decisions obeys.
        """
        clause: list[Any] = []
        for name in DECISIONS:
            expression = self.decisions.expression(name)
            if isinstance(expression, int):
                continue
            differs = self.model.new_bool_var("")
            code = self.decisions.code(name, values[name])
            self.model.add(expression != code).only_enforce_if(differs)
            clause.append(differs)
        if bound is not None:
            holds = self.model.new_bool_var("")
            self.model.add(bound).only_enforce_if(holds)
            clause.append(holds)
        self.model.add_bool_or(clause)


def build_master(
    problem: Problem,
    meshes: MeshTable,
    vpp: Sequence[int],
    option_domains: dict[str, tuple[Value, ...]],
    rules: Iterable[Rule],
    *,
    fixed_slots: dict[int, tuple[Slot, ...]] | None = None,
    capacity: int | None = None,
) -> Master:
    """Build the program for one pipeline degree.

    Parameters
    ----------
    vpp
        Virtual pipeline degrees that may be chosen.
    fixed_slots
        For each of them the slots, if the scenario fixes the split.
    capacity
        Memory of each rank in quanta, or None for no limit (diagnosis).
    """
    model = cp_model.CpModel()
    decisions = Decisions(model, problem, meshes, vpp, option_domains, rules)
    master = Master(problem, meshes.pp, model, decisions)
    builder = _Builder(master, fixed_slots)
    builder.layers()
    builder.memory(capacity)
    builder.time()
    return master


@dataclass(frozen=True)
class _Holding:
    """What a pipeline rank may hold, under the literals that say so.

    ``counts`` gives for each kind but the main one the least and most layers in each chunk.
    """

    literals: tuple[Any, ...]
    chunks: tuple[int, ...]
    counts: dict[LayerKind, tuple[tuple[int, int], ...]]

    def total(self, kind: LayerKind) -> tuple[int, int]:
        """Least and most layers of a kind on the whole rank."""
        ranges = self.counts[kind]
        return sum(low for low, _ in ranges), sum(high for _, high in ranges)


class _Builder:
    """Posts the constraints of one program, part by part."""

    def __init__(self, master: Master, fixed_slots: dict[int, tuple[Slot, ...]] | None) -> None:
        self.master = master
        self.problem = master.problem
        self.card = master.problem.model
        self.model = master.model
        self.decisions = master.decisions
        self.pp = master.pp
        self.fixed = fixed_slots
        self.counts = self.card.kind_counts
        self.main: LayerKind = max(self.problem.kinds, key=lambda kind: self.counts[kind])
        self.others = tuple(kind for kind in self.problem.kinds if kind != self.main)
        self.prefix = prefix_kind(self.card.layer_kinds) if fixed_slots is None else None
        self.costs = LayerCosts(self.decisions, self.problem, self.main)
        self.at_least: list[list[Variable]] = []
        self.prefix_is: list[list[Any]] = []
        self.states: list[tuple[int, int]] = []
        self.state_literals: list[Any] = []

    # -- layers --------------------------------------------------------------------------------

    def layers(self) -> None:
        """Decoder layers of each rank, order-encoded, and the chosen schedule."""
        self._schedule()
        if self.fixed is not None:
            return
        total = self.card.layers
        for rank in range(self.pp):
            n = self.model.new_int_var(0, total, f"n{rank}")
            literals = [self.model.new_bool_var(f"n{rank}>={j}") for j in range(1, total + 1)]
            for j, literal in enumerate(literals, start=1):
                self.model.add(n <= j - 1).only_enforce_if(literal.negated())
            for lower, higher in zip(literals, literals[1:], strict=False):
                self.model.add_implication(higher, lower)
            self.master.rank_layers.append(n)
            self.at_least.append(literals)
        self.model.add(sum(self.master.rank_layers) == total)
        self._no_empty_slots()
        self._prefix_layers()

    def _schedule(self) -> None:
        """One literal for each (vpp, live class) that the decisions allow."""
        vpp, ga = self.decisions.expression("vpp"), self.decisions.expression("ga")
        pairs = {
            (int(v), int(g)): (int(v), live_class(self.pp, int(v), int(g)))
            for v in self.decisions.domains["vpp"]
            for g in self.decisions.domains["ga"]
        }
        self.states = sorted(set(pairs.values()))
        if len(self.states) == 1:
            self.state_literals = [True]
            return
        index = self.model.new_int_var(0, len(self.states) - 1, "schedule")
        rows = [(v, g, self.states.index(state)) for (v, g), state in pairs.items()]
        self._allow([vpp, ga, index], rows)
        self.state_literals = self._literals(index, range(len(self.states)))

    def _literals(self, variable: Variable, values: Iterable[int]) -> list[Any]:
        """One literal for each value of a variable, exactly one of them true."""
        literals = []
        for value in values:
            literal = self.model.new_bool_var("")
            self.model.add(variable == value).only_enforce_if(literal)
            literals.append(literal)
        self.model.add_exactly_one(literals)
        return literals

    def _no_empty_slots(self) -> None:
        """Every slot holds a layer, but the first and the last may hold only E or L."""
        if self.pp == 1:
            return
        vpp = self.decisions.expression("vpp")
        for rank, n in enumerate(self.master.rank_layers):
            self.model.add(n >= vpp - (rank in (0, self.pp - 1)))

    def _prefix_layers(self) -> None:
        """How many of the first, dense layers lie on each rank."""
        if self.prefix is None:
            return
        _, count = self.prefix
        # Slots 1, 2, ... are not empty, so the prefix ends on rank `count` at the latest.
        variables = []
        for rank in range(min(self.pp, count + 1)):
            variable = self.model.new_int_var(0, count, f"prefix{rank}")
            self.model.add(variable <= self.master.rank_layers[rank])
            variables.append(variable)
            self.prefix_is.append(self._literals(variable, range(count + 1)))
        self.model.add(sum(variables) == count)

    def _allow(self, expressions: Sequence[Expression], rows: Sequence[tuple[int, ...]]) -> None:
        """Allowed assignments over variables and constants."""
        keep = [i for i, e in enumerate(expressions) if not isinstance(e, int)]
        legal = [
            row
            for row in rows
            if all(row[i] == e for i, e in enumerate(expressions) if isinstance(e, int))
        ]
        if keep:
            self.model.add_allowed_assignments(
                [expressions[i] for i in keep], sorted({tuple(r[i] for i in keep) for r in legal})
            )

    def _holdings(self, rank: int, vpp: int) -> list[_Holding]:
        """What a rank may hold with this vpp: one alternative for each literal combination."""
        if self.fixed is not None:
            slots = rank_slots(self.fixed[vpp], self.pp, rank)
            kinds = [kind_counts(self.card, slot) for slot in slots]
            counts = {k: tuple((c[k], c[k]) for c in kinds) for k in self.others}
            return [_Holding((), tuple(slot.count for slot in slots), counts)]
        holdings = []
        last = rank == self.pp - 1
        spare = 0 if self.pp == 1 else (vpp - 1) * (self.pp - 2)
        for j in range(self.card.layers - spare + 1):
            chunks = chunk_counts(j, vpp, last_rank=last)
            literals = (self.at_least[rank][j - 1],) if j else ()
            counts = {
                kind: rank_kind_range(self.card.layer_kinds, kind, chunks, self.pp, rank)
                for kind in self.others
            }
            holdings += self._with_prefix(rank, j, _Holding(literals, chunks, counts))
        return holdings

    def _with_prefix(self, rank: int, j: int, holding: _Holding) -> list[_Holding]:
        """Split a holding by the number of prefix layers on the rank."""
        if self.prefix is None:
            return [holding]
        kind, count = self.prefix
        empty = tuple((0, 0) for _ in holding.chunks)
        if rank >= len(self.prefix_is):
            return [_Holding(holding.literals, holding.chunks, holding.counts | {kind: empty})]
        split = []
        first_chunk_only = self.pp - 1 >= count or len(holding.chunks) == 1
        for i, literal in enumerate(self.prefix_is[rank][: min(j, count) + 1]):
            if first_chunk_only:
                ranges = ((i, i), *empty[1:])
            else:  # somewhere in the first chunks; never fewer in all than i
                ranges = tuple((0, i) for _ in holding.chunks) if i else empty
            counts = holding.counts | {kind: ranges}
            split.append(_Holding((*holding.literals, literal), holding.chunks, counts))
        return split

    # -- memory --------------------------------------------------------------------------------

    def memory(self, capacity: int | None) -> None:
        """Peak memory of each rank, at most ``capacity``; ``peak`` bounds all of them."""
        costs = self.costs
        most = LARGEST if capacity is None else capacity
        peak = self.model.new_int_var(0, most, "peak")
        self.master.peak = peak
        common = costs.overhead(self.pp)
        working = costs.working()
        for rank in range(self.pp):
            base = common
            if rank == 0:
                base = base + costs.embedding
            transient = [working]
            if rank == self.pp - 1:
                base = base + costs.last_static
                transient.append(costs.loss)
            room = self.model.new_int_var(0, most, f"room{rank}")
            for extra in transient:
                self.model.add(room + base + extra <= peak)
            for (vpp, level), state in zip(self.states, self.state_literals, strict=True):
                vectors = live_chunks(self.pp, vpp, level, rank)
                for holding in self._holdings(rank, vpp):
                    self._hold(rank, room, state, holding, vectors)

    def _hold(
        self,
        rank: int,
        room: Variable,
        state: Any,
        holding: _Holding,
        vectors: Sequence[tuple[int, ...]],
    ) -> None:
        """Under its literals, a holding's static memory and live activations fit in ``room``."""
        costs = self.costs
        static = sum(holding.chunks) * costs.static[self.main]
        for kind in self.others:
            static = static + costs.correction("static", kind, *holding.total(kind))
        exact = all(low == high for r in holding.counts.values() for low, high in r)
        if not (exact and self.others):
            # All layers alike: one vector is the largest.
            vectors = [max(vectors, key=lambda x: _dot(x, holding.chunks))]
        mtp = self.card.mtp_layers if rank == self.pp - 1 else 0
        for vector in vectors:
            live = _dot(vector, holding.chunks) * costs.activation[self.main]
            for kind in self.others:
                low = sum(x * r[0] for x, r in zip(vector, holding.counts[kind], strict=True))
                high = sum(x * r[1] for x, r in zip(vector, holding.counts[kind], strict=True))
                live = live + costs.correction("activation", kind, low, high)
            if mtp:
                live = live + mtp * vector[-1] * costs.activation[self.card.mtp_kind]
            self._enforce(static + live <= room, (*holding.literals, state))

    def _enforce(self, constraint: Any, literals: Sequence[Any]) -> None:
        free = [literal for literal in literals if literal is not True]
        if isinstance(constraint, bool):
            if not constraint:
                self.model.add_bool_or([literal.negated() for literal in free])
            return
        posted = self.model.add(constraint)
        if free:
            posted.only_enforce_if(free)

    # -- time ----------------------------------------------------------------------------------

    def time(self) -> None:
        """Step time, and the time per sample that the objective minimises."""
        costs, model = self.costs, self.model
        bottleneck = model.new_int_var(0, LONGEST_US, "bottleneck")
        slot = model.new_int_var(0, LONGEST_US, "slot")
        step = model.new_int_var(0, LONGEST_US, "step")
        self.master.step_us = step
        states = sorted({vpp for vpp, _ in self.states})
        vpp_literals = self._vpp_literals(states)
        p2p = costs.p2p_slot
        for rank in range(self.pp):
            ends = (costs.embedding_us if rank == 0 else 0) + (
                costs.last_us if rank == self.pp - 1 else 0
            )
            for vpp, literal in zip(states, vpp_literals, strict=True):
                for holding in self._holdings(rank, vpp):
                    total = sum(holding.chunks) * costs.layer_us[self.main] + vpp * p2p + ends
                    for kind in self.others:
                        total = total + costs.correction("layer_us", kind, *holding.total(kind))
                    self._enforce(bottleneck >= total, (*holding.literals, literal))
        whole = sum(self.counts[kind] * costs.layer_us[kind] for kind in self.problem.kinds)
        whole = whole + costs.embedding_us + costs.last_us
        for vpp, literal in zip(states, vpp_literals, strict=True):
            self._enforce(self.pp * bottleneck >= whole + self.pp * vpp * p2p, (literal,))
            self._enforce(vpp * slot >= bottleneck, (literal,))
        model.add(slot >= costs.last_us + p2p)
        most = self._most_layers(states, vpp_literals, slot)
        update = costs.update(most, bottleneck)
        fixed = (self.pp - 1) * slot + STEP_OVERHEAD_US
        for ga, literal in self._values("ga"):
            self._enforce(step >= ga * bottleneck + fixed + update, (literal,))
        self._mesh_bounds(step)
        self._per_sample()

    def _vpp_literals(self, states: Sequence[int]) -> list[Any]:
        return [dict(self._values("vpp"))[vpp] for vpp in states]

    def _values(self, name: str) -> list[tuple[int, Any]]:
        """Values of a decision, each with a literal."""
        values = [int(v) for v in self.decisions.domains[name]]
        if len(values) == 1:
            return [(values[0], True)]
        if name not in self._cached:
            variable = self.decisions.expression(name)
            self._cached[name] = self._literals(variable, values)
        return list(zip(values, self._cached[name], strict=True))

    @property
    def _cached(self) -> dict[str, list[Any]]:
        return self.__dict__.setdefault("_value_literals", {})  # type: ignore[no-any-return]

    def _most_layers(
        self, states: Sequence[int], vpp_literals: Sequence[Any], slot: Variable
    ) -> Expression:
        """Most layers on a rank, and the slot time that follows from them."""
        total, costs = self.card.layers, self.costs
        if self.fixed is not None:
            most = {
                v: max(sum(s.count for s in slots[r :: self.pp]) for r in range(self.pp))
                for v, slots in self.fixed.items()
            }
            heaviest = {v: max(s.count for s in slots) for v, slots in self.fixed.items()}
            variable = self.model.new_int_var(0, total, "most")
            for vpp, literal in zip(states, vpp_literals, strict=True):
                self._enforce(variable == most[vpp], (literal,))
                bound = heaviest[vpp] * costs.least_layer_us() + costs.p2p_slot
                self._enforce(slot >= bound, (literal,))
            return self._order(variable, total)
        most_layers = self.model.new_int_var(-(-total // self.pp), total, "most")
        for n in self.master.rank_layers:
            self.model.add(most_layers >= n)
        order = self._order(most_layers, total)
        for vpp, literal in zip(states, vpp_literals, strict=True):
            for j in range(-(-total // self.pp), total + 1):
                bound = -(-j // vpp) * costs.least_layer_us() + costs.p2p_slot
                self._enforce(slot >= bound, (order[j - 1], literal))
        return order

    def _order(self, variable: Variable, most: int) -> list[Any]:
        """Literals "at least j" of a variable, j from 1."""
        literals = [self.model.new_bool_var("") for _ in range(most)]
        for j, literal in enumerate(literals, start=1):
            self.model.add(variable <= j - 1).only_enforce_if(literal.negated())
        for lower, higher in zip(literals, literals[1:], strict=False):
            self.model.add_implication(higher, lower)
        return literals

    def _mesh_bounds(self, step: Variable) -> None:
        """Redundant: for each row of degrees, the least step time over all options."""
        free = [n for n in MESH if not isinstance(self.decisions.expression(n), int)]
        if not free:
            return
        columns = [MESH.index(name) for name in free]
        least: dict[tuple[int, ...], int] = {}
        for row in self.decisions.meshes.rows:
            named = dict(zip(MESH, row, strict=True))
            key = tuple(row[c] for c in columns)
            least[key] = self.costs.least_step_us(named, self.pp)
        bound = self.model.new_int_var(min(least.values()), max(least.values()), "least_step")
        rows = [(*key, value) for key, value in sorted(least.items())]
        variables = [self.decisions.expression(name) for name in free]
        self.model.add_allowed_assignments([*variables, bound], rows)
        self.model.add(step >= bound)

    def _per_sample(self) -> None:
        """Step time scaled to the largest batch, so that batches of different size compare."""
        sizes = self._values("gbs")
        if len(sizes) == 1:
            self.master.per_sample = self.master.step_us
            return
        largest = max(size for size, _ in sizes)
        value = self.model.new_int_var(0, LONGEST_US, "per_sample")
        for size, literal in sizes:
            self._enforce(size * value >= largest * self.master.step_us, (literal,))
        self.master.per_sample = value


def _dot(a: Sequence[int], b: Sequence[int]) -> int:
    return sum(x * y for x, y in zip(a, b, strict=True))


__all__ = ["Master", "build_master", "live_class"]
