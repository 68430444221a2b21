"""How many GPUs of unequal NVLink domains the groups of a layout can really use."""

from __future__ import annotations

from collections.abc import Iterable

from meshplan.topologies.errors import ClusterError


def packed_gpus(domains: Iterable[int], group: int) -> int:
    """GPUs that groups of ``group`` GPUs use, if no group leaves its NVLink domain.

    A domain of 72 GPUs holds one group of 64 and leaves 8 idle, or nine groups of 8.

    Raises
    ------
    ClusterError
        If ``group`` is below 1.
    """
    if group < 1:
        raise ClusterError(f"group ({group}) is not at least 1.")
    return sum(gpus // group * group for gpus in domains)


def segment_nodes(nodes: int, most: int) -> int:
    """Largest divisor of ``nodes`` that is at most ``most``: what tools give to ``--segment``."""
    return max(size for size in range(1, min(nodes, most) + 1) if nodes % size == 0)


def nearest_node_counts(nodes: int, most: int) -> tuple[int, ...]:
    """Node counts at and around ``nodes`` whose segment is at least half of ``most``.

    The next one below and above; ``nodes`` alone where it is good itself.
    """

    def is_good(count: int) -> bool:
        return 2 * segment_nodes(count, most) >= min(count, most)

    if is_good(nodes):
        return (nodes,)
    below = next((count for count in range(nodes - 1, 0, -1) if is_good(count)), None)
    above = next(count for count in range(nodes + 1, nodes + most + 1) if is_good(count))
    return (above,) if below is None else (below, above)
