"""Node labels of Kubernetes (``kubectl get nodes -o json``): NVLink domains, leaves, node types.

The labels that are read, by who sets them: GPU feature discovery, topograph, AWS, Google, Oracle
and CoreWeave.  Values are unique only below their parent, so a leaf is named by its whole path.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from meshplan.topologies.errors import TopologyFileError
from meshplan.topologies.inventory import Finding, Inventory, Leaf, counted, some
from meshplan.topologies.readers.fabric_ids import check_node, id_findings, is_zero
from meshplan.topologies.readers.hostlist import MAX_NAMES

#: Labels that name an NVLink domain, the most exact first.
_DOMAINS = (
    "nvidia.com/gpu.clique",
    "accelerator.topograph.run/domain",
    "network.topology.nvidia.com/accelerator",
    "ds.coreweave.com/nvlink.domain",
)

#: Labels of the network, each set from the top down to what a leaf switch is.
_NETWORKS = (
    tuple(f"network.topology.nvidia.com/{level}" for level in ("core", "spine", "leaf")),
    tuple(f"network.topology.nvidia.com/{level}" for level in ("datacenter", "spine", "block")),
    tuple(f"topology.k8s.aws/network-node-layer-{level}" for level in (1, 2, 3)),
    tuple(f"cloud.google.com/gce-topology-{level}" for level in ("block", "subblock")),
    tuple(
        f"oci.oraclecloud.com/rdma.{level}"
        for level in ("hpc_island_id", "network_block_id", "local_block_id")
    ),
)
_PRODUCT, _COUNT, _RESOURCE = "nvidia.com/gpu.product", "nvidia.com/gpu.count", "nvidia.com/gpu"


def read_node_labels(text: str) -> Inventory:
    """Read the JSON of ``kubectl get nodes -o json``.

    Raises
    ------
    TopologyFileError
        If it is no such JSON, a node has no name or two have the same, or none has GPUs.
    """
    nodes = _items(text)
    labels: dict[str, dict[str, str]] = {}
    gpus: dict[str, int] = {}
    without: list[str] = []
    for index, item in enumerate(nodes):
        name, own, count = _node(item, index)
        if name in labels or name in without:
            raise TopologyFileError(
                f"the node {name!r} is there twice", advice="give the list of one moment only."
            )
        if count == 0 or not (count or _PRODUCT in own or any(key in own for key in _DOMAINS)):
            without.append(name)
            continue
        labels[name] = own
        if count:
            gpus[name] = count
    if not labels:
        raise TopologyFileError(
            f"none of the {len(nodes)} nodes has GPUs by its labels",
            advice=f"check that GPU feature discovery sets {_PRODUCT}.",
        )
    findings = []
    if without:
        text = (
            f"{counted(len(without), 'node without GPUs is', 'nodes without GPUs are')}"
            f" left out: {some(without)}"
        )
        findings.append(Finding("node-without-gpus", text))
    ids, told = _ids(labels)
    findings += told
    leaves = _leaves(labels)
    return Inventory(
        "Kubernetes node labels",
        tuple(labels),
        leaves=leaves,
        switches=len(leaves),
        ids=ids,
        gpus=gpus,
        products={name: own[_PRODUCT] for name, own in labels.items() if _PRODUCT in own},
        findings=tuple(findings),
    )


def _items(text: str) -> list[Any]:
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise TopologyFileError(
            f"malformed JSON: {error.msg}", advice="give the whole output.", line=error.lineno
        ) from None
    except (RecursionError, ValueError):  # too deep, or a number of thousands of digits
        raise TopologyFileError(
            "the JSON is nested too deep, or has a number that is too long",
            advice="give the output of kubectl get nodes -o json.",
        ) from None
    if isinstance(data, dict) and data.get("kind") == "Node":
        data = {"items": [data]}
    items = data.get("items") if isinstance(data, dict) else None
    if not isinstance(items, list) or len(items) > MAX_NAMES:
        raise TopologyFileError(
            "the JSON is no list of nodes",
            advice="give the output of kubectl get nodes -o json.",
            line=1,
        )
    return items


def _node(item: Any, index: int) -> tuple[str, dict[str, str], int | None]:
    """Name, labels and number of GPUs (None: not said) of a node."""
    metadata = item.get("metadata") if isinstance(item, Mapping) else None
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    written = metadata.get("labels") if isinstance(metadata, Mapping) else None
    written = {} if written is None else written
    if not isinstance(name, str) or not isinstance(written, Mapping):
        raise TopologyFileError(
            f"items[{index}] has no metadata with a name and labels",
            advice="give the output of kubectl get nodes -o json.",
        )
    check_node(name, None)
    labels = {key: value for key, value in written.items() if isinstance(value, str) and value}
    status = item.get("status")
    capacity = status.get("capacity") if isinstance(status, Mapping) else None
    said: object = labels.get(_COUNT)
    if said is None and isinstance(capacity, Mapping):
        said = capacity.get(_RESOURCE)
    if said is None:
        return name, labels, None
    if not isinstance(said, str) or not said.isascii() or not said.isdigit() or len(said) > 4:
        raise TopologyFileError(
            f"node {name!r} has {str(said)[:40]!r} GPUs", advice=f"check the label {_COUNT}."
        )
    return name, labels, int(said)


def _ids(labels: Mapping[str, Mapping[str, str]]) -> tuple[dict[str, str | None], list[Finding]]:
    """Node to domain by the most exact label that any node has, and findings."""
    key = next((key for key in _DOMAINS if any(key in own for own in labels.values())), None)
    if key is None:
        return {}, []
    ids: dict[str, str | None] = {}
    for name, own in labels.items():
        value = own.get(key)
        uuid = value.rpartition(".")[0] if value and key == _DOMAINS[0] else ""
        ids[name] = None if value is None or (uuid and is_zero(uuid)) else value
    findings = []
    if zero := [name for name, own in labels.items() if key in own and ids[name] is None]:
        findings.append(_zero(zero))
    if key == _DOMAINS[0]:
        pairs = {value: (value.rpartition(".")[0], value.rpartition(".")[2]) for value in
                 ids.values() if value is not None}  # fmt: skip
        findings += id_findings(pairs.values())
    return ids, findings


def _zero(nodes: list[str]) -> Finding:
    return Finding(
        "zero-uuid",
        f"{counted(len(nodes), 'node has', 'nodes have')}"
        f" the all-zero UUID, which means no NVLink beyond the node: "
        f"{some(nodes)}",
    )


def _leaves(labels: Mapping[str, Mapping[str, str]]) -> tuple[Leaf, ...]:
    """Leaves by the first set of network labels whose finest one any node has."""
    keys = next((keys for keys in _NETWORKS if any(keys[-1] in own for own in labels.values())), ())
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, own in labels.items():
        if keys and keys[-1] in own:
            groups.setdefault(tuple(own.get(key, "") for key in keys), []).append(name)
    return tuple(
        Leaf("/".join(path), tuple(nodes), tuple(reversed(path[:-1])), 0)
        for path, nodes in sorted(groups.items())
    )
