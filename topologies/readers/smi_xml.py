"""``nvidia-smi -q -x`` of one node: GPUs, product, ids and health of the NVLink fabric."""

from __future__ import annotations

from dataclasses import replace

from meshplan.topologies.errors import TopologyFileError
from meshplan.topologies.inventory import Finding, Inventory
from meshplan.topologies.readers.fabric_ids import read_fabric_ids
from meshplan.topologies.readers.node_graph import MAX_NODE_GPUS
from meshplan.topologies.readers.xml_elements import Element

#: Values of the fabric's health that need no word.
_HEALTHY = {"", "n/a", "healthy"}


def read_smi_xml(root: Element, name: str = "this-node") -> Inventory:
    """Read the elements of ``nvidia-smi -q -x``; the node is called ``name``.

    Raises
    ------
    TopologyFileError
        If it has no GPU, more than a node can have, or GPUs of several domains.
    """
    gpus = [child for child in root.children if child.tag == "gpu"]
    if not 1 <= len(gpus) <= MAX_NODE_GPUS:
        raise TopologyFileError(
            f"the file has {len(gpus)} GPUs, but a node has 1 to {MAX_NODE_GPUS}",
            advice="give the output of nvidia-smi -q -x on a GPU node.",
            line=root.line,
        )
    rows, findings = [], []
    for index, gpu in enumerate(gpus):
        fabric = next((child for child in gpu.children if child.tag == "fabric"), None)
        if fabric is None:
            rows.append("N/A,")
            continue
        rows.append(f"{fabric.inner('clusterUuid') or 'N/A'},{fabric.inner('cliqueId')}")
        health = next((child for child in fabric.children if child.tag == "health"), None)
        summary = health.inner("summary") if health is not None else ""
        if summary.lower() not in _HEALTHY:
            text = f"GPU {index} has a fabric whose health is {summary[:40]!r}"
            findings.append(Finding("fabric-unhealthy", text, fabric.line))
    try:
        ids = read_fabric_ids("\n".join(rows), name)
    except TopologyFileError as error:
        raise TopologyFileError(error.message, advice=error.advice, line=root.line) from None
    product = gpus[0].inner("product_name")
    return replace(
        ids,
        form="nvidia-smi -q -x",
        products={name: product} if product else {},
        findings=(*ids.findings, *findings),
    )
