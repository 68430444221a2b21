"""Shorter sequences and other batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from math import lcm

from meshplan.constraints.problem import Problem
from meshplan.solver.changed import asked_value
from meshplan.solver.diagnosis.legality import decision_domains
from meshplan.solver.repairs.lever import Effort, Lever, Step
from meshplan.solver.repairs.results import Change
from meshplan.solver.repairs.trials import Trials

#: A length is round if it is a multiple of the largest of these that is at most an eighth of it.
_ROUND = (65536, 32768, 16384, 8192, 4096, 2048, 1024, 512, 256, 128)
#: Batch sizes that are tried at once, and how many such rounds there are.
_SIZES, _ROUNDS = 64, 4


@dataclass(frozen=True)
class SequenceLength(Lever):
    """The longest sequence that fits, exact; besides, the longest round one."""

    name: str = "workload.seq_len"
    effort: Effort = Effort.WORKLOAD
    neutral: bool = True

    def applies(self, problem: Problem) -> bool:
        """Whether there is a shorter one."""
        return problem.seq_len > 1

    def widest(self, trials: Trials) -> Step:
        """The shortest that the narrowest shards of the pins divide."""
        problem = trials.problem
        return self._step(problem, min(_shards(problem), problem.seq_len))

    def smallest(self, trials: Trials) -> Step | None:
        """The longest of all."""
        longest = longest_sequence(trials, below=trials.problem.seq_len)
        return None if longest is None else self._step(trials.problem, longest)

    def further(self, trials: Trials, smallest: Step) -> Iterator[Step]:
        """The longest round one."""
        longest = smallest[0].after
        assert isinstance(longest, int)
        unit = next((unit for unit in _ROUND if 8 * unit <= longest), 1)
        if longest % unit == 0:
            return
        for length in range(longest // unit * unit, longest // 2, -unit):
            if trials.works({self.name: length}):
                yield self._step(trials.problem, length)
                return

    def _step(self, problem: Problem, length: int) -> Step:
        text = f"workload.seq_len: {length:,} instead of {problem.seq_len:,}"
        return (Change(self.name, problem.seq_len, length, text),)


def longest_sequence(trials: Trials, below: int) -> int | None:
    """The longest sequence shorter than ``below`` with which some layout is possible.

    A layout needs no less memory for a longer sequence, but can only have lengths that its shards
    divide.  All shards are a power of two times one of a few odd numbers; for each of these the
    length is built from its largest part down.  Where the length with one more part is
    impossible, so is every longer one for all layouts whose shards divide that part; the other
    layouts have no length before the next larger part.
    """
    longest = 0
    for odd in _odd_parts(trials.problem):
        length, part = 0, odd << max(0, (below // odd).bit_length())
        while part >= odd:
            if length + part < below and trials.works({"workload.seq_len": length + part}):
                length += part
            part = part // 2 if part > odd else 0
        longest = max(longest, length)
    return longest or None


def _degrees(problem: Problem, name: str) -> list[int]:
    return [int(value) for value in problem.domain(name)]


def _odd_parts(problem: Problem) -> list[int]:
    """Odd divisors of the shards that TP and CP may make."""
    whole = 1
    for tp in _degrees(problem, "tp"):
        for cp in _degrees(problem, "cp"):
            shards = tp * cp
            whole = lcm(whole, shards // (shards & -shards))
    return [n for n in range(whole, 0, -1) if whole % n == 0]


def _shards(problem: Problem) -> int:
    """Length that the narrowest shards of the pins divide."""
    return 2 * min(_degrees(problem, "tp")) * min(_degrees(problem, "cp")) * 64


@dataclass(frozen=True)
class BatchSize(Lever):
    """The nearest global batch, smaller or larger."""

    name: str = "workload.global_batch_size"
    effort: Effort = Effort.WORKLOAD

    def applies(self, problem: Problem) -> bool:
        """Always: there is another batch."""
        return True

    def widest(self, trials: Trials) -> Step:
        """One micro-batch on each replica."""
        return self._step(trials.problem, min(batch_steps(trials.problem)))

    def smallest(self, trials: Trials) -> Step | None:
        """The nearest that works.

        Where memory is short only smaller batches can help, with fewer micro-batches in flight:
        then the smallest are tried first.
        """
        problem = trials.problem
        present = trials.trial({})
        if present is not None and present.least is not None:
            smallest = list(islice(small_batches(problem), _SIZES))
            if not any(better_batches(trials, smallest)):
                return None
        near = nearest_batches(problem)
        for _ in range(_ROUNDS):
            chosen = list(islice(near, _SIZES))
            best: int | None = None
            for best in better_batches(trials, chosen):  # noqa: B007 - the last is the nearest
                pass
            if best is not None and trials.works({self.name: best}):
                return self._step(problem, best)
        return None

    def _step(self, problem: Problem, size: int) -> Step:
        before = asked_value(problem, self.name)
        text = f"workload.global_batch_size: {size:,} instead of {_shown(before)}"
        return (Change(self.name, before, size, text),)


def _shown(batch: object) -> str:
    return f"{batch:,}" if isinstance(batch, int) else str(batch)


def better_batches(trials: Trials, sizes: Sequence[int]) -> Iterator[int]:
    """Batches among ``sizes`` that work, each earlier in it than the one before.

    At the end none before the last one works; none at all if nothing is handed out.
    """
    left = tuple(sizes)
    while left:
        trial = trials.trial({}, ("gbs", left))
        if trial is None or trial.found is None:
            return
        size = int(trial.found.decisions["gbs"])
        yield size
        left = left[: left.index(size)]


def batch_steps(problem: Problem) -> list[int]:
    """Products of micro-batch and DP that the pins allow: every batch is a multiple of one."""
    domains = decision_domains(problem)

    def values(name: str) -> list[int]:
        return [int(v) for v in domains[name] if name not in pinned or v in pinned[name]]

    pinned = problem.pinned
    return sorted({mbs * dp for mbs in values("mbs") for dp in values("dp")})


def small_batches(problem: Problem) -> Iterator[int]:
    """Batches smaller than the present ones, a multiple of one of the steps, ascending."""
    steps = batch_steps(problem)
    least = min(int(size) for size in problem.candidates["gbs"])
    return (size for size in range(1, least) if any(size % step == 0 for step in steps))


def nearest_batches(problem: Problem) -> Iterator[int]:
    """Batches that are a multiple of one of the steps, the nearest to the present one first."""
    steps = batch_steps(problem)
    sizes = [int(size) for size in problem.candidates["gbs"]]
    low, high = min(sizes), max(sizes)
    distance = 0
    while distance <= high * 2:
        distance += _gap(steps, low, high, distance)
        for size in (low - distance, high + distance):
            if size > 0 and any(size % step == 0 for step in steps):
                yield size


def _gap(steps: Sequence[int], low: int, high: int, distance: int) -> int:
    """How much further the next multiple of a step lies, below or above."""
    below, above = low - distance - 1, high + distance + 1
    return 1 + min(min(-above % step, below % step if below > 0 else step) for step in steps)


__all__ = [
    "BatchSize", "SequenceLength", "batch_steps", "better_batches", "longest_sequence",
    "nearest_batches",
]  # fmt: skip
