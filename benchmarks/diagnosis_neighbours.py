"""Whether a smaller step than that of a repair works, too: for ``diagnosis_random.py``.

A repair says that its step is the smallest of its lever.  Here the steps just short of it are
built anew from the scenario, without the lever that found it, and each is solved as a scenario of
its own.  Where enough of them stand for all (below), all are judged:

================  =================================================================================
pinned degree     all values that are fewer times larger or smaller than the pin, at once
sequence          the next longer multiple of each power of two: a layout that fits with some
                  longer length fits with the next multiple of its shards
batch             all nearer sizes, 64 at once
GPUs              the nearest counts, and the powers of two times a node, between
HBM, host memory  one GiB less
others            one step less (headroom, ``min_dp``, offload); the values that come first
several changes   each left out, and each made smaller with the others as they are
================  =================================================================================
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from meshplan.constraints.problem import Problem
from meshplan.scenarios.errors import InputError
from meshplan.solver.changed import changed_problem
from meshplan.solver.diagnosis.legality import decision_domains
from meshplan.solver.repairs import Change, Repair
from meshplan.solver.repairs.settings import SETTINGS
from meshplan.solver.results import Infeasible, Plan
from meshplan.solver.solve import solve
from meshplan.topologies import node_types

#: Seconds for one neighbour; beyond them it is not judged.
LIMIT_S = 20.0
#: Counts of GPUs that are tried next to that of a repair, and batches that are tried at once.
_COUNTS, _AT_ONCE = 4, 64
_BATCH, _LENGTH = "workload.global_batch_size", "workload.seq_len"


@dataclass(frozen=True)
class Neighbour:
    """A scenario short of a repair.

    Attributes
    ----------
    values
        What is changed, by path; None of a path left out of a pair.
    batches
        Sizes of the global batch instead of those of the scenario, where there are any.
    """

    values: Mapping[str, object]
    batches: tuple[int, ...] = ()

    def __str__(self) -> str:
        shown = dict(self.values)
        if self.batches:
            shown[_BATCH] = f"{len(self.batches)} sizes from {min(self.batches)}"
        return ", ".join(f"{path}: {value}" for path, value in shown.items()) or "no change"


@dataclass
class Judged:
    """How many neighbours were solved, or not to the end, and which of them work."""

    solved: int = 0
    unsolved: int = 0
    faults: list[str] = field(default_factory=list)


def judge_neighbours(
    problem: Problem, repairs: Sequence[Repair], limit_s: float = LIMIT_S
) -> Judged:
    """All neighbours of the repairs of a problem, each solved."""
    judged = Judged()
    for repair in smallest_of_each(problem, repairs):
        for neighbour in neighbours(problem, repair.changes):
            works = _works(problem, neighbour, limit_s)
            judged.solved += works is not None
            judged.unsolved += works is None
            if works:
                taken = ", ".join(change.text for change in repair.changes)
                judged.faults.append(f"{repair.lever}: {neighbour} works, short of {taken}")
    return judged


def smallest_of_each(problem: Problem, repairs: Sequence[Repair]) -> list[Repair]:
    """Of each lever the repair that says to be the smallest: others are round numbers beyond it."""
    best: dict[str, Repair] = {}
    for one in repairs:
        known = best.get(one.lever)
        if known is None or _size(problem, one) < _size(problem, known):
            best[one.lever] = one
    return list(best.values())


def _size(problem: Problem, repair: Repair) -> float:
    change = repair.changes[0]
    if change.path == _LENGTH:
        return problem.seq_len - _int(change.after)
    if change.path.startswith("cluster."):
        return changed_problem(problem, {change.path: change.after}).gpus
    return 0.0


def neighbours(problem: Problem, changes: Sequence[Change]) -> Iterator[Neighbour]:
    """The scenarios just short of these changes."""
    for change in changes:
        others = {one.path: one.after for one in changes if one is not change}
        if others:
            yield Neighbour(others)
        for one in _smaller(_given(problem, others), change):
            yield Neighbour({**others, **one.values}, one.batches)


def _given(problem: Problem, values: Mapping[str, object]) -> Problem:
    """The problem with some changes; without them where they need the others to be allowed."""
    try:
        return changed_problem(problem, values) if values else problem
    except InputError:
        return problem


def _works(problem: Problem, neighbour: Neighbour, limit_s: float) -> bool | None:
    """Whether something fits; None if the limit comes before that is known."""
    try:
        changed = changed_problem(problem, neighbour.values)
        if neighbour.batches:
            pins = tuple(pin for pin in changed.pins if pin.decision != "gbs")
            candidates = {**changed.candidates, "gbs": neighbour.batches}
            changed = replace(changed, pins=pins, candidates=candidates)
        found = solve(changed, time_limit_s=limit_s)
    except InputError:  # no scenario may have it
        return False
    if isinstance(found, Plan):
        return True
    return False if isinstance(found, Infeasible) else None


def _smaller(problem: Problem, change: Change) -> Iterator[Neighbour]:
    """The nearest smaller steps of one change."""
    path, after = change.path, change.after
    if path == _BATCH:
        yield from _batches(problem, _int(after))
        return
    for value in _values(problem, path, after):
        yield Neighbour({path: value})


def _values(problem: Problem, path: str, after: object) -> Iterator[object]:
    """Values of a field short of ``after``."""
    if path == _LENGTH:
        yield from _lengths(problem, _int(after))
    elif path == "layout":
        if after is not None:  # a list of pipeline degrees beyond powers of two
            yield None
    elif path.startswith("layout.") and isinstance(after, int):
        nearer = list(_nearer(problem, path.removeprefix("layout."), after))
        if nearer:
            yield nearer if len(nearer) > 1 else nearer[0]
    elif path in ("cluster.gpus", "cluster.nodes"):
        yield from _counts(problem, path, _int(after))
    elif path == "cluster.domains":
        yield from _domains(problem, after)
    elif path == "cluster.preset":
        most = next(one.hbm_gib for one in node_types() if one.name == after)
        now = problem.node_type.hbm_gib
        yield from (one.name for one in node_types() if now < one.hbm_gib < most)
    elif path.startswith("node_type."):
        less = _int(after) - 1
        if less > getattr(problem.node_type, path.removeprefix("node_type.")):
            yield less
    elif path not in ("training.moment_dtype", "training.gradient_dtype"):
        yield from _settings(problem, path, after)


def _nearer(problem: Problem, decision: str, after: int) -> Iterator[int]:
    """Values that the search would try unpinned, fewer times larger or smaller than the pin."""
    held = [int(value) for value in problem.pinned[decision]] or [1]
    known = {int(value) for value in decision_domains(problem)[decision]}
    if decision == "pp":
        known |= {n for n in range(1, max(known) + 1) if problem.gpus % n == 0}

    def times(value: int) -> float:
        return min(max(value / one, one / value) for one in held)

    for value in sorted(known - set(held)):
        if times(value) < times(after) * (1 - 1e-9):
            yield value


def _lengths(problem: Problem, after: int) -> list[int]:
    """The next longer multiple of each product of a power of two and an odd part of TP and CP."""
    odd = {_odd(int(n)) for name in ("tp", "cp") for n in problem.domain(name)}
    parts = {one * other for one in odd | {1} for other in odd | {1}}
    units = (part << k for part in parts for k in range(problem.seq_len.bit_length()))
    longer = {(after // unit + 1) * unit for unit in units}
    return sorted(length for length in longer if length < problem.seq_len)


def _odd(number: int) -> int:
    return number // (number & -number)


def _batches(problem: Problem, after: int) -> Iterator[Neighbour]:
    """All sizes nearer to the present ones, 64 at once."""
    sizes = {int(size) for size in problem.domain("gbs")}
    low, high = min(sizes), max(sizes)
    away = min(abs(after - one) for one in (low, high))
    near = (n for n in range(max(1, low - away + 1), high + away) if n not in sizes)
    while chosen := tuple(islice(near, _AT_ONCE)):
        yield Neighbour({}, chosen)


def _counts(problem: Problem, path: str, after: int) -> list[int]:
    """Counts between: the nearest ones, and the powers of two."""
    unit = 1 if path == "cluster.nodes" else problem.node_type.gpus_per_node
    now = problem.gpus // (problem.node_type.gpus_per_node if unit == 1 else 1)
    between = range(min(now, after) + 1, max(now, after))
    allowed = [n for n in between if n % unit == 0 or n < unit]
    allowed.sort(key=lambda n: abs(n - after))
    powers = [n for n in allowed[_COUNTS:] if _odd(max(1, n // unit)) == 1]
    return allowed[:_COUNTS] + powers


def _domains(problem: Problem, after: object) -> Iterator[list[int]]:
    """One domain less or more of equal ones; else each cut to larger blocks."""
    assert isinstance(after, list)
    now = list(problem.cluster.domains)
    if len({*now, *after}) == 1:
        step = 1 if len(after) < len(now) else -1
        if len(after) + step != len(now):
            yield after[:1] * (len(after) + step)
        return
    gcd = math.gcd(*after)
    block = 2 * (gcd & -gcd)
    cut = [size // block * block for size in now if size >= block]
    if cut and cut != now:
        yield cut


def _settings(problem: Problem, path: str, after: object) -> Iterator[object]:
    """One step less of a number; else the values that come before it."""
    if path == "limits.memory_headroom":
        less: float = round(_number(after) + 0.01, 2)
        if less < problem.limits.memory_headroom:
            yield less
    elif path == "limits.min_dp":
        if _int(after) + 1 < problem.limits.min_dp:
            yield _int(after) + 1
    elif path == "options.optimizer_offload":
        less = _number(after) - 0.25
        if less * 100 > max(int(share) for share in problem.pinned["offload"]):
            yield less
    else:
        values = next(list(one.values(problem)) for one in SETTINGS if one.path == path)
        yield from values[: values.index(after)]


def _number(value: object) -> float:
    assert isinstance(value, int | float)
    return value


def _int(value: object) -> int:
    assert isinstance(value, int)
    return value


__all__ = ["Judged", "Neighbour", "judge_neighbours", "neighbours", "smallest_of_each"]
