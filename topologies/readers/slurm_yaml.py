"""Slurm ``topology.yaml`` (25.05 and later): several topologies over the same nodes.

Grammar and meaning: SchedMD ``topology.yaml(5)``.  A tree and a block topology of the same nodes
are overlaid: the tree is the network, the blocks tell the NVLink domains.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from meshplan.topologies.errors import TopologyFileError
from meshplan.topologies.inventory import Block, Finding, Inventory
from meshplan.topologies.readers.slurm_conf import assemble_slurm
from meshplan.topologies.readers.slurm_records import Names, SwitchRecord
from meshplan.topologies.readers.yaml_values import (
    Value,
    list_of,
    mapping_of,
    read_values,
    shown,
    text_of,
    whole_of,
)

_KINDS = ("tree", "block", "flat", "ring", "torus3d")


@dataclass(frozen=True)
class _Topology:
    name: str
    kind: str
    is_default: bool
    body: Value


def read_slurm_yaml(text: str) -> Inventory:
    """Read the text of a ``topology.yaml``: one tree and one block topology of it, overlaid.

    Of several of one kind the cluster's default is taken, else the first; which, is told.

    Raises
    ------
    TopologyFileError
        With the line, if it is malformed or contradicts itself, a key is unknown, or it has
        neither a tree nor blocks.
    """
    topologies = [_topology(one) for one in list_of(read_values(text), "topology.yaml")]
    findings: list[Finding] = []
    chosen: dict[str, _Topology] = {}
    for kind in _KINDS:
        same = [one for one in topologies if one.kind == kind]
        if not same:
            continue
        if kind not in ("tree", "block"):
            for one in same:
                said = f"the topology {one.name!r} is {kind}, which says nothing about NVLink "
                findings.append(Finding("not-read", f"{said}domains or leaves", one.body.line))
            continue
        first = next((one for one in same if one.is_default), same[0])
        chosen[kind] = first
        others = [one.name for one in same if one is not first]
        if others:
            said = f"of the {kind} topologies {first.name!r} is read, not {', '.join(others)}"
            findings.append(Finding("not-read", said, first.body.line))
    if not chosen:
        raise TopologyFileError(
            "the file has neither a tree nor a block topology",
            advice="add one, or give the ids of the NVLink fabric.",
            line=1,
        )
    names = Names()
    blocks, sizes, sizes_line = _blocks(chosen["block"].body, names) if "block" in chosen else (
        [], (), 0)  # fmt: skip
    switches = _switches(chosen["tree"].body, names) if "tree" in chosen else []
    inventory = assemble_slurm("Slurm topology.yaml", blocks, sizes, sizes_line, switches, [])
    return replace(inventory, findings=(*findings, *inventory.findings))


def _topology(value: Value) -> _Topology:
    keys = mapping_of(value, "a topology", ("topology", "cluster_default", *_KINDS))
    name = text_of(keys.get("topology"), "topology", value.line)
    kinds = [kind for kind in _KINDS if kind in keys]
    if len(kinds) != 1:
        raise TopologyFileError(
            f"the topology {name[:60]!r} has {' and '.join(kinds) or 'no kind'}: exactly one of "
            f"{', '.join(_KINDS)} is needed",
            advice="give each kind a topology of its own.",
            line=value.line,
        )
    default = keys.get("cluster_default")
    if default is not None and default.data not in ("true", "false"):
        raise TopologyFileError(
            f"cluster_default is {shown(default)}, but must be true or false",
            advice="write true or false.",
            line=default.line,
        )
    is_default = default is not None and default.data == "true"
    return _Topology(name, kinds[0], is_default, keys[kinds[0]])


def _blocks(body: Value, names: Names) -> tuple[list[Block], tuple[int, ...], int]:
    keys = mapping_of(body, "block", ("block_sizes", "blocks"))
    sizes_value = keys.get("block_sizes")
    sizes: tuple[int, ...] = ()
    if sizes_value is not None:
        written = list_of(sizes_value, "block_sizes")
        sizes = tuple(whole_of(one, "a block size") for one in written)
    if "blocks" not in keys:
        raise TopologyFileError("block has no blocks", advice="add blocks.", line=body.line)
    blocks = []
    for one in list_of(keys["blocks"], "blocks"):
        fields = mapping_of(one, "a block", ("block", "nodes"))
        name = text_of(fields.get("block"), "block", one.line)
        nodes = fields.get("nodes")
        listed = names.expand(text_of(nodes, "nodes", one.line), one.line) if nodes else ()
        blocks.append(Block(name, listed, None, one.line))
    return blocks, sizes, sizes_value.line if sizes_value is not None else body.line


def _switches(body: Value, names: Names) -> list[SwitchRecord]:
    keys = mapping_of(body, "tree", ("switches",))
    if "switches" not in keys:
        raise TopologyFileError("tree has no switches", advice="add switches.", line=body.line)
    records = []
    for one in list_of(keys["switches"], "switches"):
        fields = mapping_of(one, "a switch", ("switch", "children", "nodes"))
        name = text_of(fields.get("switch"), "switch", one.line)
        if ("children" in fields) == ("nodes" in fields):
            raise TopologyFileError(
                f"the switch {name[:60]!r} needs either children or nodes",
                advice="a leaf has nodes, an inner switch has children.",
                line=one.line,
            )
        key = "nodes" if "nodes" in fields else "children"
        below = names.expand(text_of(fields[key], key, one.line), one.line)
        is_leaf = key == "nodes"
        records.append(
            SwitchRecord(name, below if is_leaf else (), () if is_leaf else below, one.line)
        )
    return records
