"""The integer program: which cell of one pipeline shape, and which layers on which slot.

A cell fixes degrees and options, so its layer costs are constants; exactly one cell is chosen, and
under its literal every stage's memory and every slot's time are linear in the layer counts.  The
program is exact: its optimum is the best plan among the given cells.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any

import numpy as np
from ortools.sat.python import cp_model

from meshplan.constraints.layout import Slot
from meshplan.constraints.pipeline import kind_counts
from meshplan.constraints.problem import Problem
from meshplan.scenarios.model_card import LayerKind
from meshplan.solver.bounds import most_in_time
from meshplan.solver.costs import CellCosts, StaticCosts, mtp_time_us
from meshplan.solver.found import InternalError
from meshplan.solver.progress import LimitReached
from meshplan.solver.shapes import Shape, least_layers, most_layers, mtp_slot
from meshplan.solver.space import fixed_slots
from meshplan.solver.time.step import STEP_OVERHEAD_US

_LARGEST = 1 << 40


@dataclass(frozen=True)
class Goal:
    """What the program minimises, within which limits.

    Attributes
    ----------
    minimise
        ``step`` or ``peak``.
    most_step
        For each cell the most step time, us.
    most_peak
        Most memory of any stage, quanta.
    least
        A proved lower bound of the objective.
    """

    minimise: str
    most_step: Sequence[int]
    most_peak: int
    least: int = 0


@dataclass(frozen=True)
class Answer:
    """Best cell (its position in the list) and slots; ``proved`` unless a limit stopped it."""

    cell: int
    slots: tuple[Slot, ...]
    objective: int
    bound: int
    proved: bool


def solve_program(
    problem: Problem,
    shape: Shape,
    costs: CellCosts,
    ga: Sequence[int],
    goal: Goal,
    time_limit_s: float,
) -> Answer | None:
    """Best cell and split for the goal, or None if no cell reaches it.

    Raises
    ------
    LimitReached
        If the time limit passed first.
    """
    return _Program(problem, shape, costs, ga, goal).solve(time_limit_s)


class _Program:
    def __init__(
        self, problem: Problem, shape: Shape, costs: CellCosts, ga: Sequence[int], goal: Goal
    ) -> None:
        self.problem, self.shape, self.costs, self.ga = problem, shape, costs, ga
        self.goal = goal
        self.model = cp_model.CpModel()
        self.kinds = problem.kinds
        self.fixed = fixed_slots(problem, shape.pp, shape.vpp)
        count = len(ga)
        self.chosen = [self.model.new_bool_var(f"cell{i}") for i in range(count)]
        self.model.add_exactly_one(self.chosen)
        self.layers: list[Any] = []
        self.most = self._most_on_a_rank()
        self.slot_kinds = self._fixed_kinds() if self.fixed is not None else self._free_kinds()
        #: Within the limit every time is; a smaller domain keeps sums of large batches in 64 bits.
        self.longest = max(0, int(max(goal.most_step)))
        self.step = self.model.new_int_var(0, self.longest, "step")
        self.peak = self.model.new_int_var(0, min(_LARGEST, goal.most_peak), "peak")
        self._post_time()
        self._post_memory()

    # -- layers --------------------------------------------------------------------------------

    def _fixed_kinds(self) -> list[dict[LayerKind, Any]]:
        assert self.fixed is not None
        counts = [kind_counts(self.problem.model, slot) for slot in self.fixed]
        return [{kind: c[kind] for kind in self.kinds} for c in counts]

    def _free_kinds(self) -> list[dict[LayerKind, Any]]:
        """Number of layers of each kind in each slot, from the layers of each rank."""
        pp, vpp, total = self.shape.pp, self.shape.vpp, self.problem.model.layers
        most = self.most
        chunks: list[list[Any]] = []
        for rank in range(pp):
            least = max(least_layers(self.shape, rank), total - (pp - 1) * most)
            if least > most:
                self.model.add_bool_or([])
                least = most
            n = self.model.new_int_var(least, most, f"n{rank}")
            self.layers.append(n)
            rows = [(k, *self.shape.chunks(rank, k)) for k in range(least, most + 1)]
            if vpp == 1:
                chunks.append([n])
                continue
            sizes = [self.model.new_int_var(0, most, "") for _ in range(vpp)]
            self.model.add_allowed_assignments([n, *sizes], rows)
            chunks.append(sizes)
        self.model.add(sum(self.layers) == total)
        counts = [chunks[rank][v] for v in range(vpp) for rank in range(pp)]
        if len(self.kinds) == 1:
            return [{self.kinds[0]: count} for count in counts]
        return self._kinds_by_cut(counts)

    def _most_on_a_rank(self) -> int:
        """Most layers of a rank within the time limit and the fewest of the others."""
        limits = np.array(self.goal.most_step, dtype=np.int64) - STEP_OVERHEAD_US
        budget = np.maximum(limits // np.array(self.ga, dtype=np.int64), 0)
        in_time = int(most_in_time(self.problem, self.costs, budget).max(initial=0))
        return max(0, min(most_layers(self.problem, self.shape), in_time))

    def _kinds_by_cut(self, counts: list[Any]) -> list[dict[LayerKind, Any]]:
        """Kinds in each slot follow from where it begins and ends."""
        total = self.problem.model.layers
        ends: list[Any] = []
        for cumulated in accumulate(counts[:-1]):
            end = self.model.new_int_var(0, total, "")
            self.model.add(end == cumulated)
            ends.append(end)
        ends.append(total)
        result: list[dict[LayerKind, Any]] = [{} for _ in counts]
        for kind in self.kinds[1:]:
            prefix = [0, *accumulate(int(k == kind) for k in self.problem.model.layer_kinds)]
            before: Any = 0
            for index, end in enumerate(ends):
                reached: Any = prefix[-1]
                if not isinstance(end, int):
                    reached = self.model.new_int_var(0, prefix[-1], "")
                    self.model.add_element(end, prefix, reached)
                result[index][kind] = reached - before
                before = reached
        for index, count in enumerate(counts):
            result[index][self.kinds[0]] = count - sum(result[index].values())
        return result

    def _weigh(self, values: dict[LayerKind, Any], cell: int, counts: dict[LayerKind, Any]) -> Any:
        return sum(int(values[kind][cell]) * n for kind, n in counts.items())

    # -- time ----------------------------------------------------------------------------------

    def _post_time(self) -> None:
        pp, vpp, model, costs = self.shape.pp, self.shape.vpp, self.model, self.costs
        # Bounds that the step time implies: with wider ones products may exceed 64 bits.
        micro_batch = self.longest // int(min(self.ga))
        chunks = [model.new_int_var(0, micro_batch, f"chunk{v}") for v in range(vpp)]
        bottleneck: Any = chunks[0]
        if vpp > 1:
            bottleneck = model.new_int_var(0, micro_batch, "bottleneck")
            model.add(bottleneck == sum(chunks))
        heaviest = model.new_int_var(0, micro_batch, "heaviest")
        exposed = model.new_int_var(0, self.longest, "exposed")
        most = self._most_layers()
        last = pp * vpp - 1
        mtp_us = mtp_time_us(self.problem, costs)
        mtp = mtp_slot(self.problem, self.shape)
        for cell, literal in enumerate(self.chosen):
            p2p = int(costs.p2p_us[cell])
            times = []
            for index, counts in enumerate(self.slot_kinds):
                time = self._weigh(costs.layer_us, cell, counts) + p2p
                if index == 0:
                    time = time + int(costs.first_us[cell])
                if index == last:
                    time = time + int(costs.loss_us[cell])
                if index == mtp:
                    time = time + int(mtp_us[cell])
                times.append(time)
                self._enforce(heaviest >= time, literal)
                self._enforce(chunks[index // pp] >= time, literal)
            # Redundant: each rank, and the mean rank, which no placement of the layers changes.
            for rank in range(pp if vpp > 1 else 0):
                self._enforce(bottleneck >= sum(times[rank::pp]), literal)
            whole = self._weigh(costs.layer_us, cell, self.problem.kind_counts)
            whole += int(costs.first_us[cell]) + int(costs.loss_us[cell]) + int(mtp_us[cell])
            whole += p2p * pp * vpp
            self._enforce(pp * bottleneck >= whole, literal)
            exchange = int(costs.exchange_us[cell]) * most + int(costs.exchange_ends_us[cell])
            optimizer = int(costs.optimizer_us[cell]) * most + int(costs.optimizer_ends_us[cell])
            self._enforce(10 * exposed >= 3 * exchange, literal)
            self._enforce(2 * exposed >= 2 * exchange - bottleneck, literal)
            step = int(self.ga[cell]) * bottleneck + (pp - 1) * heaviest + exposed + optimizer
            self._enforce(self.step >= step + STEP_OVERHEAD_US, literal)
            self._enforce(self.step <= int(self.goal.most_step[cell]), literal)

    def _most_layers(self) -> Any:
        if self.fixed is not None:
            pp = self.shape.pp
            return max(sum(s.count for s in self.fixed[r::pp]) for r in range(pp))
        most = self.model.new_int_var(0, self.problem.model.layers, "most")
        for n in self.layers:
            self.model.add(most >= n)
        return most

    def _enforce(self, constraint: Any, literal: Any) -> None:
        if isinstance(constraint, bool):
            if not constraint:
                self.model.add(literal == 0)
            return
        self.model.add(constraint).only_enforce_if(literal)

    # -- memory --------------------------------------------------------------------------------

    def _post_memory(self) -> None:
        """Memory of each stage at the schedule moments that are the worst for like layers."""
        for rank in range(self.shape.pp):
            for vector in self._likely_vectors(rank):
                self._post_moment(rank, vector)
            self._post_updates(rank)
            if self.problem.uses_host_memory:
                self._post_host(rank)

    def _likely_vectors(self, rank: int) -> Sequence[tuple[int, ...]]:
        """Live vectors that are the largest for some number of layers that are all alike."""
        if self.fixed is not None:
            return self.shape.moments(rank)
        return _largest_moments(self.shape, rank, self.most)

    def _post_moment(self, rank: int, vector: tuple[int, ...]) -> None:
        """The stage's memory at the schedule moment with these live micro-batches."""
        slots = self.slot_kinds[rank :: self.shape.pp]
        for cell, literal in enumerate(self.chosen):
            sizes = self._saved(rank, cell, slots)
            live = sum(c * size for c, size in zip(vector, sizes, strict=True) if c)
            base = self._resident(rank, cell, slots) + self._transient(rank, cell)
            self._enforce(self.peak >= base + live, literal)

    def _post_updates(self, rank: int) -> None:
        """The stage's memory while the optimizer updates a group of parameters."""
        slots = self.slot_kinds[rank :: self.shape.pp]
        for cell, literal in enumerate(self.chosen):
            for update in self.costs.updates:
                if self._is_less_than_backward(rank, cell, update):
                    continue
                held = self._held(update, rank, cell, slots)
                self._enforce(self.peak >= self._resident(rank, cell, slots) + held, literal)

    def _is_less_than_backward(self, rank: int, cell: int, update: StaticCosts) -> bool:
        """Whether the activations always need more than this part of the optimizer step."""
        costs = self.costs
        if not any(int(array[cell]) for array in update.vectors()):
            return True
        ends = self._held(update, rank, cell, ())
        return (
            any(min(vector) >= 1 for vector in self.shape.moments(rank))
            and all(update.layer[k][cell] <= costs.activation[k][cell] for k in self.kinds)
            and ends <= self._transient(rank, cell)
        )

    def _post_host(self, rank: int) -> None:
        """The stage's memory on the host."""
        slots = self.slot_kinds[rank :: self.shape.pp]
        most = max(max(vector) for vector in self.shape.moments(rank))
        card = self.problem.model
        for cell, literal in enumerate(self.chosen):
            host = self._held(self.costs.host, rank, cell, slots)
            for counts in slots:
                host = host + most * self._weigh(self.costs.offloaded, cell, counts)
            if self._holds_mtp(rank):
                each = int(self.costs.offloaded[card.mtp_kind][cell])
                host = host + most * card.mtp_layers * each
            self._enforce(host <= self.problem.host_capacity, literal)

    def _holds_mtp(self, rank: int) -> bool:
        holder = mtp_slot(self.problem, self.shape) % self.shape.pp
        return self.problem.model.mtp_layers > 0 and rank == holder

    def _held(
        self, static: StaticCosts, rank: int, cell: int, slots: Sequence[dict[LayerKind, Any]]
    ) -> Any:
        """A part of the parameters' memory of a stage."""
        layers: Any = sum(self._weigh(static.layer, cell, counts) for counts in slots)
        ends = static.of_rank(
            np.zeros_like(static.first),
            first=rank == 0,
            last=rank == self.shape.pp - 1,
            mtp=self._holds_mtp(rank),
        )
        return layers + int(ends[cell])

    def _resident(self, rank: int, cell: int, slots: Sequence[dict[LayerKind, Any]]) -> Any:
        """Memory of a stage that stays over the whole step."""
        return self._held(self.costs.static, rank, cell, slots) + int(self.costs.overhead[cell])

    def _transient(self, rank: int, cell: int) -> int:
        """What a layer, or the loss, needs while it runs."""
        working = int(self.costs.working[cell])
        return max(working, int(self.costs.loss[cell])) if rank == self.shape.pp - 1 else working

    def _saved(self, rank: int, cell: int, slots: Sequence[dict[LayerKind, Any]]) -> list[Any]:
        """Activations of each chunk of a stage."""
        costs, card = self.costs, self.problem.model
        sizes = [self._weigh(costs.activation, cell, counts) for counts in slots]
        if self._holds_mtp(rank):
            chunk = mtp_slot(self.problem, self.shape) // self.shape.pp
            mtp = card.mtp_layers * int(costs.activation[card.mtp_kind][cell])
            sizes[chunk] = sizes[chunk] + mtp
        return sizes

    def _overlooked(
        self, solver: cp_model.CpSolver, cell: int
    ) -> list[tuple[int, tuple[int, ...]]]:
        """Moments not posted yet at which a stage needs more than the solution's peak."""
        peak, pp = solver.value(self.peak), self.shape.pp
        found = []
        for rank in range(pp):
            slots = [
                {k: n if isinstance(n, int) else solver.value(n) for k, n in counts.items()}
                for counts in self.slot_kinds[rank::pp]
            ]
            sizes = self._saved(rank, cell, slots)
            base = self._resident(rank, cell, slots) + self._transient(rank, cell)
            vectors = self.shape.moments(rank)
            worst = max(vectors, key=lambda x, s=sizes: _dot(x, s))  # type: ignore[misc]
            if base + _dot(worst, sizes) > peak:
                found.append((rank, worst))
        return found

    # -- solve ---------------------------------------------------------------------------------

    def solve(self, time_limit_s: float) -> Answer | None:
        """Solve, adding schedule moments that turn out to matter until none does."""
        objective = self.step if self.goal.minimise == "step" else self.peak
        self.model.add(objective >= self.goal.least)
        self.model.minimize(objective)
        deadline = time.monotonic() + time_limit_s
        while True:
            solver = _solver(deadline - time.monotonic())
            status = solver.solve(self.model)
            if status == cp_model.INFEASIBLE:
                return None
            if status == cp_model.MODEL_INVALID:
                raise InternalError(f"CP-SAT refuses the program: {self.model.validate()}")
            if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
                raise LimitReached
            cell = next(i for i, literal in enumerate(self.chosen) if solver.boolean_value(literal))
            moments = self._overlooked(solver, cell)
            if not moments:
                return self._answer(solver, cell, proved=status == cp_model.OPTIMAL)
            for rank, vector in moments:
                self._post_moment(rank, vector)

    def _answer(self, solver: cp_model.CpSolver, cell: int, *, proved: bool) -> Answer:
        slots = self.fixed
        if slots is None:
            slots = self.shape.slots(
                [solver.value(n) for n in self.layers], mtp=self.problem.model.mtp_layers > 0
            )
        return Answer(
            cell=cell,
            slots=slots,
            objective=round(solver.objective_value),
            bound=round(solver.best_objective_bound),
            proved=proved,
        )


@lru_cache(maxsize=65536)
def _largest_moments(shape: Shape, rank: int, most: int) -> tuple[tuple[int, ...], ...]:
    """Live vectors that are the largest for some number of like layers up to ``most``."""
    vectors = shape.moments(rank)
    sizes = [shape.chunks(rank, n) for n in range(most + 1)]
    return tuple(sorted({max(vectors, key=lambda x, c=chunks: _dot(x, c)) for chunks in sizes}))  # type: ignore[misc]


def _solver(time_limit_s: float) -> cp_model.CpSolver:
    """One deterministic worker: programs are small, and the same input gives the same plan."""
    if time_limit_s <= 0:
        raise LimitReached
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    # Measured on the seed scenarios: for programs of this size long presolve costs more than it
    # saves; without the linear relaxation some programs take seconds.
    solver.parameters.cp_model_probing_level = 0
    solver.parameters.symmetry_level = 0
    solver.parameters.max_presolve_iterations = 1
    solver.parameters.max_time_in_seconds = time_limit_s
    solver.parameters.catch_sigint_signal = False  # Python turns Ctrl-C into an exception
    return solver


def _dot(a: Sequence[int], b: Sequence[int]) -> int:
    return sum(x * y for x, y in zip(a, b, strict=True))


__all__ = ["Answer", "Goal", "LimitReached", "Shape", "solve_program"]
