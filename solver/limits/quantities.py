"""The quantities that have a limit: what is asked about each, and what that proves.

Each yields the values that it learns to be possible, one better than the other, so that a time
limit leaves the best one known; when it ends, all values beyond the last are refuted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

from meshplan.constraints.problem import Problem
from meshplan.scenarios.checks import MAX_DEGREE
from meshplan.scenarios.schema import MAX_SEQ_LEN
from meshplan.solver.changed import asked_value
from meshplan.solver.diagnosis.legality import decision_domains
from meshplan.solver.repairs.hardware import (
    Figure,
    MoreGpus,
    gpu_counts,
    gpu_step,
    gpus_of,
    hbm_for,
    less_hbm,
    most_gpus,
    size_field,
)
from meshplan.solver.repairs.lever import values_of
from meshplan.solver.repairs.trials import Trials
from meshplan.solver.repairs.workload import batch_steps, better_batches, longest_sequence

#: Batches asked about at once.
_AT_ONCE = 64
#: Groups of pp micro-batches from which more of them take no more memory: the steady state repeats
#: after one group (``constraints/schedule.py`` replays no more than these).
_GROUPS = 4


class Quantity(ABC):
    """One field whose least or largest value is looked for."""

    path: str
    title: str

    def applies(self, problem: Problem) -> bool:
        """Whether the scenario has such a field to change."""
        return True

    def now(self, problem: Problem) -> float | None:
        """What the scenario says."""
        value = asked_value(problem, self.field(problem))
        return value if isinstance(value, int | float) else None

    def field(self, problem: Problem) -> str:
        """Path of the field."""
        return self.path

    def changes(self, problem: Problem, value: int) -> dict[str, object]:
        """The scenario with this value, as trials take it."""
        return {self.path: value}

    @abstractmethod
    def possible(self, trials: Trials) -> Iterator[int]:
        """Values that work, each better than the one before; at its end no better one does."""

    @abstractmethod
    def proof(self, problem: Problem, value: int | None) -> str:
        """What the end of :meth:`possible` proves."""

    def bounded(self, value: int) -> bool:
        """Whether the value is less than a scenario may ask for."""
        return True


@dataclass(frozen=True)
class LeastGpus(Quantity):
    """The least number of GPUs: counts have divisors of their own, so each is tried in turn."""

    path: str = "cluster.gpus"
    title: str = "least GPUs"

    def applies(self, problem: Problem) -> bool:
        """Whether one number says how many there are."""
        return size_field(problem) is not None

    def now(self, problem: Problem) -> float | None:
        """GPUs of the cluster, however the scenario counts them."""
        return problem.gpus

    def field(self, problem: Problem) -> str:
        """The field that says it."""
        return size_field(problem) or self.path

    def changes(self, problem: Problem, value: int) -> dict[str, object]:
        """So many GPUs, as the scenario counts them."""
        return values_of(gpu_step(problem, value))

    def possible(self, trials: Trials) -> Iterator[int]:
        """The present number, if it works, or the first above; then the first of all below."""
        problem = trials.problem
        if trials.works({}):
            yield problem.gpus
        elif (step := MoreGpus().smallest(trials)) is not None:
            yield gpus_of(problem, step)
        # What works above, or not at the present number, says nothing of those below.
        for count in gpu_counts(problem, 1, problem.gpus - 1):
            if trials.works(self.changes(problem, count)):
                yield count
                return

    def proof(self, problem: Problem, value: int | None) -> str:
        """Every count below was asked about."""
        unit = "domains" if size_field(problem) == "cluster.domains" else "nodes"
        if value is None:
            most = most_gpus(problem)
            return f"no number of whole {unit} up to {most:,} GPUs makes a layout possible"
        parts = " (and parts of one node)" if size_field(problem) == "cluster.gpus" else ""
        return f"every smaller number of whole {unit}{parts} is refuted"


@dataclass(frozen=True)
class LeastHbm(Quantity):
    """The least memory of a GPU in whole GiB; what fits into less fits into more."""

    path: str = "node_type.hbm_gib"
    title: str = "least memory of a GPU, GiB"

    def now(self, problem: Problem) -> float | None:
        """What the node type has."""
        return problem.node_type.hbm_gib

    def possible(self, trials: Trials) -> Iterator[int]:
        """Bisection between what no layout goes below and what one needs."""
        problem = trials.problem
        present = trials.trial({})
        if present is None or present.found is None:
            step = Figure("node_type.hbm_gib", "hbm_gib", self.title).smallest(trials)
            if step is not None:
                after = step[0].after
                assert isinstance(after, int)
                yield after
            return
        low = max(1, hbm_for(problem, present.least or 0))
        high = max(low, hbm_for(problem, present.found.peak))
        yield high
        yield from less_hbm(trials, low, high)

    def proof(self, problem: Problem, value: int | None) -> str:
        """One GiB less is refuted, and with it all below."""
        if value is None:
            return "no memory of a GPU makes a layout possible"
        share = f"{problem.limits.memory_headroom:.0%} headroom included"
        return f"1 GiB less is refuted, and so is all below; {share}"


@dataclass(frozen=True)
class LongestSequence(Quantity):
    """The longest sequence in tokens, of all that some TP x CP divides."""

    path: str = "workload.seq_len"
    title: str = "longest sequence"

    def possible(self, trials: Trials) -> Iterator[int]:
        """The present one if it works; then the longest of all."""
        now = trials.problem.seq_len
        if trials.works({}):
            yield now
        longest = longest_sequence(trials, below=MAX_SEQ_LEN + 1)
        if longest is not None and (longest > now or not trials.works({})):
            yield longest

    def proof(self, problem: Problem, value: int | None) -> str:
        """Lengths of all shards were asked about."""
        if value is None:
            return "no length makes a layout possible"
        if not self.bounded(value):
            return "a scenario may not ask for more"
        return "every longer one that TP and CP can divide is refuted"

    def bounded(self, value: int) -> bool:
        """Whether it is shorter than the schema allows."""
        return value < MAX_SEQ_LEN


@dataclass(frozen=True)
class LargestBatch(Quantity):
    """The largest global batch.

    From a few micro-batches for each stage on, more of them take no more memory.  So unless
    ``layout.ga`` is pinned, the largest number of micro-batches that the stages divide
    works, or only batches of few micro-batches do, and these are all asked about.
    """

    path: str = "workload.global_batch_size"
    title: str = "largest global batch"

    def possible(self, trials: Trials) -> Iterator[int]:
        """The present one, if it works; then the largest, in groups, and those above the found."""
        problem = trials.problem
        present = trials.trial({})
        if present is not None and present.found is not None:
            yield int(present.found.decisions["gbs"])
        sizes = self._sizes(problem)
        for first in range(0, len(sizes), _AT_ONCE):
            any_works = False
            for size in better_batches(trials, sizes[first : first + _AT_ONCE]):
                any_works = True
                yield size
            if any_works:
                return

    def proof(self, problem: Problem, value: int | None) -> str:
        """All batches that the pins allow, or the largest ones."""
        if value is None:
            return "no batch makes a layout possible"
        if not self.bounded(value):
            return (
                "nothing bounds it but what a scenario may ask for: more micro-batches take no "
                "more memory"
            )
        if problem.pinned.get("ga"):
            return "every larger one that layout.ga allows is refuted"
        return (
            "every larger one is refuted: with more micro-batches in flight the first pipeline "
            "stages do not fit"
        )

    def bounded(self, value: int) -> bool:
        """Whether more would be one micro-batch for each replica more than may be asked for."""
        return value < MAX_DEGREE // 2

    @staticmethod
    def _sizes(problem: Problem) -> list[int]:
        """Batches to ask about, the largest first."""
        steps = batch_steps(problem)
        if pinned := problem.pinned.get("ga"):
            sizes = {step * int(ga) for step in steps for ga in pinned}
            return sorted((size for size in sizes if size <= MAX_DEGREE), reverse=True)
        stages = [int(pp) for pp in decision_domains(problem)["pp"]]
        stages += [int(pp) for pp in problem.pinned.get("pp", ())]
        grains = {step * pp for step in steps for pp in stages}
        tops = {MAX_DEGREE // grain * grain for grain in grains} - {0}
        small = {step * ga for step in steps for ga in range(1, _GROUPS * max(stages) + 1)}
        allowed = (size for size in small - tops if size <= MAX_DEGREE)
        return [*sorted(tops, reverse=True), *sorted(allowed, reverse=True)]


@dataclass(frozen=True)
class LargestDegree(Quantity):
    """The largest value of a degree, its own pin set aside: each value is asked about in turn."""

    decision: str
    title: str

    @property
    def path(self) -> str:  # type: ignore[override]
        """Its field."""
        return f"layout.{self.decision}"

    def possible(self, trials: Trials) -> Iterator[int]:
        """The first that works, from the largest down."""
        for value in self._values(trials.problem):
            if trials.works(self.changes(trials.problem, value)):
                yield value
                return

    def proof(self, problem: Problem, value: int | None) -> str:
        """All larger values."""
        values = self._values(problem)
        if value is None:
            return "no value makes a layout possible"
        larger = [one for one in values if one > value]
        if not larger:
            return "no larger one divides GPUs and batch"
        return f"refuted: {', '.join(f'{one:,}' for one in reversed(larger[-6:]))}" + (
            f" and {len(larger) - 6} larger ones" if len(larger) > 6 else ""
        )

    def _values(self, problem: Problem) -> list[int]:
        """The values that the search may try, the largest first."""
        known = {int(value) for value in decision_domains(problem)[self.decision]}
        known |= {int(value) for value in problem.pinned.get(self.decision, ())}
        if self.decision == "mbs":
            most = max(int(size) for size in problem.candidates["gbs"])
            known |= {1 << power for power in range(most.bit_length())}
            known = {value for value in known if value <= most}
        return sorted(known, reverse=True)


QUANTITIES: tuple[Quantity, ...] = (
    LeastGpus(),
    LeastHbm(),
    LongestSequence(),
    LargestBatch(),
    LargestDegree("mbs", "largest micro-batch"),
    LargestDegree("dp", "most data parallelism"),
)

__all__ = ["QUANTITIES", "Quantity"]
