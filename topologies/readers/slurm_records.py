"""Blocks and trees of Slurm, checked the same way whether they come from .conf or .yaml."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from meshplan.topologies.errors import TopologyFileError
from meshplan.topologies.inventory import Block, Finding, Leaf, counted, some
from meshplan.topologies.readers.hostlist import expand

#: Sizes that Slurm plans with (``BlockSizes``), at most.
MAX_LEVELS = 16

#: Most references from switches to what is below them.
MAX_EDGES = 1_048_576


@dataclass(frozen=True)
class SwitchRecord:
    """A switch as written: the hostlist of its nodes, or of the switches below it."""

    name: str
    nodes: tuple[str, ...]
    children: tuple[str, ...]
    line: int


class Names:
    """Expands the hostlists of one file within the limit of all of them together."""

    def __init__(self) -> None:
        self._left = MAX_EDGES

    def expand(self, text: str, line: int) -> tuple[str, ...]:
        """Names of the hostlist; see :func:`~meshplan.topologies.readers.hostlist.expand`."""
        names = expand(text, line)
        self.charge(len(names), line)
        return names

    def charge(self, names: int, line: int) -> None:
        """Count ``names`` more; a record that repeats its list for many switches counts each."""
        self._left -= names
        if self._left < 0:
            raise TopologyFileError(
                f"the file has more than {MAX_EDGES:,} names of nodes and switches",
                advice="check the hostlists; no cluster has as many.",
                line=line,
            )


def check_blocks(blocks: Sequence[Block], sizes: Sequence[int], sizes_line: int) -> list[Finding]:
    """Findings about blocks and their planning sizes.

    Raises
    ------
    TopologyFileError
        If two blocks share a name, or a size is not the first times a power of two.
    """
    lines: dict[str, int] = {}
    for block in blocks:
        if block.name in lines:
            raise TopologyFileError(
                f"the block {block.name!r} is defined twice, first on line {lines[block.name]}",
                advice="rename or delete one of them: Slurm refuses the file, too.",
                line=block.line,
            )
        lines[block.name] = block.line
    if len(sizes) > MAX_LEVELS:
        raise TopologyFileError(
            f"{len(sizes)} block sizes are more than {MAX_LEVELS}",
            advice="leave out the largest ones.",
            line=sizes_line,
        )
    for size in sizes:
        level, rest = divmod(size, sizes[0]) if sizes[0] > 0 else (0, 0)
        if size < 1 or rest or level & (level - 1):
            raise TopologyFileError(
                f"the block size {size} is not the base size {sizes[0]} times a power of two",
                advice=f"use {max(1, sizes[0])} and its doubles.",
                line=sizes_line,
            )
    findings: list[Finding] = []
    empty = [block.name for block in blocks if not block.nodes]
    if empty:
        findings.append(
            Finding(
                "empty-block", f"{len(empty)} of {len(blocks)} blocks have no nodes: {some(empty)}"
            )
        )
    filled = [block for block in blocks if block.nodes]
    base = sizes[0] if sizes else len(filled[0].nodes) if filled else 0
    short = [f"{one.name} ({len(one.nodes)})" for one in filled if len(one.nodes) < base]
    if short:
        findings.append(
            Finding(
                "block-below-base",
                f"{counted(len(short), 'block has', 'blocks have')}"
                f" fewer nodes than the base size of {base}, so some "
                f"versions of Slurm do not use them: {some(short)}",
            )
        )
    spare = sum(len(one.nodes) % base for one in filled if len(one.nodes) >= base)
    if spare:
        findings.append(
            Finding(
                "spare-nodes",
                f"{counted(spare, 'node is', 'nodes are')}"
                f" spare: their blocks hold more than whole multiples of the "
                f"base size of {base} nodes",
            )
        )
    return findings


def walk_tree(switches: Sequence[SwitchRecord]) -> tuple[tuple[Leaf, ...], list[Finding]]:
    """Leaves of the tree in the order of a walk from its roots, and findings.

    Raises
    ------
    TopologyFileError
        If two switches share a name, one names a switch that is not defined, or they form a cycle.
    """
    by_name: dict[str, SwitchRecord] = {}
    for one in switches:
        if one.name in by_name:
            raise TopologyFileError(
                f"the switch {one.name!r} is defined twice, first on line {by_name[one.name].line}",
                advice="rename or delete one of them.",
                line=one.line,
            )
        by_name[one.name] = one
    parents: dict[str, list[str]] = {one.name: [] for one in switches}
    for one in switches:
        for child in one.children:
            if child not in parents:
                raise TopologyFileError(
                    f"the switch {one.name!r} has {child!r} below it, which the file does not "
                    "define",
                    advice="check the spelling and the hostlist.",
                    line=one.line,
                )
            parents[child].append(one.name)
    _refuse_cycle(by_name, parents)
    roots = [one for one in switches if not parents[one.name]]
    leaves: list[Leaf] = []
    above: dict[str, tuple[str, ...]] = {}
    seen: set[str] = set()
    levels: set[int] = set()
    stack = [(one.name, 0) for one in reversed(roots)]
    while stack:
        name, depth = stack.pop()
        if name in seen:
            continue
        seen.add(name)
        record = by_name[name]
        first = parents[name][0] if parents[name] else None
        # Four switches above a leaf tell it from its neighbours; whole paths of a tree that is
        # thousands of levels deep would take memory in the square of its depth.
        above[name] = (first, *above.get(first, ()))[:4] if first is not None else ()
        if record.children:
            stack += [(child, depth + 1) for child in reversed(record.children)]
        else:
            leaves.append(Leaf(name, record.nodes, above[name], record.line))
            levels.add(depth)
    return tuple(leaves), _tree_findings(switches, roots, parents, levels)


def _refuse_cycle(by_name: dict[str, SwitchRecord], parents: dict[str, list[str]]) -> None:
    """Refuse a cycle: Kahn's order, from the roots down, leaves it over."""
    waiting = {name: len(above) for name, above in parents.items()}
    ready = [name for name, count in waiting.items() if not count]
    done = 0
    while ready:
        done += 1
        for child in by_name[ready.pop()].children:
            waiting[child] -= 1
            if not waiting[child]:
                ready.append(child)
    if done < len(by_name):
        name = next(name for name, count in waiting.items() if count)
        raise TopologyFileError(
            f"the switch {name!r} is below itself: the switches form a cycle",
            advice="a switch may have only lower switches in its list.",
            line=by_name[name].line,
        )


def _tree_findings(
    switches: Sequence[SwitchRecord],
    roots: Sequence[SwitchRecord],
    parents: dict[str, list[str]],
    levels: set[int],
) -> list[Finding]:
    findings: list[Finding] = []
    if len(roots) > 1:
        names = some([one.name for one in roots])
        findings.append(
            Finding(
                "forest",
                f"{len(roots)} switches have none above them ({names}): Slurm lets no job span "
                "such trees unless told to, and what joins them is not in the file",
            )
        )
    several = [name for name, above in parents.items() if len(above) > 1]
    if several:
        findings.append(
            Finding(
                "dag",
                f"{counted(len(several), 'switch hangs', 'switches hang')}"
                f" below more than one ({some(several)}): parallel "
                "spines, read as one; the first is taken as the way up",
            )
        )
    if len(levels) > 1:
        low, high = min(levels) + 1, max(levels) + 1
        findings.append(
            Finding("unequal-depth", f"leaves hang {low} to {high} levels deep in the tree")
        )
    return findings


def unique(groups: Iterable[tuple[str, int, tuple[str, ...]]], kind: str) -> tuple[
    dict[str, str], list[Finding]
]:  # fmt: skip
    """Node to its first group, and findings about nodes that several groups name.

    ``groups`` are name, line and nodes of blocks or leaves; ``kind`` is what they are called.
    """
    first: dict[str, str] = {}
    findings: list[Finding] = []
    for name, line, nodes in groups:
        again = [node for node in nodes if first.setdefault(node, name) != name]
        repeated = len(nodes) - len(set(nodes))
        if again:
            other = first[again[0]]
            findings.append(
                Finding(
                    "duplicate-node",
                    f"{kind} {name!r} names {counted(len(again), 'node', 'nodes')}"
                    f" that others hold ({some(again)}; "
                    f"{again[0]} is in {other!r}); each counts once, where it stands first",
                    line,
                )
            )
        if repeated:
            findings.append(
                Finding(
                    "duplicate-node",
                    f"{kind} {name!r} names {counted(repeated, 'node', 'nodes')} twice",
                    line,
                )
            )
    return first, findings


def odd_prefixes(nodes: Iterable[str]) -> list[Finding]:
    """A finding if a few names lack a prefix that most have, as a hostlist written by hand does."""
    stems: dict[str, list[str]] = {}
    for node in nodes:
        stems.setdefault(re.sub(r"[0-9]+\Z", "", node), []).append(node)
    findings = []
    if len(stems) <= 1000:  # a cluster with a stem for each node has no common prefix
        for stem, names in stems.items():
            for longer, others in stems.items():
                if stem and longer.endswith(stem) and len(longer) > len(stem):
                    if len(others) < 4 * len(names):
                        continue
                    prefix = longer[: -len(stem)]
                    findings.append(
                        Finding(
                            "missing-prefix",
                            f"{some(names)} lack the prefix {prefix!r} that {len(others)} others "
                            "have: each item of a hostlist outside brackets needs it",
                        )
                    )
    return findings
