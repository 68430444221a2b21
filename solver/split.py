"""The best real pipeline split for fixed degrees and options: an exact, small integer program.

Layers per pipeline rank are free; a rank spreads its layers over its chunks so that they differ
by one at most.  All costs are constants here, so memory and time are linear in the number of
layers of each kind in each slot, which follow from the cut points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from ortools.sat.python import cp_model

from meshplan.constraints.layout import Layout, Slot
from meshplan.constraints.memory.stage import layer_activation, rank_memory
from meshplan.constraints.pipeline import chunk_counts, slots_from_rank_counts
from meshplan.constraints.problem import Problem
from meshplan.constraints.schedule import live_chunks
from meshplan.scenarios.model_card import LayerKind
from meshplan.solver.judge import cost
from meshplan.solver.time.step import STEP_OVERHEAD_US, layer_us, slot_us, step_time


@dataclass(frozen=True)
class SplitGoal:
    """What the split must achieve, and what it should make small.

    Attributes
    ----------
    minimise
        ``step`` or ``peak``.
    most_step_us, most_peak
        Upper limits, or None.
    stop_at
        A proved lower bound: a split that reaches it is optimal.
    """

    minimise: str
    most_step_us: int | None
    most_peak: int | None
    stop_at: int = 0


def best_split(
    problem: Problem, layout: Layout, goal: SplitGoal, time_limit_s: float
) -> tuple[Layout, bool] | None:
    """Layout with the best slots for the goal, and whether that is proved; None if none fits.

    Raises
    ------
    TimeoutError
        If the limit passed before any split was found or excluded.
    """
    even = replace(layout, slots=_even(problem, layout))
    if _reaches(problem, even, goal):
        return even, True
    if layout.pp == 1:
        return (even, True) if _meets(problem, even, goal) else None
    return _Split(problem, layout, goal).solve(time_limit_s)


def _even(problem: Problem, layout: Layout) -> tuple[Slot, ...]:
    base, extra = divmod(problem.model.layers, layout.pp)
    middle = range(layout.pp - 1 - extra, layout.pp - 1)
    counts = [base + (rank in middle) for rank in range(layout.pp)]
    return slots_from_rank_counts(counts, layout.vpp)


def _meets(problem: Problem, layout: Layout, goal: SplitGoal) -> bool:
    found = cost(problem, layout)
    return (goal.most_step_us is None or found.time.step_us <= goal.most_step_us) and (
        goal.most_peak is None or found.peak <= goal.most_peak
    )


def _reaches(problem: Problem, layout: Layout, goal: SplitGoal) -> bool:
    if not _meets(problem, layout, goal):
        return False
    found = cost(problem, layout)
    value = found.time.step_us if goal.minimise == "step" else found.peak
    return value <= goal.stop_at


class _Split:
    """One split program: variables are the layers of each rank."""

    def __init__(self, problem: Problem, layout: Layout, goal: SplitGoal) -> None:
        self.problem, self.layout, self.goal = problem, layout, goal
        self.model = cp_model.CpModel()
        self.kinds = problem.kinds
        # A layout with nothing in any slot but E, m and L gives the fixed part of every cost.
        pp, vpp = layout.pp, layout.vpp
        self.bare = replace(layout, slots=slots_from_rank_counts([0] * pp, vpp))
        self.layers = [
            self.model.new_int_var(0, problem.model.layers, f"n{r}") for r in range(pp)
        ]
        self.model.add(sum(self.layers) == problem.model.layers)
        self.slot_kinds = self._slot_kinds()
        self.step = self._time()
        self.peak = self._memory()

    def _slot_kinds(self) -> list[dict[LayerKind, Any]]:
        """Number of layers of each kind in each slot, from the cut points."""
        pp, vpp, total = self.layout.pp, self.layout.vpp, self.problem.model.layers
        chunks: list[list[Any]] = []
        for rank in range(pp):
            sizes = [self.model.new_int_var(0, total, "") for _ in range(vpp)]
            rows = [
                (n, *chunk_counts(n, vpp, last_rank=rank == pp - 1)) for n in range(total + 1)
            ]
            self.model.add_allowed_assignments([self.layers[rank], *sizes], rows)
            chunks.append(sizes)
        counts = [chunks[rank][v] for v in range(vpp) for rank in range(pp)]
        if len(self.kinds) == 1:
            return [{self.kinds[0]: count} for count in counts]
        ends = []
        for cumulated in accumulate(counts):
            end = self.model.new_int_var(0, total, "")
            self.model.add(end == cumulated)
            ends.append(end)
        result: list[dict[LayerKind, Any]] = [{} for _ in counts]
        for kind in self.kinds:
            prefix = [0, *accumulate(int(k == kind) for k in self.problem.model.layer_kinds)]
            before: Any = 0
            for index, end in enumerate(ends):
                reached = self.model.new_int_var(0, prefix[-1], "")
                self.model.add_element(end, prefix, reached)
                result[index][kind] = reached - before
                before = reached
        return result

    def _time(self) -> Any:
        problem, layout, model = self.problem, self.layout, self.model
        pp = layout.pp
        per_layer = {kind: layer_us(problem, layout, kind) for kind in self.kinds}
        zero = step_time(problem, self.bare)
        p2p = zero.rank_us[0] - sum(slot_us(problem, layout, s) for s in self.bare.slots[0::pp])
        p2p //= layout.vpp
        most = 1 << 50
        bottleneck = model.new_int_var(0, most, "bottleneck")
        heaviest = model.new_int_var(0, most, "slot")
        times = []
        for slot, counts in zip(self.bare.slots, self.slot_kinds, strict=True):
            time = slot_us(problem, layout, slot) + p2p
            time = time + sum(per_layer[kind] * count for kind, count in counts.items())
            model.add(heaviest >= time)
            times.append(time)
        for rank in range(pp):
            model.add(bottleneck >= sum(times[rank::pp]))
        most_layers = model.new_int_var(0, problem.model.layers, "most")
        for count in self.layers:
            model.add(most_layers >= count)
        exchange, optimizer = self._update(most_layers)
        exposed = model.new_int_var(0, most, "exposed")
        model.add(10 * exposed >= 3 * exchange)
        model.add(2 * exposed >= 2 * exchange - bottleneck)
        return (
            layout.ga * bottleneck
            + (pp - 1) * heaviest
            + exposed
            + optimizer
            + STEP_OVERHEAD_US
        )

    def _update(self, most_layers: Any) -> tuple[Any, Any]:
        """Exchange and optimizer time as functions of the most layers on a rank."""
        from meshplan.constraints.terms import evaluate
        from meshplan.solver.time import step, update

        problem, layout = self.problem, self.layout
        exchange = max(step.layer_exchange_us(problem, layout, k) for k in self.kinds)
        optimizer = max(step.layer_optimizer_us(problem, layout, k) for k in self.kinds)
        fixed_exchange = evaluate(update.ends_exchange_us, problem, layout)
        fixed_exchange = fixed_exchange + evaluate(update.mtp_expert_exchange_us, problem, layout)
        fixed_optimizer = evaluate(update.ends_optimizer_us, problem, layout)
        fixed_optimizer = fixed_optimizer + evaluate(update.mtp_expert_optimizer_us, problem, layout)
        return exchange * most_layers + fixed_exchange, optimizer * most_layers + fixed_optimizer

    def _memory(self) -> Any:
        problem, layout, model = self.problem, self.layout, self.model
        pp, vpp = layout.pp, layout.vpp
        activation = {kind: layer_activation(problem, layout, kind) for kind in self.kinds}
        static = {kind: self._static(kind) for kind in self.kinds}
        peak = model.new_int_var(0, 1 << 40, "peak")
        for rank in range(pp):
            bare = rank_memory(problem, self.bare, rank)
            slots = self.slot_kinds[rank::pp]
            total = bare.peak - bare.activations
            total = total + sum(static[k] * n for counts in slots for k, n in counts.items())
            mtp = 0
            if rank == pp - 1 and problem.model.mtp_layers:
                mtp = problem.model.mtp_layers * activation[problem.model.mtp_kind]
            sizes = [sum(activation[k] * n for k, n in counts.items()) for counts in slots]
            sizes[-1] += mtp
            for vector in live_chunks(pp, vpp, layout.ga, rank):
                live = sum(c * size for c, size in zip(vector, sizes, strict=True) if c)
                model.add(peak >= total + live)
        return peak

    def _static(self, kind: LayerKind) -> int:
        """Static memory that one more layer of ``kind`` adds to a rank."""
        from meshplan.constraints.memory.static import STATIC_PARTS, dense_static, expert_static
        from meshplan.constraints.terms import evaluate

        return sum(
            evaluate(term, self.problem, self.layout, part=part, kind=kind)
            for term in (dense_static, expert_static)
            for part in STATIC_PARTS
        )

    def solve(self, time_limit_s: float) -> tuple[Layout, bool] | None:
        """Solve for the goal."""
        goal, model = self.goal, self.model
        if goal.most_step_us is not None:
            model.add(self.step <= goal.most_step_us)
        if goal.most_peak is not None:
            model.add(self.peak <= goal.most_peak)
        objective = self.step if goal.minimise == "step" else self.peak
        model.add(objective >= goal.stop_at)
        model.minimize(objective)
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.max_time_in_seconds = max(0.01, time_limit_s)
        status = solver.solve(model)
        if status == cp_model.INFEASIBLE:
            return None
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            raise TimeoutError("no pipeline split found within the time limit")
        counts: Sequence[int] = [solver.value(n) for n in self.layers]
        slots = slots_from_rank_counts(counts, self.layout.vpp)
        return replace(self.layout, slots=slots), status == cp_model.OPTIMAL
