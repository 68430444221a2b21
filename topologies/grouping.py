"""Which nodes share an NVLink domain and which a leaf switch, from all that the files say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from meshplan.topologies.errors import ClusterError
from meshplan.topologies.inventory import Fabric, Finding, Inventory, Leaf, counted, some
from meshplan.topologies.node_types import NodeType

#: Where the NVLink domains come from; ``auto``: the best of what the files have.
DomainSource: TypeAlias = Literal["auto", "node", "block", "comment", "leaf", "id"]


def nvlink_domains(
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
                f"{counted(len(alone), 'node has', 'nodes have')}"
                f" no {source} that says the NVLink domain, so each is "
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


def leaf_switches(
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
        text = (
            f"{counted(len(alone), 'node has', 'nodes have')}"
            f" no leaf switch, so each gets one of its own: {some(alone)}"
        )
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


def in_order(
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
        text = (
            f"{counted(len(across), 'NVLink domain hangs', 'NVLink domains hang')}"
            f" below several leaves"
        )
        findings.append(
            Finding("domain-across-leaves", f"{text}: {some(across)}; each gets a leaf of its own")
        )
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
