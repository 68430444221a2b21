"""Topology files as a cluster: read, overlaid, and refused with file and line."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from meshplan.scenarios.errors import InputError
from meshplan.scenarios.files import decoded, read_file

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
    from meshplan.topologies.assembly import assemble
    from meshplan.topologies.errors import ClusterError, TopologyFileError
    from meshplan.topologies.inventory import Fabric, Inventory, NodeReading
    from meshplan.topologies.readers.detect import read_topology_text
    from meshplan.topologies.readers.hostlist import expand

    readings: list[tuple[str, Reading]] = []
    for path in paths:
        text, file = _text(path)
        if _CLUSTER_FILE.search(text):
            if len(paths) > 1 or exclude or nvlink_domain != "auto":
                raise InputError(
                    "a cluster file stands alone: no other files, nodes to leave out, or source "
                    "of NVLink domains",
                    advice="import the topology files that it was made of again.",
                    file=file,
                )
            return _cluster_file(text, file, node_type, name, group, gpus)
        try:
            reading = read_topology_text(text, _node_name(path))
        except TopologyFileError as error:
            raise InputError(
                error.message, advice=error.advice, file=file, line=error.line
            ) from None
        findings = tuple(replace(one, file=file) for one in reading.findings)
        readings.append((file, replace(reading, findings=findings)))
    inventories = [one for _, one in readings if isinstance(one, Inventory)]
    # Here the file that does not suit the type is known; `assemble` has none.
    held = tuple(readings) if node_type is None else _against_type(readings, _node_type(node_type))
    if not inventories:
        return TopologyFiles(held, None)
    if node_type is None:
        raise InputError(
            "the files say nothing about the GPUs of a node",
            advice="add the node type, for example h100-hgx; meshplan clusters lists them.",
        )
    try:
        left_out = frozenset(node for text in exclude for node in expand(text))
        imported = assemble(
            name or _node_name(paths[0]),
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


def _against_type(
    readings: Sequence[tuple[str, Reading]], kind: NodeType
) -> tuple[tuple[str, Reading], ...]:
    """The readings, with findings of files about the inside of a node that differ from its type.

    Raises
    ------
    InputError
        With the file, if a node has another number of GPUs or NVLink islands than the type.
    """
    from meshplan.topologies.errors import ClusterError
    from meshplan.topologies.findings import node_findings
    from meshplan.topologies.inventory import NodeReading

    held: list[tuple[str, Reading]] = []
    for file, reading in readings:
        if isinstance(reading, NodeReading):
            try:
                told = node_findings([reading], kind)
            except ClusterError as error:
                raise InputError(error.message, advice=error.advice, file=file) from None
            told = [replace(one, file=file) for one in told]
            reading = replace(reading, findings=(*reading.findings, *told))
        held.append((file, reading))
    return tuple(held)


def _text(path: str | Path) -> tuple[str, str]:
    """Text of a file (``-``: standard input), and its name for messages."""
    if str(path) == "-":
        name = "<standard input>"
        content = sys.stdin.buffer.read(MAX_TOPOLOGY_BYTES + 1)
        text = decoded(content, name, MAX_TOPOLOGY_BYTES)
    else:
        name = str(path)
        text = read_file(path, MAX_TOPOLOGY_BYTES)
    return text.replace("\r\n", "\n"), name


def _cluster_file(
    text: str,
    file: str,
    wanted: str | None,
    name: str | None,
    group: int | None,
    gpus: int | None,
) -> TopologyFiles:
    """The cluster of a cluster file, or a part of it."""
    from meshplan.topologies.assembly import imported
    from meshplan.topologies.cluster_file import read_cluster_file
    from meshplan.topologies.errors import ClusterError, TopologyFileError
    from meshplan.topologies.findings import cluster_findings

    try:
        cluster = read_cluster_file(text)
        _same_type(cluster.node_type, wanted, file)
        cluster = replace(cluster, name=name or cluster.name)
        told = cluster_findings(cluster, ())
        return TopologyFiles((), imported(cluster, "file", (), told, group, gpus))
    except TopologyFileError as error:
        raise InputError(error.message, advice=error.advice, file=file, line=error.line) from None
    except ClusterError as error:
        raise InputError(error.message, advice=error.advice, file=file) from None


def _node_name(path: str | Path) -> str:
    """Name of a node, or a cluster, whose file does not name it: that of the file."""
    stem = re.sub(r"[^A-Za-z0-9_.-]", "-", Path(path).stem)[:60]
    return stem if stem.strip("-") else "imported"


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
