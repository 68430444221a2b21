"""Slurm ``topology.conf``: trees of switches and blocks of nodes.

Grammar and meaning: SchedMD ``topology.conf(5)``.  Comments are read where generators put the true
NVLink domain into them: topograph writes ``# <block>=<domain>``, the CycleCloud plug-in of Azure
``# ClusterUUID and CliqueID: <id>``, each before the block.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches

from meshplan.topologies.errors import TopologyFileError
from meshplan.topologies.inventory import Block, Finding, Inventory, counted, some
from meshplan.topologies.readers.slurm_records import (
    Names,
    SwitchRecord,
    check_blocks,
    odd_prefixes,
    unique,
    walk_tree,
)

_KEYS = {
    "switch": ("SwitchName", "Switches", "Nodes", "LinkSpeed"),
    "block": ("BlockName", "Nodes"),
    "sizes": ("BlockSizes",),
}
_ALL_KEYS = tuple(dict.fromkeys(key for keys in _KEYS.values() for key in keys))
_COMMENTED = re.compile(r"#\s*(?:BlockName|SwitchName)\s*=\s*(\S+)", re.IGNORECASE)
_AZURE = re.compile(r"#\s*ClusterUUID and CliqueID:\s*(\S.*)", re.IGNORECASE)
_NAMED = re.compile(r"#\s*([^\s=]+)\s*=\s*(\S+)\s*\Z")


def read_slurm_conf(text: str) -> Inventory:
    """Read the text of a ``topology.conf``.

    Raises
    ------
    TopologyFileError
        With the line, if a record is malformed, a key is unknown, a name is given twice, switches
        form a cycle, or no node is left.
    """
    names = Names()
    blocks: list[Block] = []
    switches: list[SwitchRecord] = []
    sizes: tuple[int, ...] = ()
    sizes_line = 0
    commented: list[tuple[str, int]] = []
    comments: list[str] = []
    for line, record in _records(text):
        if record.startswith("#"):
            if match := _COMMENTED.match(record):
                commented.append((match[1], line))
                comments.clear()
            else:
                comments.append(record)
            continue
        fields = _fields(record, line)
        kind = _kind(fields, line)
        if kind == "sizes":
            if sizes_line:
                raise TopologyFileError(
                    f"BlockSizes is given twice, first on line {sizes_line}",
                    advice="keep one of the two.",
                    line=line,
                )
            sizes, sizes_line = _sizes(fields["BlockSizes"], line), line
        elif kind == "block":
            nodes = names.expand(fields["Nodes"], line) if fields.get("Nodes") else ()
            name = fields["BlockName"]
            blocks.append(Block(name, nodes, _domain(name, comments), line))
        else:
            switches += _switches(fields, names, line)
        comments.clear()
    return assemble_slurm("Slurm topology.conf", blocks, sizes, sizes_line, switches, commented)


def assemble_slurm(
    form: str,
    blocks: list[Block],
    sizes: tuple[int, ...],
    sizes_line: int,
    switches: list[SwitchRecord],
    commented: list[tuple[str, int]],
) -> Inventory:
    """Check blocks and switches together, and make them an inventory.

    Raises
    ------
    TopologyFileError
        If they contradict themselves, or no node is left.
    """
    findings = [
        Finding("commented-out", f"{name} is commented out, so its nodes are not there", line)
        for name, line in commented[:20]
    ]
    if len(commented) > 20:
        findings.append(Finding("commented-out", f"{len(commented) - 20} more are commented out"))
    findings += check_blocks(blocks, sizes, sizes_line)
    leaves, told = walk_tree(switches)
    findings += told
    in_block, told = unique(((one.name, one.line, one.nodes) for one in blocks), "block")
    findings += told
    in_leaf, told = unique(((one.name, one.line, one.nodes) for one in leaves), "leaf switch")
    findings += told
    for kind, one, other in (("block", in_block, in_leaf), ("leaf switch", in_leaf, in_block)):
        missing = [node for node in other if node not in one] if one else []
        if missing:
            text = f"{counted(len(missing), 'node is', 'nodes are')} in no {kind}: {some(missing)}"
            findings.append(Finding(f"in-no-{kind.split()[0]}", text))
    nodes = tuple(dict.fromkeys((*in_block, *in_leaf)))
    if not nodes:
        lines = counted(len(commented), "line is", "lines are")
        why = f": {lines} commented out" if commented else ""
        raise TopologyFileError(
            f"no block and no switch of the file holds a node{why}",
            advice="check that the generator kept the blocks (a base size above the nodes of a "
            "rack comments it out).",
            line=commented[0][1] if commented else None,
        )
    findings += odd_prefixes(nodes)
    return Inventory(
        form,
        nodes,
        blocks=tuple(blocks),
        block_sizes=sizes,
        leaves=leaves,
        switches=len(switches),
        findings=tuple(findings),
    )


def _records(text: str) -> Iterator[tuple[int, str]]:
    """Records and whole-line comments with their lines; a backslash continues a record."""
    held, start = "", 0
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.strip()
        if not held and line.startswith("#"):
            yield number, line
            continue
        line = line.split("#", 1)[0].rstrip()
        start = start if held else number
        if line.endswith("\\"):
            held += line[:-1] + " "
            continue
        record = (held + line).strip()
        held = ""
        if record:
            yield start, record
    if held.strip():
        yield start, held.strip()


def _fields(record: str, line: int) -> dict[str, str]:
    fields: dict[str, str] = {}
    known = {key.lower(): key for key in _ALL_KEYS}
    for word in record.split():
        written, equals, value = word.partition("=")
        key = known.get(written.lower())
        if not equals:
            raise TopologyFileError(
                f"{_cut(word)} is not of the form Key=value",
                advice="remove blanks around '=' and inside hostlists.",
                line=line,
            )
        if key is None:
            near = get_close_matches(written.lower()[:60], known, n=1)
            advice = f"you mean {known[near[0]]}." if near else f"use {', '.join(_ALL_KEYS)}."
            raise TopologyFileError(f"the key {_cut(written)} is unknown", advice=advice, line=line)
        if key in fields:
            raise TopologyFileError(
                f"the key {key} is given twice", advice="keep one of the two.", line=line
            )
        fields[key] = value
    return fields


def _kind(fields: dict[str, str], line: int) -> str:
    for kind, keys in _KEYS.items():
        if keys[0] in fields:
            if extra := [key for key in fields if key not in keys]:
                raise TopologyFileError(
                    f"the key {extra[0]} does not belong into a record of {keys[0]}",
                    advice="give it a line of its own, or remove it.",
                    line=line,
                )
            if not fields[keys[0]]:
                raise TopologyFileError(f"{keys[0]} has no value", advice="give a name.", line=line)
            return kind
    raise TopologyFileError(
        f"the record has {', '.join(fields)} without SwitchName or BlockName",
        advice="begin it with SwitchName= or BlockName=.",
        line=line,
    )


def _switches(fields: dict[str, str], names: Names, line: int) -> list[SwitchRecord]:
    nodes, children = fields.get("Nodes"), fields.get("Switches")
    if bool(nodes) == bool(children):
        raise TopologyFileError(
            f"the switch {_cut(fields['SwitchName'])} has "
            f"{'both Nodes and Switches' if nodes else 'neither Nodes nor Switches'}",
            advice="a leaf has Nodes, an inner switch has Switches.",
            line=line,
        )
    below = names.expand(nodes or children or "", line)
    made = names.expand(fields["SwitchName"], line)
    names.charge(len(made) * len(below), line)
    return [SwitchRecord(one, below if nodes else (), () if nodes else below, line) for one in made]


def _sizes(text: str, line: int) -> tuple[int, ...]:
    parts = text.split(",")
    if not all(part.isascii() and part.isdigit() and len(part) < 8 for part in parts):
        raise TopologyFileError(
            f"BlockSizes is {_cut(text)}, not a list of whole numbers",
            advice="write the base size and its doubles: BlockSizes=18,36.",
            line=line,
        )
    return tuple(int(part) for part in parts)


def _domain(block: str, comments: list[str]) -> str | None:
    """NVLink domain that the comments right before a block give."""
    for comment in reversed(comments):
        if match := _AZURE.match(comment):
            return match[1].strip()
        if (match := _NAMED.match(comment)) and match[1] == block:
            return match[2]
    return None


def _cut(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
