"""What plain arithmetic says before any search: floors of memory, grid and batch.

Each floor holds for every layout, so one that is too high proves at once that nothing is possible.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from meshplan.constraints.memory.formats import (
    gradient_bytes,
    host_optimizer_bytes,
    optimizer_bytes,
    weight_bytes,
)
from meshplan.constraints.problem import QUANTA_PER_GIB, Problem, quanta
from meshplan.constraints.rules.batch import GBS_DIVISIBLE
from meshplan.constraints.rules.mesh import WORLD_DENSE_DIVISIBLE, WORLD_EXPERT_DIVISIBLE
from meshplan.constraints.rules.wording import product
from meshplan.scenarios.parameters import total_parameters
from meshplan.solver.diagnosis.facts import MEMORY

_GIB = 1 << 30


@dataclass(frozen=True)
class MemoryFloor:
    """What each GPU must hold at least of weights, gradients and optimizer state, in bytes.

    They are spread evenly over all GPUs; what is replicated, activations, buffers and overhead come
    on top.

    Attributes
    ----------
    weights, gradients, optimizer
        On the GPU.
    host
        Optimizer state in host memory, for each GPU.
    offload
        Percentage of the optimizer state on the host.
    """

    weights: float
    gradients: float
    optimizer: float
    host: float
    offload: int

    @property
    def device(self) -> int:
        """All that stays on the GPU, in quanta."""
        return quanta(self.weights + self.gradients + self.optimizer)


def memory_floors(problem: Problem) -> list[MemoryFloor]:
    """The floor for each share of offload that the scenario allows, the leanest GPU first."""
    each = total_parameters(problem.model) / problem.gpus
    floors = [
        MemoryFloor(
            weights=each * min(weight_bytes(problem), 2.0),
            gradients=each * gradient_bytes(problem),
            optimizer=each * optimizer_bytes(problem, share),
            host=each * host_optimizer_bytes(problem, share),
            offload=share,
        )
        for share in (int(value) for value in problem.domain("offload"))
    ]
    return sorted(floors, key=lambda floor: (floor.device, floor.host))


def least_floor(problem: Problem) -> MemoryFloor | None:
    """The leanest floor that fits on GPUs and hosts, or None: then no layout fits."""
    for floor in memory_floors(problem):
        if floor.device <= problem.capacity and has_host_room(problem, floor):
            return floor
    return None


def telling_floor(problem: Problem) -> MemoryFloor:
    """The floor that says most: the leanest, unless only the hosts have no room for that."""
    leanest, *others = memory_floors(problem)
    if leanest.device > problem.capacity:
        return leanest
    return next((one for one in (leanest, *others) if has_host_room(problem, one)), leanest)


def has_host_room(problem: Problem, floor: MemoryFloor) -> bool:
    """Whether the hosts have room for what a floor keeps there."""
    return floor.host == 0 or quanta(floor.host) <= problem.host_capacity


@dataclass(frozen=True)
class Finding:
    """A floor that is too high: proof, without a search, that nothing is possible.

    Attributes
    ----------
    rule
        The rule that it breaks.
    needed, available
        In ``unit``.
    text
        The arithmetic, as a sentence.
    """

    rule: str
    needed: float
    available: float
    unit: str
    text: str


def findings(problem: Problem) -> list[Finding]:
    """All floors that are too high."""
    return [*_grids(problem), *_batch(problem), *_memory(problem)]


def smallest_grids(problem: Problem) -> dict[str, tuple[int, ...]]:
    """The least degrees of either mesh: ``tp, cp, pp`` and ``etp, ep, pp``."""
    return {
        WORLD_DENSE_DIVISIBLE.id: tuple(_least(problem, name) for name in ("tp", "cp", "pp")),
        WORLD_EXPERT_DIVISIBLE.id: tuple(_least(problem, name) for name in ("etp", "ep", "pp")),
    }


def _least(problem: Problem, name: str) -> int:
    """Least value of a degree; 1 where nothing pins it."""
    return min((int(v) for v in problem.pinned.get(name, (1,))), default=1)


def _grids(problem: Problem) -> Iterator[Finding]:
    names = {
        WORLD_DENSE_DIVISIBLE.id: ("attention mesh", ("tp", "cp", "pp")),
        WORLD_EXPERT_DIVISIBLE.id: ("expert mesh", ("etp", "ep", "pp")),
    }
    for rule, degrees in smallest_grids(problem).items():
        mesh, axes = names[rule]
        needed = degrees[0] * degrees[1] * degrees[2]
        if needed > problem.gpus:
            text = (
                f"the {mesh} takes at least {product(axes, degrees)} GPUs, "
                f"and the cluster has {problem.gpus:,}"
            )
            yield Finding(rule, needed, problem.gpus, "GPUs", text)


def _batch(problem: Problem) -> Iterator[Finding]:
    dp = max(_least(problem, "dp"), problem.limits.min_dp)
    factors = (_least(problem, "mbs"), dp, _least(problem, "ga"))
    needed = factors[0] * factors[1] * factors[2]
    most = max(int(size) for size in problem.domain("gbs"))
    if needed > most:
        text = (
            f"a step takes at least {product(('mbs', 'dp', 'ga'), factors)} sequences, and "
            f"workload.global_batch_size allows {most:,}"
        )
        yield Finding(GBS_DIVISIBLE.id, needed, most, "sequences", text)


def _memory(problem: Problem) -> Iterator[Finding]:
    if least_floor(problem) is not None:
        return
    floor = telling_floor(problem)
    parts = [("weights", floor.weights), ("gradients", floor.gradients)]
    if floor.optimizer:
        parts.append(("optimizer state", floor.optimizer))
    listed = ", ".join(f"{_gib(size)} GiB of {name}" for name, size in parts)
    usable = problem.capacity / QUANTA_PER_GIB
    spread = f"spread evenly over all {problem.gpus:,} GPUs, each holds {listed}"
    if problem.gpus == 1:
        spread = f"the one GPU holds {listed}"
    if floor.device > problem.capacity:
        needed = floor.device / QUANTA_PER_GIB
        text = f"{spread}: {needed:,.1f} GiB in all, and {usable:.1f} GiB are usable"
        yield Finding(MEMORY, round(needed, 3), round(usable, 3), "GiB", text)
        return
    host = problem.host_capacity / QUANTA_PER_GIB
    text = (
        f"{spread}, and {_gib(floor.host)} GiB of optimizer state in host memory, "
        f"where {host:,.1f} GiB are usable"
    )
    yield Finding(MEMORY, round(floor.host / _GIB, 3), round(host, 3), "GiB", text)


def _gib(size: float) -> str:
    return f"{size / _GIB:,.1f}"


__all__ = [
    "Finding",
    "MemoryFloor",
    "findings",
    "has_host_room",
    "least_floor",
    "memory_floors",
    "smallest_grids",
    "telling_floor",
]
