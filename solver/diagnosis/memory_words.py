"""What a conflict says of memory: what each GPU must hold, and what it has."""

from __future__ import annotations

from meshplan.constraints.memory.formats import host_optimizer_bytes
from meshplan.constraints.problem import HOST_RESERVE, QUANTA_PER_GIB, Problem, quanta
from meshplan.scenarios.parameters import total_parameters
from meshplan.solver.diagnosis.arithmetic import telling_floor
from meshplan.solver.diagnosis.queries import Queries
from meshplan.solver.progress import LimitReached


def least_mean(queries: Queries, core: frozenset[str]) -> int | None:
    """Least memory of a GPU, averaged over the stages, with these pins and limits, in quanta.

    None where not memory on average but a single stage decides, or the hosts do.
    """
    problem = queries.restricted(core)
    highest = max(telling_floor(problem).device, queries.least.get(core) or 0)
    return highest if highest > problem.capacity else None


def memory_text(queries: Queries, core: frozenset[str]) -> str:
    """What memory has to do with a conflict with these pins and limits."""
    problem = queries.problem
    room = room_text(problem)
    host = _host_text(problem)
    if not host and _hosts_decide(queries):
        host = f"; with larger hosts a layout would fit: {host_share(problem)}"
    least = least_mean(queries, core)
    if least is None:
        return f"no layout fits, however the layers are split: {room}{host}"
    mean = least / QUANTA_PER_GIB
    return f"each GPU must hold at least {mean:.1f} GiB on average, and {room}{host}"


def _hosts_decide(queries: Queries) -> bool:
    try:
        return queries.hosts_decide
    except LimitReached:
        return False


def room_text(problem: Problem) -> str:
    """What a GPU has."""
    node = problem.node_type
    return (
        f"{node.name} has {problem.capacity / QUANTA_PER_GIB:.1f} GiB usable ({node.hbm_gib:.1f} "
        f"less {problem.limits.memory_headroom:.0%} headroom)"
    )


def _host_text(problem: Problem) -> str:
    """That the optimizer state has no room on the hosts either, if so."""
    if not any(value != 0 for value in problem.domain("offload")):
        return ""
    needed = quanta(total_parameters(problem.model) * host_optimizer_bytes(problem, 100))
    each = needed / problem.gpus
    if each <= problem.host_capacity:
        return ""
    return (
        f"; with the optimizer on the hosts each GPU's rank keeps {each / QUANTA_PER_GIB:.1f} GiB "
        f"there, and {host_share(problem)}"
    )


def host_share(problem: Problem) -> str:
    """What a node's memory leaves for one of its GPUs."""
    node = problem.node_type
    return (
        f"the {node.host_memory_gib:,.0f} GiB of a node leave "
        f"{problem.host_capacity / QUANTA_PER_GIB:.1f} GiB for each of its {node.gpus_per_node} "
        f"GPUs ({HOST_RESERVE:.0%} reserved)"
    )
