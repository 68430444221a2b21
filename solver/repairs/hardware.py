"""Other GPUs: more of them, fewer of them, larger ones, larger hosts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from meshplan.constraints.problem import QUANTA_PER_GIB, Problem
from meshplan.solver.changed import NODE, asked_value
from meshplan.solver.diagnosis.arithmetic import memory_floors
from meshplan.solver.repairs.lever import (
    Effort,
    Lever,
    Step,
    first_that_works,
    least_number,
    values_of,
)
from meshplan.solver.repairs.results import Change
from meshplan.solver.repairs.trials import Trials
from meshplan.topologies import node_types
from meshplan.topologies.cluster import MAX_GPUS

#: More GPUs are looked for up to so many times the present ones, or those whose memory could hold
#: the model's state at all.
_MOST_TIMES = 32
#: HBM and host memory are tried up to so many times the present ones.
_MOST_MEMORY = 64


@dataclass(frozen=True)
class MoreGpus(Lever):
    """The least count above the present one; besides, the next one that is a power of two."""

    name: str = "gpus"
    effort: Effort = Effort.HARDWARE

    def shown(self, problem: Problem) -> str:
        """The field that says how many there are; one of domains may be changed otherwise, too."""
        field = size_field(problem) or self.name
        return f"{field} (more of them)" if field == "cluster.domains" else field

    def applies(self, problem: Problem) -> bool:
        """Whether the scenario says how many there are."""
        return size_field(problem) is not None

    def widest(self, trials: Trials) -> Step:
        """The most GPUs, a power of two times a node, that any legal layout covers."""
        problem = trials.problem
        good = [count for count in _more(problem) if _is_good(problem, count)]
        for count in reversed(good):
            trial = trials.trial(values_of(gpu_step(problem, count)))
            if trial is not None and trial.least is not None:
                return gpu_step(problem, count)
        return gpu_step(problem, good[-1] if good else 2 * problem.gpus)

    def smallest(self, trials: Trials) -> Step | None:
        """The least count that works.

        Counts are no ladder: each has divisors of its own.  Powers of two give a limit, and all
        counts below it are tried in turn.
        """
        problem = trials.problem
        counts = list(_more(problem))
        good = [count for count in counts if _is_good(problem, count)]
        limit = next((n for n in good if trials.works(values_of(gpu_step(problem, n)))), None)
        if limit is None:
            return None
        below = [gpu_step(problem, count) for count in counts if count <= limit]
        return first_that_works(trials, below)

    def further(self, trials: Trials, smallest: Step) -> Iterator[Step]:
        """The next power of two times a node."""
        problem, least = trials.problem, gpus_of(trials.problem, smallest)
        if _is_good(problem, least):
            return
        good = (count for count in _more(problem) if count > least and _is_good(problem, count))
        step = gpu_step(problem, next(good, least))
        if step != smallest and trials.works(values_of(step)):
            yield step


@dataclass(frozen=True)
class FewerGpus(Lever):
    """The most GPUs below the present count, down to half of them; the others stay idle."""

    name: str = "fewer-gpus"
    effort: Effort = Effort.LIMIT
    obscure: bool = True

    def applies(self, problem: Problem) -> bool:
        """Whether the scenario says how many there are."""
        return size_field(problem) is not None and bool(self._steps(problem))

    def widest(self, trials: Trials) -> Step:
        """Half as many."""
        return self._steps(trials.problem)[-1]

    def smallest(self, trials: Trials) -> Step | None:
        """The most that work."""
        return first_that_works(trials, self._steps(trials.problem))

    def _steps(self, problem: Problem) -> list[Step]:
        counts = gpu_counts(problem, (problem.gpus + 1) // 2, problem.gpus - 1)
        return [gpu_step(problem, count) for count in sorted(counts, reverse=True)]


def size_field(problem: Problem) -> str | None:
    """The field that says how many GPUs there are; None for a topology file.

    Where it lists domains, these must be equal for their number to be changed.
    """
    cluster = problem.asked.get("cluster", {})
    if "domains" in cluster:
        return "cluster.domains" if len(set(problem.cluster.domains)) == 1 else None
    return next((f"cluster.{key}" for key in ("gpus", "nodes") if key in cluster), None)


def _unit(problem: Problem) -> int:
    """GPUs that are added at least, beyond the first node or domain."""
    if size_field(problem) == "cluster.domains":
        return problem.cluster.domains[0]
    return problem.node_type.gpus_per_node


def gpu_step(problem: Problem, gpus: int) -> Step:
    """The change to so many GPUs."""
    path, unit, now = size_field(problem), _unit(problem), problem.gpus
    assert path is not None
    before: object = now
    after: object = gpus
    text = f"{gpus:,} instead of {now:,}"
    if path == "cluster.nodes":
        before, after = now // unit, gpus // unit
        text = f"{after:,} instead of {before:,} ({gpus:,} GPUs instead of {now:,})"
    elif path == "cluster.domains":
        before, after = list(problem.cluster.domains), [unit] * (gpus // unit)
        text = f"{gpus // unit:,} instead of {now // unit:,} NVLink domains of {unit} GPUs"
        text += f" ({gpus:,} GPUs instead of {now:,})"
    return (Change(path, before, after, f"{path}: {text}"),)


def gpus_of(problem: Problem, step: Step) -> int:
    """GPUs after a change of their number."""
    after = step[0].after
    if isinstance(after, list):
        return sum(after)
    assert isinstance(after, int)
    return after * (_unit(problem) if step[0].path == "cluster.nodes" else 1)


def gpu_counts(problem: Problem, least: int, most: int) -> Iterator[int]:
    """Counts that the cluster may have, and whose memory could hold the model's state at all."""
    unit, enough = _unit(problem), max(least, _enough(problem))
    if size_field(problem) == "cluster.gpus":
        yield from range(enough, min(most, unit - 1) + 1)
    yield from range(max(unit, -(-enough // unit) * unit), most + 1, unit)


def _enough(problem: Problem) -> int:
    """GPUs whose memory could hold the model's state, spread evenly."""
    state = memory_floors(problem)[0].device * problem.gpus
    return -(-state // problem.capacity)


def most_gpus(problem: Problem) -> int:
    """The most GPUs that are looked at where the present ones are too few."""
    enough = _enough(problem)
    if enough > problem.gpus:
        enough = 1 << (enough - 1).bit_length()
    return min(max(problem.gpus, enough) * _MOST_TIMES, MAX_GPUS)


def _more(problem: Problem) -> Iterator[int]:
    return gpu_counts(problem, problem.gpus + 1, most_gpus(problem))


def _is_good(problem: Problem, count: int) -> bool:
    """Whether a count is a power of two times a node or domain."""
    unit = _unit(problem)
    units = count // unit if count % unit == 0 else count
    return units & (units - 1) == 0


@dataclass(frozen=True)
class WholeDomains(Lever):
    """As many GPUs of each NVLink domain, a power of two, where the scenario lists domains."""

    name: str = "cluster.domains"
    effort: Effort = Effort.HARDWARE

    def applies(self, problem: Problem) -> bool:
        """Whether the scenario lists domains, and they could be evener."""
        return "domains" in problem.asked.get("cluster", {}) and bool(self._steps(problem))

    def widest(self, trials: Trials) -> Step:
        """The smallest blocks."""
        return self._steps(trials.problem)[-1]

    def smallest(self, trials: Trials) -> Step | None:
        """The largest blocks that work."""
        return first_that_works(trials, self._steps(trials.problem))

    def _steps(self, problem: Problem) -> list[Step]:
        domains = problem.cluster.domains
        found: dict[tuple[int, ...], Step] = {}
        for block in (1 << i for i in range(max(domains).bit_length() - 1, 0, -1)):
            for sizes in _in_blocks(domains, block):
                if sizes and sizes != domains and sizes not in found:
                    text = (
                        f"cluster.domains: {list(sizes)}, blocks of {block} GPUs "
                        f"({sum(sizes)} GPUs), instead of {list(domains)}"
                    )
                    found[sizes] = (Change(self.name, list(domains), list(sizes), text),)
        return list(found.values())


def _in_blocks(domains: Sequence[int], block: int) -> Iterator[tuple[int, ...]]:
    """The same GPUs in equal domains of one block; or each domain cut to whole blocks."""
    if sum(domains) % block == 0 and block * 2 > max(domains):
        yield (block,) * (sum(domains) // block)
    yield tuple(size // block * block for size in domains if size >= block)


@dataclass(frozen=True)
class Figure(Lever):
    """The least memory of a GPU, or of a node, that is enough, in whole GiB.

    Every layout that fits into less fits into more, so it is found by bisection.
    """

    name: str
    figure: str
    title: str
    effort: Effort = Effort.FIGURE

    def shown(self, problem: Problem) -> str:
        """Whose memory: no scenario has a field for it."""
        return self.title

    def applies(self, problem: Problem) -> bool:
        """Nodes matter only where the scenario lets something be kept in their memory."""
        if self.figure == "hbm_gib" or problem.training.activation_offload:
            return True
        return any(share != 0 for share in problem.domain("offload"))

    def widest(self, trials: Trials) -> Step:
        """Many times as much."""
        return self._step(trials.problem, int(self._now(trials.problem) * _MOST_MEMORY))

    def smallest(self, trials: Trials) -> Step | None:
        """The least amount."""
        problem = trials.problem
        widest = trials.trial(values_of(self.widest(trials)))
        if widest is None or widest.found is None:
            return None
        low, high = int(self._now(problem)) + 1, int(self._now(problem) * _MOST_MEMORY)
        if self.figure == "hbm_gib":
            low = max(low, hbm_for(problem, widest.least or 0))
            high = max(low, hbm_for(problem, widest.found.peak))
            return self._step(problem, [high, *less_hbm(trials, low, high)][-1])
        found = least_number(
            low, high, lambda gib: trials.works(values_of(self._step(problem, gib)))
        )
        return self._step(problem, found)

    def _now(self, problem: Problem) -> float:
        return float(getattr(problem.node_type, self.figure))

    def _step(self, problem: Problem, gib: int) -> Step:
        now = self._now(problem)
        text = f"{self.title}: {gib:,} GiB instead of {now:,.1f}"
        return (Change(f"{NODE}{self.figure}", now, gib, text),)


def less_hbm(trials: Trials, low: int, high: int) -> Iterator[int]:
    """Ever less memory of a GPU that works, whole GiB, by bisection; the last one is the least.

    ``high`` works, and is not among them; nothing below ``low`` does.  Each plan that is met says
    by its peak how much less would do for it.
    """
    problem = trials.problem
    while low < high:
        middle = (low + high) // 2
        trial = trials.trial({f"{NODE}hbm_gib": middle})
        if trial is None or trial.found is None:
            refuted = 0 if trial is None or trial.least is None else trial.least
            low = max(middle + 1, min(high, hbm_for(problem, refuted)))
        else:
            high = max(low, min(middle, hbm_for(problem, trial.found.peak)))
            yield high


def hbm_for(problem: Problem, needed: int) -> int:
    """Least memory of a GPU in whole GiB of which a plan may use so many quanta."""
    share = 1 - problem.limits.memory_headroom
    gib = int(needed / QUANTA_PER_GIB / share)
    while int(gib * share * QUANTA_PER_GIB) < needed:
        gib += 1
    return gib


@dataclass(frozen=True)
class LargerGpu(Lever):
    """The GPU type of the presets with the least memory above the present one that is enough."""

    name: str = "cluster.preset"
    effort: Effort = Effort.HARDWARE

    def applies(self, problem: Problem) -> bool:
        """Whether the scenario names a preset, and there is one with more memory."""
        named = asked_value(problem, self.name) is not None
        return named and bool(self._steps(problem))

    def widest(self, trials: Trials) -> Step:
        """The one with the most memory."""
        return self._steps(trials.problem)[-1]

    def smallest(self, trials: Trials) -> Step | None:
        """The one with the least memory that works."""
        return first_that_works(trials, self._steps(trials.problem))

    def _steps(self, problem: Problem) -> list[Step]:
        now = problem.node_type
        larger = sorted(
            (one for one in node_types() if one.hbm_gib > now.hbm_gib),
            key=lambda one: (one.hbm_gib, one.nvlink_domain_gpus),
        )
        instead = f"instead of {now.name} ({now.hbm_gib:g} GiB)"
        return [
            (
                Change(
                    self.name,
                    now.name,
                    one.name,
                    f"{self.name}: {one.name} ({one.hbm_gib:g} GiB) {instead}",
                ),
            )
            for one in larger
        ]


HARDWARE: tuple[Lever, ...] = (
    FewerGpus(),
    MoreGpus(),
    WholeDomains(),
    Figure("hbm", "hbm_gib", "memory of each GPU"),
    LargerGpu(),
    Figure("host-memory", "host_memory_gib", "memory of each node"),
)

__all__ = ["HARDWARE", "gpu_counts", "gpu_step", "hbm_for", "less_hbm", "most_gpus", "size_field"]
