"""A cluster from what files say: cluster file x node type, with every decision told.

No single file suffices.  A Slurm file names nodes, leaves and blocks but no GPU and no bandwidth;
ids of the NVLink fabric name domains but no network; the figures come from the node type.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from meshplan.topologies.cluster import MAX_GPUS, Cluster
from meshplan.topologies.errors import ClusterError
from meshplan.topologies.findings import cluster_findings, node_findings
from meshplan.topologies.inventory import Fabric, Finding, Inventory, Leaf, NodeReading, some
from meshplan.topologies.node_types import NodeType

#: Findings that a cluster keeps as notes for the reports about it.
MAX_NOTES = 12

#: Where the NVLink domains come from; ``auto``: the best of what the files have.
DomainSource: TypeAlias = Literal["auto", "node", "block", "comment", "leaf", "id"]


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

    Raises
    ------
    ClusterError
        If no file names nodes, a wanted source is not there, a domain is larger than NVLink can
        join, or the files contradict the node type.
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
    source, domain_of, why = _domains(inventories, names, node_type, nvlink_domain)
    told += why
    leaf_of, leaf_told = _leaves(inventories, fabrics, names)
    told += leaf_told
    gpus = _gpus(inventories, names, node_type)
    members: dict[str, list[str]] = {}
    for node in names:
        members.setdefault(domain_of[node], []).append(node)
    order, leaf_domains, order_told = _order(members, leaf_of)
    told += order_told
    sizes = [_domain_size(domain, members[domain], gpus, node_type) for domain in order]
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
        notes=tuple(f"{one.id}: {one}" for one in told)[:MAX_NOTES],
        leaf_domains=leaf_domains,
        node_names=tuple(node for domain in order for node in members[domain]),
    )
    counts = Counter(sizes)
    told += cluster_findings(cluster, inventories)
    return ImportedCluster(
        cluster,
        source,
        dict(sorted(counts.items(), reverse=True)),
        tuple(told),
    )


def _missing(inventories: Sequence[Inventory], names: tuple[str, ...]) -> list[Finding]:
    """Findings about nodes that one file has and another has not."""
    findings = []
    for one in inventories if len(inventories) > 1 else ():
        own = set(one.nodes)
        if absent := [node for node in names if node not in own]:
            text = f"{len(absent)} nodes of other files are not in the {one.form}: {some(absent)}"
            file = one.findings[0].file if one.findings else ""
            findings.append(Finding("in-one-file-only", text, file=file))
    return findings


def _domains(
    inventories: Sequence[Inventory],
    names: tuple[str, ...],
    node_type: NodeType,
    wanted: DomainSource,
) -> tuple[str, dict[str, str], list[Finding]]:
    """Source of the domains, node to domain, and what to tell about it."""
    found: dict[str, dict[str, str]] = {"id": {}, "comment": {}, "block": {}, "leaf": {}}
    for one in inventories:
        found["id"] |= {node: key for node, key in one.ids.items() if key is not None}
        for block in one.blocks:
            for node in block.nodes:
                found["block"].setdefault(node, block.name)
                if block.domain is not None:
                    found["comment"].setdefault(node, block.domain)
        for leaf in one.leaves:
            for node in leaf.nodes:
                found["leaf"].setdefault(node, leaf.name)
    has_ids = any(one.ids for one in inventories)
    several = node_type.multi_node_nvlink
    if wanted == "auto":
        source = "node"
        if several:
            order = ("comment", "block") if not has_ids else ("id",)
            source = next((kind for kind in order if found[kind]), "node")
    else:
        source = wanted
    findings: list[Finding] = []
    if source == "node":
        if several and wanted == "auto":
            reason = (
                "none of the nodes has an id of a fabric that reaches beyond it"
                if has_ids
                else "no file says which nodes share one"
            )
            findings.append(
                Finding(
                    "domains-unknown",
                    f"NVLink domains of {node_type.name} reach beyond the node, but {reason}: each "
                    "node is taken as a domain; maybe add the ids of the fabric, or say that a "
                    "leaf or block is a domain",
                )
            )
        return source, {node: f"node {node}" for node in names}, findings
    if not found[source]:
        what = {
            "id": "ids of a fabric across nodes",
            "comment": "comments with NVLink domains",
            "block": "blocks",
            "leaf": "leaf switches",
        }[source]
        raise ClusterError(
            f"the NVLink domains shall come from {source}, but the files have no {what}.",
            advice="leave it at auto, or add the file that has them.",
        )
    own = {node: found[source].get(node) for node in names}
    if alone := [node for node, key in own.items() if key is None]:
        findings.append(
            Finding(
                "node-without-domain",
                f"{len(alone)} nodes have no {source} that says their NVLink domain, so each is "
                f"one of its own: {some(alone)}",
            )
        )
    if source == "block":
        findings.append(
            Finding(
                "block-as-domain",
                "each block is taken as one NVLink domain, as is usual for racks; no comment and "
                "no id confirms it",
            )
        )
    # A space keeps a made key apart from all that a file can say.
    return source, {node: key or f"node {node}" for node, key in own.items()}, findings


def _leaves(
    inventories: Sequence[Inventory], fabrics: Sequence[Fabric], names: tuple[str, ...]
) -> tuple[dict[str, str], list[Finding]]:
    """Node to leaf, from the first tree, else from physical leaves; empty where no file has any."""
    trees = [one.leaves for one in inventories if one.leaves]
    # A node touches a leaf on each rail; those of one rail stand for all.
    physical: tuple[Leaf, ...] = ()
    if fabrics and not trees:
        physical = _first_rail(fabrics[0], set(names))
    if not trees and not physical:
        return {}, [
            Finding(
                "leaves-unknown",
                "no file says which nodes share a leaf switch: 16 nodes are assumed to",
            )
        ]
    wanted = set(names)
    leaf_of: dict[str, str] = {}
    for leaf in trees[0] if trees else physical:
        for node in leaf.nodes:
            if node in wanted:
                leaf_of.setdefault(node, leaf.name)
    if alone := [node for node in names if node not in leaf_of]:
        text = f"{len(alone)} nodes have no leaf switch, so each gets one of its own: {some(alone)}"
        return leaf_of, [Finding("in-no-leaf", text)]
    return leaf_of, []


def _first_rail(fabric: Fabric, names: set[str]) -> tuple[Leaf, ...]:
    """Leaves of the card that most of the named nodes have, of several the first by name."""
    hosts: Counter[str] = Counter()
    for leaf in fabric.leaves:
        hosts[leaf.card] += sum(1 for host in leaf.hosts if host in names)
    card = min(hosts, key=lambda one: (-hosts[one], one))
    if not hosts[card]:
        return ()
    return tuple(Leaf(leaf.name, leaf.hosts, (), 0) for leaf in fabric.leaves if leaf.card == card)


def _order(
    members: Mapping[str, list[str]], leaf_of: Mapping[str, str]
) -> tuple[list[str], tuple[int, ...], list[Finding]]:
    """Domains in rank order, domains under each leaf, and findings."""
    if not leaf_of:
        return list(members), (), []
    place = {leaf: index for index, leaf in enumerate(dict.fromkeys(leaf_of.values()))}
    key_of: dict[str, tuple[int, str]] = {}
    across: list[str] = []
    for domain, nodes in members.items():
        leaves = dict.fromkeys(leaf_of.get(node, f"node {node}") for node in nodes)
        first = min(place.get(leaf, len(place)) for leaf in leaves)
        if len(leaves) > 1:
            across.append(domain)
        # A domain under several leaves shares none of them wholly, so it counts as its own.
        key_of[domain] = (first, "" if len(leaves) == 1 and first < len(place) else domain)
    order = sorted(members, key=lambda domain: key_of[domain])
    findings = []
    if across:
        text = f"{len(across)} NVLink domains hang below several leaf switches: {some(across)}"
        findings.append(Finding("domain-across-leaves", f"{text}; each gets a leaf of its own"))
    if order != list(members):
        text = "domains are put into the order of the leaf switches, not that of the file"
        findings.append(Finding("reordered", text))
    counts: list[int] = []
    before: tuple[int, str] | None = None
    for domain in order:
        if key_of[domain] == before:
            counts[-1] += 1
        else:
            counts.append(1)
        before = key_of[domain]
    return order, tuple(counts), findings


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
