"""A cluster from what files say: cluster file x node type, with every decision told.

No single file suffices.  A Slurm file names nodes, leaves and blocks but no GPU and no bandwidth;
ids of the NVLink fabric name domains but no network; the figures come from the node type.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from meshplan.topologies.cluster import MAX_GPUS, Cluster
from meshplan.topologies.errors import ClusterError
from meshplan.topologies.findings import cluster_findings, node_findings
from meshplan.topologies.grouping import DomainSource, in_order, leaf_switches, nvlink_domains
from meshplan.topologies.inventory import Fabric, Finding, Inventory, NodeReading, counted, some
from meshplan.topologies.node_types import NodeType
from meshplan.topologies.packing import packed_cluster

#: Findings that a cluster keeps as notes for the reports about it.
MAX_NOTES = 12


@dataclass(frozen=True)
class ImportedCluster:
    """A cluster with what was understood and found.

    Attributes
    ----------
    cluster
        The cluster, its domains in the order in which ranks are placed.
    domain_source
        Where its NVLink domains come from: node, block, comment, leaf or id.
    histogram
        GPUs of an NVLink domain to the number of such domains, largest first.
    findings
        What a person should know, in the order of the files.
    """

    cluster: Cluster
    domain_source: str
    histogram: Mapping[int, int]
    findings: tuple[Finding, ...]


def assemble(
    name: str,
    inventories: Sequence[Inventory],
    node_type: NodeType,
    *,
    nodes: Sequence[NodeReading] = (),
    fabrics: Sequence[Fabric] = (),
    nvlink_domain: DomainSource = "auto",
    exclude: frozenset[str] = frozenset(),
    group: int | None = None,
    gpus: int | None = None,
) -> ImportedCluster:
    """Overlay files about the same nodes and make them a cluster of ``node_type``.

    Parameters
    ----------
    name
        What reports call the cluster.
    inventories
        What the files about nodes say; the order of nodes is that of the first file that has them.
    node_type
        GPUs of a node and all bandwidths.
    nodes
        What files about the inside of a node say; they are held against the type.
    fabrics
        What files about the network say: they give the oversubscription.
    nvlink_domain
        Where the NVLink domains come from.
    exclude
        Nodes to leave out.
    group
        Keep only what whole groups of so many GPUs fill in each NVLink domain.
    gpus
        Keep only so many GPUs, the first in rank order.

    Raises
    ------
    ClusterError
        If no file names nodes, a wanted source is not there, a domain is larger than NVLink can
        join, the files contradict the node type, or no domain holds a group.
    """
    told = [finding for one in inventories for finding in one.findings]
    told += [finding for one in nodes for finding in one.findings]
    told += [finding for one in fabrics for finding in one.findings]
    names = tuple(dict.fromkeys(node for one in inventories for node in one.nodes))
    if unknown := sorted(exclude.difference(names)):
        raise ClusterError(
            f"the node {unknown[0]!r} to leave out is in no file.", advice="check the name."
        )
    names = tuple(node for node in names if node not in exclude)
    if not names:
        raise ClusterError(
            "no file names a node that is left.",
            advice="add a topology.conf, the node labels, or ids of the NVLink fabric.",
        )
    told += _missing(inventories, names)
    told += node_findings(nodes, node_type)
    source, domain_of, why = nvlink_domains(inventories, names, node_type, nvlink_domain)
    told += why
    leaf_of, leaf_told = leaf_switches(inventories, fabrics, names)
    told += leaf_told
    counts = _gpus(inventories, names, node_type)
    members: dict[str, list[str]] = {}
    for node in names:
        members.setdefault(domain_of[node], []).append(node)
    order, leaf_domains, order_told = in_order(members, leaf_of)
    told += order_told
    sizes = [_domain_size(domain, members[domain], counts, node_type) for domain in order]
    if sum(sizes) > MAX_GPUS:
        raise ClusterError(
            f"the files name {sum(sizes):,} GPUs, more than {MAX_GPUS:,}.",
            advice="leave out nodes that the run will not have.",
        )
    ratio, ratio_told = _oversubscription(fabrics)
    told += ratio_told
    cluster = Cluster(
        name,
        node_type,
        tuple(sizes),
        oversubscription=ratio,
        leaf_domains=leaf_domains,
        node_names=tuple(node for domain in order for node in members[domain]),
    )
    return imported(cluster, source, told, cluster_findings(cluster, inventories), group, gpus)


def imported(
    cluster: Cluster,
    source: str,
    decided: Sequence[Finding],
    judged: Sequence[Finding],
    group: int | None = None,
    gpus: int | None = None,
) -> ImportedCluster:
    """The part of ``cluster`` that is kept, with its findings.

    Parameters
    ----------
    cluster
        All that the files have.
    source
        Where its NVLink domains come from.
    decided
        Findings about the files and what was made of them; they become notes of the cluster.
    judged
        Findings about the cluster as a whole.
    group, gpus
        As for :func:`assemble`.

    Raises
    ------
    ClusterError
        If no domain holds a group, or ``gpus`` is no count of whole groups.
    """
    idle: list[Finding] = []
    if group is not None or gpus is not None:
        whole, cluster = cluster, packed_cluster(cluster, group or 1, gpus)
        idle = _idle(whole, cluster, group or 1)
    notes = tuple(f"{one.id}: {one}" for one in (*idle, *decided))
    return ImportedCluster(
        replace(cluster, notes=notes[:MAX_NOTES]),
        source,
        dict(sorted(Counter(cluster.domains).items(), reverse=True)),
        (*decided, *judged, *idle),
    )


def _idle(whole: Cluster, used: Cluster, group: int) -> list[Finding]:
    """A finding about the GPUs that whole groups leave idle."""
    if used.gpus == whole.gpus:
        return []
    text = f"{whole.gpus - used.gpus:,} of {whole.gpus:,} GPUs are left idle"
    if group > 1:
        text += f", so that each NVLink domain holds whole groups of {group}"
    if gone := len(whole.domains) - len(used.domains):
        text += f"; {counted(gone, 'domain is', 'domains are')} not used"
    return [Finding("idle-gpus", text)]


def _missing(inventories: Sequence[Inventory], names: tuple[str, ...]) -> list[Finding]:
    """Findings about nodes that one file has and another has not."""
    findings = []
    for one in inventories if len(inventories) > 1 else ():
        own = set(one.nodes)
        if absent := [node for node in names if node not in own]:
            text = (
                f"not in the {one.form}: {counted(len(absent), 'node', 'nodes')}"
                f" of other files, {some(absent)}"
            )
            file = one.findings[0].file if one.findings else ""
            findings.append(Finding("in-one-file-only", text, file=file))
    return findings


def _gpus(
    inventories: Sequence[Inventory], names: tuple[str, ...], node_type: NodeType
) -> dict[str, int]:
    """GPUs of each node: from the files where they say, else from the type."""
    said: dict[str, int] = {}
    for one in inventories:
        said |= one.gpus
    if more := [node for node in names if said.get(node, 1) > node_type.gpus_per_node]:
        raise ClusterError(
            f"node {more[0]!r} has {said[more[0]]} GPUs, a node of {node_type.name} has "
            f"{node_type.gpus_per_node}.",
            advice="choose the node type that fits.",
        )
    return {node: said.get(node, node_type.gpus_per_node) for node in names}


def _domain_size(
    domain: str, nodes: list[str], gpus: Mapping[str, int], node_type: NodeType
) -> int:
    """GPUs of a domain; its nodes are full but for the last, as ranks are counted through them."""
    for node in nodes[:-1]:
        if gpus[node] != node_type.gpus_per_node:
            raise ClusterError(
                f"node {node!r} of the NVLink domain {domain!r} has {gpus[node]} GPUs instead of "
                f"{node_type.gpus_per_node}.",
                advice=f"leave it out: --exclude {node}.",
            )
    size = sum(gpus[node] for node in nodes)
    if size > node_type.nvlink_domain_gpus:
        raise ClusterError(
            f"the NVLink domain {domain!r} has {len(nodes)} nodes and {size} GPUs; NVLink joins "
            f"{node_type.nvlink_domain_gpus} of {node_type.name}.",
            advice="choose another node type, or --nvlink-domain node.",
        )
    return size


def _oversubscription(fabrics: Sequence[Fabric]) -> tuple[float, list[Finding]]:
    """Worst ratio of downlinks to uplinks over all leaves."""
    rated = [
        (leaf.down_gbit / leaf.up_gbit, leaf.name)
        for one in fabrics
        for leaf in one.leaves
        if leaf.up_gbit
    ]
    if not rated:
        text = "no file has the uplinks of the leaf switches: a non-blocking network is assumed"
        return 1.0, [Finding("oversubscription-unknown", text)]
    ratio, name = max(rated)
    if ratio <= 1:
        return 1.0, []
    text = f"the most loaded leaf switch, {name}, has {ratio:.3g} of downlinks for each uplink"
    return round(ratio, 4), [Finding("oversubscription", f"{text}; taken for all")]
