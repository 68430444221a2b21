"""How many GPUs of unequal NVLink domains the groups of a layout can really use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, islice

from meshplan.topologies.cluster import Cluster
from meshplan.topologies.errors import ClusterError


@dataclass(frozen=True)
class Part:
    """``gpus`` GPUs of a cluster, in each NVLink domain a multiple of ``group``."""

    gpus: int
    group: int


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


def packed_cluster(cluster: Cluster, group: int, most: int | None = None) -> Cluster:
    """The part of ``cluster`` that whole groups of ``group`` GPUs fill in each NVLink domain.

    The last GPUs of a domain are left idle, and with them nodes that no group touches; a domain
    that holds no group is left out.  With ``most`` only so many GPUs are used: under each leaf
    switch a multiple of the largest block for which that is possible, so that larger groups stay
    under one leaf; then those of the fewest leaves, and under each of the fewest domains.

    Raises
    ------
    ClusterError
        If ``group`` is below 1, no domain holds one, or ``most`` is none of their counts.
    """
    sizes = packed_sizes(cluster, group, most)
    if sizes == list(cluster.domains):
        return cluster
    per_node = cluster.node_type.gpus_per_node
    names = iter(cluster.node_names)
    kept: list[str] = []
    for gpus, size in zip(cluster.domains, sizes, strict=True):
        nodes = list(islice(names, -(-gpus // per_node)))
        kept += nodes[: -(-size // per_node)]
    kept_of_leaves = (sum(1 for one in leaf if sizes[one]) for leaf in _leaves(cluster))
    return replace(
        cluster,
        domains=tuple(size for size in sizes if size),
        leaf_domains=tuple(count for count in kept_of_leaves if count),
        node_names=tuple(kept),
    )


def packed_sizes(cluster: Cluster, group: int, most: int | None = None) -> list[int]:
    """GPUs of each NVLink domain that :func:`packed_cluster` keeps, 0 for those left out.

    Raises
    ------
    ClusterError
        As :func:`packed_cluster` does.
    """
    used = packed_gpus(cluster.domains, group)
    if not used:
        raise ClusterError(
            f"no NVLink domain holds a group of {group} GPUs; the largest has "
            f"{max(cluster.domains)}.",
            advice="give a smaller group.",
        )
    if most is not None and (most % group or not 1 <= most <= used):
        raise ClusterError(
            f"gpus ({most}) is no multiple of groups of {group} from {group} to {used:,}.",
            advice=f"use {min(max(most // group, 1) * group, used)}.",
        )
    room = [gpus // group * group for gpus in cluster.domains]
    return room if most is None else _fewest(room, _leaves(cluster), most, group)


def _leaves(cluster: Cluster) -> list[range]:
    """Indices of the domains under each leaf switch."""
    counts = cluster.domains_of_leaves
    ends = accumulate(counts)
    return [range(end - count, end) for end, count in zip(ends, counts, strict=True)]


def _fewest(room: Sequence[int], leaves: Sequence[range], wanted: int, group: int) -> list[int]:
    """GPUs of each domain so that ``wanted`` of them lie under few leaves, in large whole blocks.

    Each leaf gives a multiple of the largest block for which that is possible; the fullest leaves
    are taken, which no other choice beats, and of each the fullest domains.
    """
    rooms = [sum(room[index] for index in leaf) for leaf in leaves]
    block = _leaf_block(rooms, wanted, group)
    sizes = [0] * len(room)
    left = wanted
    for leaf in sorted(range(len(leaves)), key=lambda one: -(rooms[one] // block)):
        quota = min(rooms[leaf] // block * block, left)
        left -= quota
        for index in sorted(leaves[leaf], key=lambda one: -room[one]):
            sizes[index] = min(room[index], quota)
            quota -= sizes[index]
    return sizes


def _leaf_block(rooms: Sequence[int], wanted: int, group: int) -> int:
    """Largest block of which every leaf can give whole ones: doubles of the group, then any."""

    def fits(block: int) -> bool:
        return wanted % block == 0 and packed_gpus(rooms, block) >= wanted

    block = group
    while fits(2 * block):
        block *= 2
    times = wanted // block
    return next(block * n for n in range(times, 0, -1) if times % n == 0 and fits(block * n))


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


def segment_advice(nodes: int, most: int) -> str | None:
    """That so many nodes divide into small segments only, and better counts; None if they do not.

    Parameters
    ----------
    most
        Nodes of the largest NVLink domain: no segment is larger.
    """
    counts = nearest_node_counts(nodes, most)
    if most < 2 or nodes in counts:
        return None
    segment = segment_nodes(nodes, most)
    better = " or ".join(f"{one} (segment {segment_nodes(one, most)})" for one in counts)
    return f"{nodes} nodes divide into segments of {segment} at most; {better} is better"
