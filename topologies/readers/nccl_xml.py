"""NCCL topology XML: PCIe, NVLink and network cards of one node.

Files that vendors ship hold the PCIe skeleton only; a dump (``NCCL_TOPO_DUMP_FILE``) holds the
GPUs with their NVLinks, too.  Meaning of the records: NVIDIA/nccl ``src/graph``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from meshplan.topologies.errors import TopologyFileError
from meshplan.topologies.inventory import Finding, NodeReading, counted, some
from meshplan.topologies.readers.node_graph import (
    MAX_NODE_GPUS,
    islands,
    nvlink_findings,
    rail_findings,
)
from meshplan.topologies.readers.xml_elements import Element

_SPEED = re.compile(r"[0-9]+(?:\.[0-9]+)? GT/s(?: PCIe)?\Z")
_GPU_CLASS, _NIC_CLASS = "0x03", "0x02"
_NVSWITCH, _CPU = "0x068000", "0x068001"
_FORM = "NCCL topology XML"


@dataclass
class _Device:
    """A GPU or network card, and the elements above it from the CPU down."""

    name: str
    above: tuple[int, ...]
    record: Element | None


@dataclass
class _Walk:
    gpus: list[_Device] = field(default_factory=list)
    cards: list[_Device] = field(default_factory=list)
    speeds: list[str] = field(default_factory=list)
    is_virtual: bool = False

    def visit(self, element: Element, above: tuple[int, ...]) -> None:
        """Collect the devices below ``element``; the depth of the XML is bounded."""
        for child in element.children:
            inner = (*above, id(child))
            if child.tag == "pci":
                self._pci(child, above)
            if child.tag in ("pci", "cpu"):
                self.is_virtual |= child.attributes.get("numaid") == "-1"
                self.visit(child, inner)

    def _pci(self, pci: Element, above: tuple[int, ...]) -> None:
        kind = pci.attributes.get("class", "")
        speed = pci.attributes.get("link_speed")
        if speed and not _SPEED.match(speed):
            self.speeds.append(speed)
        self.is_virtual |= pci.attributes.get("link_width") == "0"
        record = next((child for child in pci.children if child.tag == "gpu"), None)
        name = pci.attributes.get("busid", "")
        if kind.startswith(_GPU_CLASS) or record is not None:
            self.gpus.append(_Device(name, above, record))
        elif kind.startswith(_NIC_CLASS):
            nets = [net.attributes.get("name", "") for net in pci.all("net")]
            self.cards.append(_Device(next(filter(None, nets), name), above, None))


def read_nccl_xml(root: Element) -> NodeReading:
    """Read the elements of a topology file or dump of NCCL.

    Raises
    ------
    TopologyFileError
        If it has no GPU, more than a node can have, or those of several hosts.
    """
    hosts = {
        cpu.attributes["host_hash"] for cpu in root.all("cpu") if "host_hash" in cpu.attributes
    }
    if len(hosts) > 1:
        raise TopologyFileError(
            f"the file holds {len(hosts)} hosts", advice="give the dump of one node.",
            line=root.line,
        )  # fmt: skip
    walk = _Walk()
    walk.visit(root, (id(root),))
    if not 1 <= len(walk.gpus) <= MAX_NODE_GPUS:
        raise TopologyFileError(
            f"the file has {len(walk.gpus)} GPUs, but a node has 1 to {MAX_NODE_GPUS}",
            advice="give the file of one GPU node.",
            line=root.line,
        )
    findings: list[Finding] = []
    if walk.speeds:
        text = f"NCCL does not know the link speed {walk.speeds[0][:40]!r} and takes a slow one"
        findings.append(Finding("link-speed-unknown", text))
    records = [gpu.record for gpu in walk.gpus if gpu.record is not None]
    found: tuple[tuple[int, ...], ...] = ()
    nvlinks: tuple[int, ...] = ()
    capability: int | None = None
    if not records:
        text = "no GPU has a record, so the file is a skeleton that says nothing about NVLink"
        findings.append(Finding("nvlink-not-in-file", text))
    elif len(records) < len(walk.gpus):
        bare = [gpu.name for gpu in walk.gpus if gpu.record is None]
        text = (
            f"{counted(len(bare), 'GPU has', 'GPUs have')}"
            f" no record, so NVLink is not judged: {some(bare)}"
        )
        findings.append(Finding("nvlink-not-in-file", text))
    else:
        found, nvlinks, is_virtual = _nvlinks(walk.gpus)
        walk.is_virtual |= is_virtual
        findings += nvlink_findings(found, nvlinks)
        capability = _capability(records[0])
    if walk.is_virtual:
        text = "the file is from a virtual machine, which may hide PCIe switches and NVLink"
        findings.append(Finding("virtual-machine", text))
    rails, near = _rails(walk)
    findings += rail_findings(near)
    return NodeReading(
        _FORM, len(walk.gpus), found, nvlinks, rails, capability, findings=tuple(findings)
    )


def _nvlinks(gpus: list[_Device]) -> tuple[tuple[tuple[int, ...], ...], tuple[int, ...], bool]:
    """Islands, NVLinks of each GPU, and whether a target is hidden as in a virtual machine."""
    index = {gpu.name.lower(): place for place, gpu in enumerate(gpus)}
    links: list[tuple[int, int]] = []
    counts: list[int] = []
    switched: list[int] = []
    is_virtual = False
    for place, gpu in enumerate(gpus):
        count = 0
        for link in gpu.record.all("nvlink") if gpu.record is not None else ():
            kind = link.attributes.get("tclass", "").lower()
            target = link.attributes.get("target", "").lower()
            if kind == _CPU:
                continue
            count += _whole(link)
            is_virtual |= target.startswith("fff")
            if kind == _NVSWITCH:
                switched.append(place)
            elif target in index:
                links.append((place, index[target]))
        counts.append(count)
    links += [(switched[0], place) for place in switched]
    return islands(len(gpus), links), tuple(counts), is_virtual


def _whole(link: Element) -> int:
    text = link.attributes.get("count", "")
    if not (text.isascii() and text.isdigit() and len(text) < 4):
        raise TopologyFileError(
            f"an nvlink has the count {text[:20]!r}", advice="give a whole number.", line=link.line
        )
    return int(text)


def _capability(record: Element) -> int | None:
    text = record.attributes.get("sm", "")
    return int(text) // 10 if text.isascii() and text.isdigit() and len(text) < 5 else None


def _rails(walk: _Walk) -> tuple[tuple[tuple[str, ...], ...], list[bool]]:
    """Cards that share the most of the way from the CPU with each GPU, and whether a PCIe switch.

    A way begins with the system and the CPU, so a shared switch makes it longer than two.
    """
    rails: list[tuple[str, ...]] = []
    near: list[bool] = []
    for gpu in walk.gpus if walk.cards else ():
        shared = [_shared(gpu.above, card.above) for card in walk.cards]
        most = max(shared)
        rails.append(tuple(card.name for card, length in zip(walk.cards, shared, strict=True)
                           if length == most))  # fmt: skip
        near.append(most > 2)
    return tuple(rails), near


def _shared(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    return next(
        (length for length, (a, b) in enumerate(zip(one, other, strict=False)) if a != b),
        min(len(one), len(other)),
    )
