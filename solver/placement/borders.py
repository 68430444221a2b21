"""Segments in an order in which as many stage borders as possible are segment borders.

Ranks go through segments (NVLink domains, or leaves) one after the other, and a pipeline stage is
so many consecutive ranks.  A stage border that is no segment border makes a segment hold parts of
two stages, and each of them reach into one segment more than it need.  A border falls on a border
where the segments before it hold whole stages together.  So the segments are divided into as many
groups as possible that each hold whole stages.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass

#: Counts of a program, at most; what is larger is grouped by a heuristic, with a bound.
_MOST_COUNTS = 2_000
#: Work that a program may take, in CP-SAT's deterministic seconds.
_MOST_WORK = 3.0


@dataclass(frozen=True)
class Grouping:
    """Groups of segments that hold whole stages.

    Attributes
    ----------
    groups
        Indices of the segments, each group ascending, by their first segments.
    bound
        No division has more groups than this; as many as there are where it is proved best.
    """

    groups: tuple[tuple[int, ...], ...]
    bound: int

    @property
    def order(self) -> tuple[int, ...]:
        """All segments, group by group."""
        return tuple(index for group in self.groups for index in group)


def grouped(sizes: Sequence[int], stage: int) -> Grouping:
    """Divide segments of these sizes into the most groups of whole stages.

    Parameters
    ----------
    sizes
        Ranks of each segment; together whole stages.
    stage
        Ranks of a stage.
    """
    rests = [size % stage for size in sizes]
    alone = [(index,) for index, rest in enumerate(rests) if rest == 0]
    counts = Counter(rest for rest in rests if rest)
    if not counts:
        return Grouping(tuple(alone), len(alone))
    # A group holds a stage at least.
    most = min(_bound(counts, stage), sum(sizes) // stage - len(alone))
    simple = _alike(counts, stage)
    found, bound = simple, most
    if len(simple) < most <= _MOST_COUNTS // len(counts):
        found, bound = _solved(counts, stage, most, simple)
    groups = [*alone, *_segments(rests, found)]
    return Grouping(tuple(sorted(groups)), len(alone) + bound)


def _segments(rests: Sequence[int], found: Sequence[Counter[int]]) -> list[tuple[int, ...]]:
    """The segments of each group of rests, the first of each rest first."""
    waiting: dict[int, deque[int]] = {}
    for index, rest in enumerate(rests):
        waiting.setdefault(rest, deque()).append(index)
    return [tuple(sorted(waiting[rest].popleft() for rest in group.elements())) for group in found]


def _alike(counts: Counter[int], stage: int) -> list[Counter[int]]:
    """Groups of segments that are alike, then what is left as one group."""
    groups, left = [], Counter[int]()
    for rest, count in sorted(counts.items()):
        times = next(n for n in range(1, stage + 1) if n * rest % stage == 0)
        groups += [Counter({rest: times})] * (count // times)
        left[rest] = count % times
    left = +left
    return [*groups, left] if left else groups


def _bound(counts: Counter[int], stage: int) -> int:
    """A bound of the number of groups: each segment is worth 1 over its smallest group's size."""
    least = {rest: 1 + _fewest_to(stage, counts, -rest % stage) for rest in counts}
    whole = sum(count * (_SCALE // least[rest]) for rest, count in counts.items())
    # Rounded down for each segment, so up to one unit a segment is missing.
    return (whole + sum(counts.values())) // _SCALE


_SCALE = 1 << 40


def _fewest_to(stage: int, counts: Counter[int], wanted: int) -> int:
    """Fewest segments whose rests add up to ``wanted``, modulo a stage."""
    seen, frontier, steps = {0}, {0}, 0
    while wanted not in seen:
        frontier = {(at + rest) % stage for at in frontier for rest in counts} - seen
        if not frontier:
            return sum(counts.values())  # none does: a group takes all that there are
        seen |= frontier
        steps += 1
    return steps


def _solved(
    counts: Counter[int], stage: int, most: int, hint: Sequence[Counter[int]]
) -> tuple[list[Counter[int]], int]:
    """The most groups by CP-SAT, and its bound."""
    from ortools.sat.python import cp_model  # slow to load, and seldom needed

    model = cp_model.CpModel()
    rests = sorted(counts)
    taken = [[model.new_int_var(0, counts[rest], "") for rest in rests] for _ in range(most)]
    used = [model.new_bool_var("") for _ in range(most)]
    whole = sum(rest * counts[rest] for rest in rests) // stage
    for index, group in enumerate(taken):
        stages = model.new_int_var(0, whole, "")
        model.add(cp_model.LinearExpr.weighted_sum(group, rests) == stage * stages)
        model.add(stages >= 1).only_enforce_if(used[index])
        model.add(stages == 0).only_enforce_if(~used[index])
        if index:
            model.add_implication(used[index], used[index - 1])
        known = hint[index] if index < len(hint) else Counter[int]()
        for rest, variable in zip(rests, group, strict=True):
            model.add_hint(variable, known[rest])
    for index, rest in enumerate(rests):
        model.add(sum(group[index] for group in taken) == counts[rest])
    model.maximize(sum(used))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_deterministic_time = _MOST_WORK
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return list(hint), most
    values = [[solver.value(variable) for variable in group] for group in taken]
    groups = [
        Counter({rest: n for rest, n in zip(rests, row, strict=True) if n})
        for row in values
        if any(row)
    ]
    return groups, min(most, int(solver.best_objective_bound + 1e-6))


__all__ = ["Grouping", "grouped"]
