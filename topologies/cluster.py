"""A cluster: NVLink domains of one node type, and what the solver asks about them.

The queries are the compressed form of :func:`meshplan.topologies.topology_graph`: the same answers
by arithmetic on runs of equal domains, without a vertex for every GPU.  Tests hold the two to each
other.  How ranks become groups: Megatron-LM d98e8a64 ``parallel_state.py`` (strides of the rank
grid); ranks are placed domain by domain, in the order of ``Cluster.domains``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import islice

from meshplan.topologies.borders import (
    Run,
    Tier,
    aligned,
    groups_without_border,
    longest_piece,
    runs_of,
    straddling_blocks,
)
from meshplan.topologies.errors import ClusterError
from meshplan.topologies.node_types import NodeType, node_type

#: Most GPUs that a cluster may have.
MAX_GPUS = 1_048_576

_NO_NOTES: tuple[str, ...] = ()


@dataclass(frozen=True)
class Cluster:
    """GPUs of one node type in NVLink domains that may be unequal.

    Attributes
    ----------
    name
        What reports call it.
    node_type
        Figures of GPU, node and links.
    domains
        GPUs of each NVLink domain, in the order in which ranks are placed.
    nodes_per_leaf
        Nodes that share a leaf switch on each rail.  Leaves take whole domains in order; a domain
        never straddles leaves, so one with more nodes than this has leaves of its own (in public
        NVL72 clusters a rack and a rail make one leaf).
    oversubscription
        Downlink over uplink bandwidth of a leaf; 1.0 is a non-blocking fabric.
    notes
        What was decided when the cluster was built, for the reader of a report.
    leaf_domains
        NVLink domains under each leaf, in order, where the leaves are known; then
        ``nodes_per_leaf`` says nothing.
    node_names
        Names of the nodes in rank order, where they are known.

    Raises
    ------
    ClusterError
        If a domain is empty or larger than NVLink can join, or a figure is out of bounds.
    """

    name: str
    node_type: NodeType
    domains: tuple[int, ...]
    nodes_per_leaf: int = 16
    oversubscription: float = 1.0
    notes: tuple[str, ...] = ()
    leaf_domains: tuple[int, ...] = ()
    node_names: tuple[str, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        largest = self.node_type.nvlink_domain_gpus
        if not self.domains:
            raise ClusterError("domains ([]) is empty.", advice="give GPUs per domain: [8, 8].")
        for index, gpus in enumerate(self.domains):
            if _as_int(gpus) is None or not 1 <= gpus <= largest:
                raise ClusterError(
                    f"domains[{index}] ({gpus!r}) is not a whole number from 1 to {largest}, "
                    f"the GPUs of an NVLink domain of {self.node_type.name}.",
                    advice="list each NVLink domain on its own, or choose another preset.",
                )
        _check_whole("gpus", sum(self.domains), MAX_GPUS)
        if _as_int(self.nodes_per_leaf) is None or self.nodes_per_leaf < 1:
            raise ClusterError(f"nodes_per_leaf ({self.nodes_per_leaf!r}) is not at least 1.")
        if not 1.0 <= self.oversubscription < math.inf:
            raise ClusterError(
                f"oversubscription ({self.oversubscription!r}) is not a finite number >= 1.",
                advice="use 1.0 for a non-blocking fabric, 2.0 if half the uplinks are there.",
            )
        if self.leaf_domains and (
            min(self.leaf_domains) < 1 or sum(self.leaf_domains) != len(self.domains)
        ):
            raise ClusterError(
                f"the leaves hold {sum(self.leaf_domains)} NVLink domains, the cluster has "
                f"{len(self.domains)}.",
                advice="count each domain under one leaf.",
            )
        if self.node_names and len(self.node_names) != self.nodes:
            raise ClusterError(
                f"{len(self.node_names)} nodes have names, the cluster has {self.nodes}.",
                advice="name every node once, or none.",
            )

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        # Thousands of domains make hashing slow, and every cached query hashes the cluster.
        # Numbers only: hashes of strings differ between processes, and this one is pickled along.
        return hash((self.domains, self.nodes_per_leaf, self.oversubscription, self.leaf_domains))

    @cached_property
    def gpus(self) -> int:
        """GPUs of all domains."""
        return sum(self.domains)

    @cached_property
    def nodes(self) -> int:
        """Nodes of all domains; one that is only partly used counts."""
        return sum(self._nodes_of(run.size) * run.count for run in self._domain_runs)

    @cached_property
    def node_gpus(self) -> int:
        """GPUs of the fullest node: fewer than a node has where the domains leave some out."""
        return min(max(self.domains), self.node_type.gpus_per_node)

    @cached_property
    def domain_gpus(self) -> int:
        """GPUs of the smallest NVLink domain: a block that divides it and all others fits."""
        return min(self.domains)

    @cached_property
    def leaves(self) -> tuple[int, ...]:
        """GPUs under each leaf (of all rails together), in rank order."""
        domains = iter(self.domains)
        return tuple(sum(islice(domains, count)) for count in self.domains_of_leaves)

    @cached_property
    def domains_of_leaves(self) -> tuple[int, ...]:
        """NVLink domains under each leaf, in rank order, also where the leaves are not known."""
        if self.leaf_domains:
            return self.leaf_domains
        counts: list[int] = []
        used_nodes = 0
        for gpus in self.domains:
            nodes = self._nodes_of(gpus)
            if counts and used_nodes + nodes <= self.nodes_per_leaf:
                counts[-1] += 1
                used_nodes += nodes
            else:
                counts.append(1)
                used_nodes = nodes
        return tuple(counts)

    @cached_property
    def _domain_runs(self) -> tuple[Run, ...]:
        return runs_of(self.domains)

    @cached_property
    def _leaf_runs(self) -> tuple[Run, ...]:
        return runs_of(self.leaves)

    def _nodes_of(self, gpus: int) -> int:
        return -(-gpus // self.node_type.gpus_per_node)

    def tier(self, block: int) -> Tier:
        """Widest tier that any aligned block of ``block`` consecutive ranks crosses.

        This is also the widest tier that any group of ``n > 1`` ranks with stride ``block / n``
        crosses, whatever ``n``.  A last block that the cluster cuts short counts; a block larger
        than the cluster means all of it.

        Raises
        ------
        ClusterError
            If ``block`` is below 1.
        """
        _check_block("block", block)
        return _tier(self, block)

    def group_tier(self, size: int, stride: int) -> Tier:
        """Widest tier that any group of ``size`` ranks, ``stride`` apart, crosses.

        LOCAL for one rank.  Example: expert parallelism has size ``ep`` and stride ``etp``.

        Raises
        ------
        ClusterError
            If ``size`` or ``stride`` is below 1.
        """
        _check_block("size", size)
        _check_block("stride", stride)
        return Tier.LOCAL if size == 1 else _tier(self, size * stride)

    def fits_domain(self, block: int) -> bool:
        """Whether every aligned block of ``block`` ranks lies inside one NVLink domain.

        Raises
        ------
        ClusterError
            If ``block`` is below 1.
        """
        return self.tier(block) <= Tier.DOMAIN

    def blocks_inside(self, block: int) -> tuple[int, int]:
        """Aligned blocks of ``block`` ranks wholly inside an NVLink domain, and all blocks.

        Full racks of 72 break power-of-two blocks: of 8 blocks of 32 in 256 GPUs, 5 stay inside.

        Raises
        ------
        ClusterError
            If ``block`` is below 1.
        """
        _check_block("block", block)
        return _blocks_inside(self, block)

    def groups_inside(self, size: int, stride: int) -> tuple[int, int]:
        """Groups of ``size`` ranks, ``stride`` apart, wholly inside a domain, and all groups.

        Differs from :meth:`blocks_inside` times ``stride`` where ``stride`` does not divide the
        domains: then a block that straddles a border can still hold whole groups.

        Raises
        ------
        ClusterError
            If ``size`` or ``stride`` is below 1, or ``size * stride`` does not divide the GPUs.
        """
        _check_block("size", size)
        _check_block("stride", stride)
        if self.gpus % (size * stride):
            raise ClusterError(
                f"size * stride ({size} * {stride}) does not divide the {self.gpus} GPUs, so the "
                "ranks do not form such groups.",
            )
        return _groups_inside(self, size, stride)

    def ranks_per_domain(self, size: int, stride: int) -> int:
        """Most members of one group (``size`` ranks, ``stride`` apart) that share a domain.

        Raises
        ------
        ClusterError
            If ``size`` or ``stride`` is below 1.
        """
        _check_block("size", size)
        _check_block("stride", stride)
        return _ranks_per_domain(self, size, stride)

    def ranks_per_leaf(self, size: int, stride: int) -> int:
        """Most members of one group (``size`` ranks, ``stride`` apart) that share a leaf.

        Raises
        ------
        ClusterError
            If ``size`` or ``stride`` is below 1.
        """
        _check_block("size", size)
        _check_block("stride", stride)
        return _ranks_per_leaf(self, size, stride)

    def ring_gbps(self, size: int, stride: int) -> float:
        """Bandwidth of the slowest hop of a ring over such a group, GB/s per GPU and direction.

        Of the hops between the domains that share a leaf one goes up to the spine, so an
        oversubscribed leaf slows a ring only where fewer of its domains share it than that.
        """
        tier = self.group_tier(size, stride)
        if tier < Tier.SPINE:
            return self.link_gbps(tier)
        domains = self.ranks_per_leaf(size, stride) / self.ranks_per_domain(size, stride)
        return self.node_type.nic_gbps * min(1.0, max(1.0, domains) / self.oversubscription)

    def exchange_gbps(self, size: int, stride: int) -> float:
        """Bandwidth of the network in an all-to-all over such a group, GB/s per GPU and direction.

        What goes to members under other leaves passes the spine.
        """
        tier = self.group_tier(size, stride)
        if tier < Tier.SPINE:
            return self.node_type.nic_gbps
        local, near = (
            min(size, members)
            for members in (self.ranks_per_domain(size, stride), self.ranks_per_leaf(size, stride))
        )
        share = (size - near) / (size - local) if size > local else 1.0
        return self.node_type.nic_gbps / max(1.0, share * self.oversubscription)

    def link_gbps(self, tier: Tier) -> float:
        """Specified bandwidth of the link of ``tier``, GB/s per GPU and direction.

        NVLink for NODE and DOMAIN, the NIC for LEAF, the NIC over the oversubscription for SPINE.
        LOCAL crosses no link: infinite.
        """
        if tier is Tier.LOCAL:
            return math.inf
        if tier <= Tier.DOMAIN:
            return self.node_type.nvlink_gbps
        if tier is Tier.LEAF:
            return self.node_type.nic_gbps
        return self.node_type.nic_gbps / self.oversubscription


def build_cluster(
    preset: str,
    *,
    gpus: int | None = None,
    nodes: int | None = None,
    domains: Sequence[int] | None = None,
) -> Cluster:
    """Build the cluster of a preset from exactly one of GPUs, nodes or GPUs per NVLink domain.

    ``domains`` are kept as they are, in order.  HGX nodes become domains of 8.  NVL72 racks: up
    to 72 GPUs are one domain; a multiple of 64 becomes domains of 64, as Megatron-Bridge does
    (performance guide), because full racks of 72 break power-of-two groups; anything else fills
    racks of 72.

    Raises
    ------
    UnknownName
        If no preset is called ``preset``.
    ClusterError
        If not exactly one count is given, or it is out of bounds or no whole number of nodes.
    """
    kind = node_type(preset)
    given = {"gpus": gpus, "nodes": nodes, "domains": domains}
    names = [name for name, value in given.items() if value is not None]
    if len(names) != 1:
        raise ClusterError(
            f"cluster of preset {preset!r} has {' and '.join(names) or 'no count'}: "
            "exactly one of gpus, nodes, domains is needed.",
            advice="keep gpus only." if names else "add gpus: 256.",
        )
    if domains is not None:
        sizes, notes = tuple(domains), _NO_NOTES
    else:
        if nodes is not None:
            per_node = kind.gpus_per_node
            gpus = _check_whole("nodes", nodes, MAX_GPUS // per_node) * per_node
        sizes, notes = _split(kind, _check_whole("gpus", gpus, MAX_GPUS))
    return Cluster(f"{preset} x {sum(sizes)}", kind, sizes, notes=notes)


def _split(kind: NodeType, gpus: int) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """NVLink domains of ``gpus`` GPUs, and notes on what was decided."""
    per_node = kind.gpus_per_node
    if gpus > per_node and gpus % per_node:
        below = gpus // per_node * per_node
        raise ClusterError(
            f"gpus ({gpus}) is not a multiple of the {per_node} GPUs of a {kind.name} node.",
            advice=f"use {below} or {below + per_node}, or list the GPUs of each NVLink domain "
            "in domains.",
        )
    rack, planned = kind.nvlink_domain_gpus, kind.planning_domain_gpus
    if gpus <= rack:
        return (gpus,), _NO_NOTES
    if planned < rack and gpus % planned == 0:
        note = (
            f"{planned} of the {rack} GPUs of each NVLink domain are used, so that power-of-two "
            "groups fit (Megatron-Bridge performance guide); list domains for another split."
        )
        return (planned,) * (gpus // planned), (note,)
    full, rest = divmod(gpus, rack)
    sizes = (rack,) * full + ((rest,) if rest else ())
    if planned == rack:
        return sizes, _NO_NOTES
    note = (
        f"{gpus} GPUs are no multiple of {planned}, so domains of {rack} are filled: "
        "power-of-two groups straddle their borders."
    )
    return sizes, (note,)


@lru_cache(maxsize=65536)
def _tier(cluster: Cluster, block: int) -> Tier:
    if min(block, cluster.gpus) == 1:
        return Tier.LOCAL
    if not aligned(cluster._leaf_runs, block):
        return Tier.SPINE
    if not aligned(cluster._domain_runs, block):
        return Tier.LEAF
    if not aligned(cluster._domain_runs, block, cluster.node_type.gpus_per_node):
        return Tier.DOMAIN
    return Tier.NODE


@lru_cache(maxsize=65536)
def _blocks_inside(cluster: Cluster, block: int) -> tuple[int, int]:
    blocks = -(-cluster.gpus // block)
    return blocks - straddling_blocks(cluster._domain_runs, block), blocks


@lru_cache(maxsize=65536)
def _groups_inside(cluster: Cluster, size: int, stride: int) -> tuple[int, int]:
    groups = cluster.gpus // size
    return groups_without_border(cluster._domain_runs, size, stride, groups), groups


@lru_cache(maxsize=65536)
def _ranks_per_domain(cluster: Cluster, size: int, stride: int) -> int:
    return -(-longest_piece(cluster._domain_runs, size * stride) // stride)


@lru_cache(maxsize=65536)
def _ranks_per_leaf(cluster: Cluster, size: int, stride: int) -> int:
    return -(-longest_piece(cluster._leaf_runs, size * stride) // stride)


def _as_int(value: object) -> int | None:
    # bool is an int in Python, but `gpus: true` in a file is a mistake.
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _check_block(field: str, value: int) -> None:
    if value < 1:
        raise ClusterError(f"{field} ({value}) is not at least 1.")


def _check_whole(field: str, value: object, most: int) -> int:
    number = _as_int(value)
    if number is None or not 1 <= number <= most:
        raise ClusterError(
            f"{field} ({value!r}) is not a whole number from 1 to {most}.",
            advice=f"give {field} as a positive whole number of at most {most}.",
        )
    return number
