"""Where keys and values stand in the text of a YAML document that was read."""

from __future__ import annotations

from collections.abc import Sequence

import yaml

from meshplan.scenarios.yaml_reader import NodeGraph

Entry = tuple[yaml.Node, yaml.Node]


def root_node(text: str) -> yaml.Node:
    """The node graph of a text that :func:`~meshplan.scenarios.yaml_reader.read_yaml` accepts."""
    graph = NodeGraph(text)
    try:
        root = graph.get_single_node()
    finally:
        graph.dispose()
    assert isinstance(root, yaml.Node)
    return root


def entry_at(root: yaml.Node, path: Sequence[str]) -> Entry | None:
    """Key and value of the entry that ``path`` leads to; None if it is not written."""
    found: Entry | None = None
    node = root
    for name in path:
        if not isinstance(node, yaml.MappingNode):
            return None
        found = next((entry for entry in node.value if entry[0].value == name), None)
        if found is None:
            return None
        node = found[1]
    return found


def key_place(text: str, path: Sequence[str]) -> tuple[int, int]:
    """Line and column of the key at ``path``, or of the closest around it, counted from 1."""
    root = root_node(text)
    for end in range(len(path), 0, -1):
        if (entry := entry_at(root, path[:end])) is not None:
            mark = entry[0].start_mark
            return mark.line + 1, mark.column + 1
    return 1, 1


__all__ = ["Entry", "entry_at", "key_place", "root_node"]
