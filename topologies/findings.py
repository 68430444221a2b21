"""What a person should know about an assembled cluster: unequal domains, waste, poor divisors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from meshplan.topologies.cluster import Cluster
from meshplan.topologies.errors import ClusterError
from meshplan.topologies.inventory import Finding, Inventory, NodeReading, counted, some
from meshplan.topologies.node_types import NodeType
from meshplan.topologies.packing import packed_gpus, segment_advice


def cluster_findings(cluster: Cluster, inventories: Sequence[Inventory]) -> list[Finding]:
    """Findings about the cluster as a whole."""
    kind = cluster.node_type
    findings = [
        Finding(
            "bandwidth-from-type",
            f"no topology file holds usable bandwidths; NVLink {kind.nvlink_gbps:g} and NIC "
            f"{kind.nic_gbps:g} GB/s per GPU are those of {kind.name}",
        )
    ]
    sizes = Counter(cluster.domains)
    if len(sizes) > 1:
        listed = ", ".join(f"{count} of {gpus}" for gpus, count in sorted(sizes.items())[::-1])
        text = f"NVLink domains are unequal: {listed} GPUs"
        findings.append(Finding("unequal-domains", text))
    findings += _groups(cluster)
    findings += _segment(cluster)
    findings += _products(inventories, kind)
    return findings


def _groups(cluster: Cluster) -> list[Finding]:
    """A finding if groups of some power of two leave GPUs idle."""
    largest = max(cluster.domains)
    powers = [2**power for power in range(1, largest.bit_length()) if 2**power <= largest]
    used = {group: packed_gpus(cluster.domains, group) for group in powers}
    wasteful = [
        f"{group} use {gpus:,} ({gpus / cluster.gpus:.1%})"
        for group, gpus in used.items()
        if gpus < cluster.gpus
    ]
    if not wasteful:
        return []
    text = f"of {cluster.gpus:,} GPUs, groups that stay inside one NVLink domain leave some idle"
    return [Finding("group-leaves-gpus", f"{text}: groups of {', '.join(wasteful)}")]


def _segment(cluster: Cluster) -> list[Finding]:
    """A finding if Slurm's ``--segment`` for all nodes is far below a domain."""
    domain_nodes = -(-max(cluster.domains) // cluster.node_type.gpus_per_node)
    text = segment_advice(cluster.nodes, domain_nodes)
    return [] if text is None else [Finding("poor-segment", text)]


def _products(inventories: Sequence[Inventory], kind: NodeType) -> list[Finding]:
    """A finding for each GPU product that is not the type's."""
    others: dict[str, list[str]] = {}
    model = kind.gpu.split()[0].lower()
    for one in inventories:
        for node, product in one.products.items():
            if model not in product.lower().replace("-", " ").split():
                others.setdefault(product, []).append(node)
    return [
        Finding("other-product", f"{counted(len(nodes), 'node has', 'nodes have')}"
        f" {product!r}, not {kind.gpu}: "
                f"{some(nodes)}")
        for product, nodes in others.items()
    ]  # fmt: skip


def node_findings(nodes: Sequence[NodeReading], kind: NodeType) -> list[Finding]:
    """What files about the inside of a node say against its type.

    Raises
    ------
    ClusterError
        If the node has another number of GPUs, or other NVLink islands, than the type.
    """
    findings = []
    for one in nodes:
        if one.gpus != kind.gpus_per_node:
            raise ClusterError(
                f"the {one.form} shows {one.gpus} GPUs, a node of {kind.name} has "
                f"{kind.gpus_per_node}.",
                advice="choose the node type that fits, or give the whole file.",
            )
        if not one.islands:
            continue
        sizes = sorted((len(island) for island in one.islands), reverse=True)
        if sizes[0] == 1:
            findings.append(
                Finding(
                    "nvlink-not-shown",
                    f"the {one.form} shows no NVLink, as inside a virtual machine: what "
                    f"{kind.name} has is taken",
                )
            )
        elif len(sizes) > 1:
            listed = ", ".join(str(size) for size in sizes)
            raise ClusterError(
                f"the {one.form} shows NVLink islands of {listed} GPUs, a node of {kind.name} is "
                "one island.",
                advice="repair or leave out that node if a GPU lost its NVLink; no node type with "
                "several islands is known.",
            )
        elif (rate := _link_gbps(one, kind)) and abs(rate / kind.nvlink_gbps - 1) > 0.02:
            text = (
                f"the {one.form} shows {one.nvlinks[0]} NVLinks a GPU, {rate:g} GB/s if they are "
                f"of {kind.gpu}; {kind.name} has {kind.nvlink_gbps:g}, which is taken"
            )
            findings.append(Finding("nvlink-rate-differs", text))
    return findings


def _link_gbps(one: NodeReading, kind: NodeType) -> float:
    """Bandwidth of the NVLinks of one GPU: 25 GB/s a link up to Hopper, 50 from Blackwell on."""
    return min(one.nvlinks, default=0) * (50.0 if kind.compute_capability >= 10 else 25.0)
