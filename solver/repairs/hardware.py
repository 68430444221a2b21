"""Other GPUs: more of them, fewer of them, larger ones, larger hosts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from meshplan.constraints.problem import Problem
from meshplan.solver.changed import NODE, asked_value
from meshplan.solver.diagnosis.arithmetic import memory_floors
from meshplan.solver.repairs.lever import (
    Effort,
    Lever,
    first_that_works,
    least_number,
    values_of,
)
from meshplan.solver.repairs.results import Change
from meshplan.solver.repairs.trials import Trials
from meshplan.topologies import node_types
from meshplan.topologies.cluster import MAX_GPUS

#: More GPUs are looked for up to so many times the present ones.
MOST_TIMES = 32
#: HBM and host memory are told to a tenth of a GiB, and tried up to so many times the present.
_TENTHS, _MOST_MEMORY = 10, 64


@dataclass(frozen=True)
class MoreGpus(Lever):
    """The least count above the present one; besides, the next one that is a power of two."""

    name: str = "gpus"
    effort: Effort = Effort.HARDWARE

    def applies(self, problem: Problem) -> bool:
        """Whether the scenario says how many there are."""
        return size_field(problem) is not None

    def widest(self, problem: Problem) -> Change:
        """Many times as many."""
        return gpu_change(problem, _largest(problem))

    def smallest(self, trials: Trials) -> Change | None:
        """The least count that works.

        Counts are no ladder: each has divisors of its own.  Powers of two give a limit, and all
        counts below it are tried in turn.
        """
        problem = trials.problem
        now = problem.gpus
        counts = list(gpu_counts(problem, now + 1, _largest(problem)))
        good = [count for count in counts if _is_good(problem, count)]
        limit = first_that_works(trials, [gpu_change(problem, count) for count in good])
        if limit is None:
            return None
        below = [count for count in counts if count < gpus_of(problem, limit)]
        return first_that_works(trials, [gpu_change(problem, count) for count in below]) or limit

    def further(self, trials: Trials, smallest: Change) -> Iterator[Change]:
        """The next power of two times a node or domain."""
        problem, least = trials.problem, gpus_of(trials.problem, smallest)
        for count in gpu_counts(problem, least + 1, _largest(problem)):
            if _is_good(problem, count):
                step = gpu_change(problem, count)
                if not _is_good(problem, least) and trials.works(values_of(step)):
                    yield step
                return


@dataclass(frozen=True)
class FewerGpus(Lever):
    """The most GPUs below the present count, down to half of them."""

    name: str = "fewer-gpus"
    effort: Effort = Effort.LIMIT

    def applies(self, problem: Problem) -> bool:
        """Whether the scenario says how many there are, and is not one power of two."""
        return size_field(problem) is not None and bool(self._steps(problem))

    def widest(self, problem: Problem) -> Change:
        """Half as many."""
        return self._steps(problem)[-1]

    def smallest(self, trials: Trials) -> Change | None:
        """The most that work."""
        return first_that_works(trials, self._steps(trials.problem))

    def _steps(self, problem: Problem) -> list[Change]:
        counts = gpu_counts(problem, (problem.gpus + 1) // 2, problem.gpus - 1)
        return [gpu_change(problem, count) for count in sorted(counts, reverse=True)]


def size_field(problem: Problem) -> str | None:
    """The field that says how many GPUs there are, if it is one number."""
    cluster = problem.asked.get("cluster", {})
    return next((f"cluster.{key}" for key in ("gpus", "nodes") if key in cluster), None)


def gpu_change(problem: Problem, gpus: int) -> Change:
    """The change to so many GPUs."""
    path = size_field(problem)
    assert path is not None
    per = problem.node_type.gpus_per_node if path == "cluster.nodes" else 1
    now = problem.gpus
    nodes = f" ({gpus // per} nodes)" if per > 1 else ""
    return Change(path, now // per, gpus // per, f"{gpus:,} GPUs{nodes} instead of {now:,}")


def gpus_of(problem: Problem, change: Change) -> int:
    """GPUs after a change of their number."""
    assert isinstance(change.after, int)
    per = problem.node_type.gpus_per_node if change.path == "cluster.nodes" else 1
    return change.after * per


def gpu_counts(problem: Problem, least: int, most: int) -> Iterator[int]:
    """Counts that make whole nodes, or a part of one, whose memory could suffice at all."""
    node = problem.node_type.gpus_per_node
    whole_only = size_field(problem) == "cluster.nodes"
    state = memory_floors(problem)[0].device * problem.gpus
    for count in range(least, min(most, node - 1) + 1):
        if not whole_only and state <= count * problem.capacity:
            yield count
    for count in range(max(node, -(-least // node) * node), most + 1, node):
        if state <= count * problem.capacity:
            yield count


def _largest(problem: Problem) -> int:
    return min(problem.gpus * MOST_TIMES, MAX_GPUS)


def _is_good(problem: Problem, count: int) -> bool:
    """Whether a count is a power of two times a node."""
    node = problem.node_type.gpus_per_node
    units = count // node if count % node == 0 else count
    return units & (units - 1) == 0


@dataclass(frozen=True)
class WholeDomains(Lever):
    """As many GPUs of each NVLink domain, a power of two, where the scenario lists domains."""

    name: str = "cluster.domains"
    effort: Effort = Effort.HARDWARE

    def applies(self, problem: Problem) -> bool:
        """Whether the scenario lists domains, and they could be evener."""
        return "domains" in problem.asked.get("cluster", {}) and bool(self._steps(problem))

    def widest(self, problem: Problem) -> Change:
        """The smallest blocks."""
        return self._steps(problem)[-1]

    def smallest(self, trials: Trials) -> Change | None:
        """The largest blocks that work."""
        return first_that_works(trials, self._steps(trials.problem))

    def _steps(self, problem: Problem) -> list[Change]:
        domains = problem.cluster.domains
        found: list[Change] = []
        blocks = [1 << i for i in range(max(domains).bit_length() - 1, 0, -1)]
        for block in blocks:
            for sizes in _in_blocks(domains, block):
                if sizes and sizes != domains and all(sizes != one.after for one in found):
                    text = (
                        f"cluster.domains: {list(sizes)}, blocks of {block} GPUs "
                        f"({sum(sizes)} GPUs), instead of {list(domains)}"
                    )
                    found.append(Change(self.name, list(domains), list(sizes), text))
        return found


def _in_blocks(domains: Sequence[int], block: int) -> Iterator[tuple[int, ...]]:
    """The same GPUs in equal domains of one block; or each domain cut to whole blocks."""
    if sum(domains) % block == 0 and block * 2 > max(domains):
        yield (block,) * (sum(domains) // block)
    yield tuple(size // block * block for size in domains if size >= block)


@dataclass(frozen=True)
class Figure(Lever):
    """The least memory of a GPU, or of a host, that is enough.

    Every layout that fits into less fits into more, so it is found by bisection, in tenths of GiB.
    """

    name: str
    figure: str
    title: str
    effort: Effort = Effort.HARDWARE

    def applies(self, problem: Problem) -> bool:
        """Hosts matter only where something may be kept there."""
        return self.figure == "hbm_gib" or problem.uses_host_memory

    def widest(self, problem: Problem) -> Change:
        """Many times as much."""
        return self._change(problem, self._now(problem) * _MOST_MEMORY)

    def smallest(self, trials: Trials) -> Change | None:
        """The least amount."""
        problem = trials.problem
        widest = self.widest(problem)
        if not trials.works(values_of(widest)):
            return None

        def works(tenths: int) -> bool:
            return trials.works(values_of(self._change(problem, tenths / _TENTHS)))

        low = int(self._now(problem) * _TENTHS) + 1
        span = 1
        while not works(low + span - 1):
            low, span = low + span, 2 * span
        return self._change(problem, least_number(low, low + span - 1, works) / _TENTHS)

    def _now(self, problem: Problem) -> float:
        return float(getattr(problem.node_type, self.figure))

    def _change(self, problem: Problem, gib: float) -> Change:
        now = self._now(problem)
        text = f"{self.title}: {gib:,.1f} GiB instead of {now:,.1f}"
        return Change(f"{NODE}{self.figure}", now, gib, text)


@dataclass(frozen=True)
class LargerGpu(Lever):
    """The GPU type of the presets with the least memory above the present one that is enough."""

    name: str = "cluster.preset"
    effort: Effort = Effort.HARDWARE

    def applies(self, problem: Problem) -> bool:
        """Whether the scenario names a preset, and there is one with more memory."""
        named = asked_value(problem, self.name) is not None
        return named and bool(self._steps(problem))

    def widest(self, problem: Problem) -> Change:
        """The one with the most memory."""
        return self._steps(problem)[-1]

    def smallest(self, trials: Trials) -> Change | None:
        """The one with the least memory that works."""
        return first_that_works(trials, self._steps(trials.problem))

    def _steps(self, problem: Problem) -> list[Change]:
        now = problem.node_type
        larger = sorted(
            (one for one in node_types() if one.hbm_gib > now.hbm_gib),
            key=lambda one: (one.hbm_gib, one.nvlink_domain_gpus),
        )
        return [
            Change(
                self.name, now.name, one.name,
                f"cluster.preset: {one.name} ({one.hbm_gib:g} GiB) instead of {now.name} "
                f"({now.hbm_gib:g} GiB)",
            )
            for one in larger
        ]  # fmt: skip


HARDWARE: tuple[Lever, ...] = (
    FewerGpus(),
    MoreGpus(),
    WholeDomains(),
    Figure("hbm", "hbm_gib", "memory of each GPU"),
    LargerGpu(),
    Figure("host-memory", "host_memory_gib", "memory of each node"),
)

__all__ = ["HARDWARE", "gpu_change", "gpu_counts", "size_field"]
