"""What topology files say, before it becomes a cluster: nodes, blocks, leaves, ids, findings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Finding:
    """Something about a file or the cluster that a person should know.

    Attributes
    ----------
    id
        Kebab-case name of the kind of finding, never reused: ``unequal-domains``.
    text
        What it is, with names and numbers.
    line
        Where it stands, if on one line.
    file
        Name of the file, empty where it is about several.
    """

    id: str
    text: str
    line: int | None = None
    file: str = ""

    def __str__(self) -> str:
        where = self.file + (f":{self.line}" if self.line is not None and self.file else "")
        text = f"{where}: {self.text}" if where else self.text
        # Names come from files: no control character of them may reach a terminal.
        return "".join(char if char.isprintable() else "?" for char in text)


@dataclass(frozen=True)
class Block:
    """A Slurm block: nodes with the highest bandwidth among each other, by convention a rack.

    ``domain`` is the NVLink domain that a comment of the file gives, if one does.
    """

    name: str
    nodes: tuple[str, ...]
    domain: str | None
    line: int


@dataclass(frozen=True)
class Leaf:
    """The lowest switch of a tree that holds nodes, and the switches above it, nearest first."""

    name: str
    nodes: tuple[str, ...]
    above: tuple[str, ...]
    line: int


@dataclass(frozen=True)
class Inventory:
    """What one file says about the nodes of a cluster.

    Attributes
    ----------
    form
        Format of the file, for people: ``Slurm topology.conf``.
    nodes
        All nodes that the file names, each once, in file order.
    blocks, block_sizes
        Slurm's blocks in file order, with the planning sizes in nodes.
    leaves, switches
        Leaves in the order of a walk through the tree, and the number of all switches.
    ids
        Node to the key of its NVLink domain, None for a node that has none across nodes.
    gpus, products
        GPUs and GPU product of a node, where the file says so.
    findings
        What a person should know.
    """

    form: str
    nodes: tuple[str, ...]
    blocks: tuple[Block, ...] = ()
    block_sizes: tuple[int, ...] = ()
    leaves: tuple[Leaf, ...] = ()
    switches: int = 0
    ids: Mapping[str, str | None] = field(default_factory=dict)
    gpus: Mapping[str, int] = field(default_factory=dict)
    products: Mapping[str, str] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class NodeReading:
    """What one file says about the inside of a node.

    Attributes
    ----------
    form
        Format of the file, for people: ``nvidia-smi topo -m``.
    gpus
        GPUs of the node.
    islands
        GPUs that NVLink joins, as far as the file shows; empty where it is silent about NVLink.
    nvlinks
        NVLinks of each GPU; empty where the file is silent about NVLink.
    rails
        Network cards nearest to each GPU; empty where the file names no cards.
    compute_capability
        Major compute capability, where the file gives it.
    findings
        What a person should know.
    """

    form: str
    gpus: int
    islands: tuple[tuple[int, ...], ...] = ()
    nvlinks: tuple[int, ...] = ()
    rails: tuple[tuple[str, ...], ...] = ()
    compute_capability: int | None = None
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class FabricLeaf:
    """A physical leaf switch: hosts and card below it, summed port speeds in Gb/s."""

    name: str
    hosts: tuple[str, ...]
    card: str
    down_gbit: float
    up_gbit: float


@dataclass(frozen=True)
class Fabric:
    """What one file says about the network: leaves with their real uplinks."""

    form: str
    leaves: tuple[FabricLeaf, ...]
    spines: int
    findings: tuple[Finding, ...] = ()


def counted(number: int, one: str, several: str) -> str:
    """``1 node has``, ``2,000 nodes have``."""
    return f"{number:,} {one if number == 1 else several}"


def some(names: tuple[str, ...] | list[str], most: int = 5) -> str:
    """The first few of ``names``, and how many more there are."""
    shown = ", ".join(name if len(name) <= 60 else name[:57] + "..." for name in names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown
