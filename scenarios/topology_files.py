"""Topology files as a cluster: read, overlaid, and refused with file and line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from meshplan.scenarios.errors import InputError
from meshplan.scenarios.files import read_file

if TYPE_CHECKING:
    from meshplan.topologies import NodeType
    from meshplan.topologies.assembly import ImportedCluster
    from meshplan.topologies.grouping import DomainSource
    from meshplan.topologies.readers.detect import Reading

#: Largest topology file: node labels of some thousand nodes take tens of megabytes.
MAX_TOPOLOGY_BYTES = 64 << 20

_CLUSTER_FILE = re.compile(r"^meshplan_cluster[ \t]*:", re.MULTILINE)


@dataclass(frozen=True)
class TopologyFiles:
    """What some topology files say.

    Attributes
    ----------
    readings
        Name of each file and what its reader made of it.
    imported
        The cluster, where one was asked for and the files name nodes.
    """

    readings: tuple[tuple[str, Reading], ...]
    imported: ImportedCluster | None


def read_topology_files(
    paths: Sequence[str | Path],
    node_type: str | None,
    *,
    name: str | None = None,
    nvlink_domain: DomainSource = "auto",
    exclude: Sequence[str] = (),
    group: int | None = None,
    gpus: int | None = None,
) -> TopologyFiles:
    """Read topology files, and make the nodes that they name a cluster.

    Parameters
    ----------
    paths
        Files of any known format, about the same nodes; or one cluster file.
    node_type
        Name of the node type, such as ``h100-hgx``; a cluster file has its own.
    name
        Name of the cluster; else that of the first file.
    nvlink_domain
        Where the NVLink domains come from.
    exclude
        Hostlists of nodes to leave out.
    group
        Keep only what whole groups of so many GPUs fill in each NVLink domain.
    gpus
        Keep only so many GPUs, the first in rank order.

    Raises
    ------
    InputError
        If a file cannot be read or is refused, or the files do not make a cluster.
    """
    from meshplan.topologies.assembly import ImportedCluster, assemble
    from meshplan.topologies.cluster_file import read_cluster_file
    from meshplan.topologies.errors import ClusterError, TopologyFileError
    from meshplan.topologies.inventory import Fabric, Inventory, NodeReading
    from meshplan.topologies.readers.detect import read_topology_text
    from meshplan.topologies.readers.hostlist import expand

    readings: list[tuple[str, Reading]] = []
    for path in paths:
        file = str(path)
        text = read_file(path, MAX_TOPOLOGY_BYTES).replace("\r\n", "\n")
        try:
            if len(paths) == 1 and _CLUSTER_FILE.search(text):
                cluster = read_cluster_file(text)
                _same_type(cluster.node_type, node_type, file)
                counts = {size: cluster.domains.count(size) for size in set(cluster.domains)}
                histogram = dict(sorted(counts.items(), reverse=True))
                return TopologyFiles((), ImportedCluster(cluster, "file", histogram, ()))
            reading = read_topology_text(text, _node_name(path))
        except TopologyFileError as error:
            raise InputError(
                error.message, advice=error.advice, file=file, line=error.line
            ) from None
        findings = tuple(replace(one, file=file) for one in reading.findings)
        readings.append((file, replace(reading, findings=findings)))
    inventories = [one for _, one in readings if isinstance(one, Inventory)]
    if not inventories:
        return TopologyFiles(tuple(readings), None)
    if node_type is None:
        raise InputError(
            "the files say nothing about the GPUs of a node",
            advice="add the node type, for example h100-hgx; meshplan clusters lists them.",
        )
    try:
        left_out = frozenset(node for text in exclude for node in expand(text))
        imported = assemble(
            name or Path(paths[0]).stem,
            inventories,
            _node_type(node_type),
            nodes=[one for _, one in readings if isinstance(one, NodeReading)],
            fabrics=[one for _, one in readings if isinstance(one, Fabric)],
            nvlink_domain=nvlink_domain,
            exclude=left_out,
            group=group,
            gpus=gpus,
        )
    except ClusterError as error:
        raise InputError(error.message, advice=error.advice) from None
    return TopologyFiles(tuple(readings), imported)


def _node_name(path: str | Path) -> str:
    """Name of a node whose file does not name it: that of the file."""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", Path(path).stem)[:60] or "this-node"


def _node_type(name: str) -> NodeType:
    from meshplan.topologies import UnknownName, node_type

    try:
        return node_type(name)
    except UnknownName as error:
        raise InputError(error.message, advice=error.advice) from None


def _same_type(own: NodeType, wanted: str | None, file: str) -> None:
    if wanted is not None and _node_type(wanted) is not own:
        raise InputError(
            f"the node type is {wanted!r}, but the cluster file has {own.name!r}",
            advice="leave the node type out, or import the topology anew.",
            file=file,
        )


__all__ = ["MAX_TOPOLOGY_BYTES", "TopologyFiles", "read_topology_files"]
