"""Tiny scenarios without a layout, and whether one fits, by trying every one."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping

from meshplan.constraints.problem import QUANTA_PER_GIB, Problem
from meshplan.constraints.resolve import resolve
from meshplan.scenarios import from_mapping
from meshplan.scenarios.errors import InputError
from meshplan.solver.changed import asked_value, changed_problem
from meshplan.solver.repairs.results import Change
from meshplan.solver.repairs.trials import Trials
from tests.solver.oracle import TooLarge, tried
from tests.solver.small import draw

#: Layouts of a toy, and of a changed one, at most, that are tried one by one.
MOST_LAYOUTS, MOST_CHANGED = 1_000, 8_000
#: Neighbours of a step that are tried.
MOST_NEIGHBOURS = 6


class Toy:
    """A tiny scenario without a layout: its rules clash, or its GPUs are made too small."""

    def __init__(self, seed: int) -> None:
        data = draw(seed)
        data["limits"] |= {"memory_headroom": 0.08}
        self.problem = resolve(from_mapping(data))
        self.rng = random.Random(seed)
        layouts = tried(self.problem, MOST_LAYOUTS)
        self.figures: dict[str, object] = {}
        if layouts:
            least = min(one.peak for one in layouts) / QUANTA_PER_GIB / 0.92
            share = self.rng.choice([0.5, 0.9, 0.97])
            self.figures = {"node_type.hbm_gib": round(least * share, 3)}
        self.trials = Trials(self.problem, fixed=self.figures)

    def fits(self, values: Mapping[str, object]) -> bool | None:
        """Whether some layout fits with these changes, by trying every one.

        None if a scenario may not have them, or there are too many layouts.
        """
        try:
            changed = changed_problem(self.problem, {**self.figures, **values})
            layouts = tried(changed, MOST_CHANGED)
        except (InputError, TooLarge):
            return None
        host = changed.host_capacity if changed.uses_host_memory else math.inf
        return any(one.peak <= changed.capacity and one.host <= host for one in layouts)

    def smaller(self, change: Change) -> list[dict[str, object]]:
        """Some of the steps that are smaller than a change, the nearest to it first."""
        steps = list(_between(self.problem, change))
        beyond = self.rng.sample(steps[3:], min(len(steps[3:]), MOST_NEIGHBOURS - 3))
        return [{change.path: value} for value in (*steps[:3], *beyond)]


def _between(problem: Problem, change: Change) -> Iterator[object]:
    """Values of a field between that of a change and the present one."""
    after = change.after
    if change.path in ("workload.seq_len", "workload.global_batch_size"):
        assert isinstance(after, int)
        allowed = [int(size) for size in problem.candidates["gbs"]]
        now = [problem.seq_len] if change.path == "workload.seq_len" else allowed
        distance = min(abs(after - one) for one in now)
        near = (n for n in range(1, 2 * max(now)) if min(abs(n - one) for one in now) < distance)
        lengths = [n for n in near if n < problem.seq_len or change.path != "workload.seq_len"]
        yield from sorted(lengths, key=lambda n: (-min(abs(n - one) for one in now), n))
    elif change.path.startswith("layout.") and isinstance(after, int):
        held = problem.pinned[change.path.removeprefix("layout.")]

        def ratio(value: int) -> float:
            return min(max(value / int(one), int(one) / value) for one in held)

        powers = [1 << i for i in range(6)]
        nearer = [value for value in powers if ratio(value) < ratio(after) - 1e-9]
        yield from sorted(nearer, key=ratio, reverse=True)
    elif change.path == "cluster.gpus":
        assert isinstance(after, int)
        yield from range(after - 1, problem.gpus, -1)
    elif change.path.startswith("node_type."):
        assert isinstance(after, int)
        yield from range(after - 1, int(_number(change.before)), -1)
    elif change.path == "limits.memory_headroom":
        assert isinstance(after, float)
        yield round(after + 0.01, 2)
    elif change.path == "limits.min_dp":
        assert isinstance(after, int)
        yield from range(after + 1, int(asked_value(problem, change.path)))
    elif change.path == "options.optimizer_offload":
        assert isinstance(after, float)
        yield from (quarter / 4 for quarter in range(round(after * 4)))


def distance(change: Change) -> float:
    """How far a change goes; 0 where it is not from one number to another."""
    if isinstance(change.after, int | float) and isinstance(change.before, int | float):
        return abs(change.after - change.before)
    return 0.0


def _number(value: object) -> float:
    assert isinstance(value, int | float)
    return value


def toys(count: int, first: int = 0) -> Iterator[Toy]:
    """So many toys that are small enough."""
    found, seed = 0, first
    while found < count:
        seed += 1
        try:
            toy = Toy(seed)
        except (InputError, TooLarge):
            continue
        found += 1
        yield toy
