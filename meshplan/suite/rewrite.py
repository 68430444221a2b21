"""A new expectation in the text of a scenario file, with all else left as it stands.

The text is changed in place, at the marks that the YAML parser gives each key and value: comments,
blank lines, order and style of what is not changed stay as somebody wrote them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import yaml

from meshplan.scenarios.yaml_nodes import Entry, entry_at, root_node

#: A value of an expectation: a word, a number, a list of words, or degrees by name.
Value = str | int | tuple[str, ...] | Mapping[str, int]
_COMMENT = re.compile(r"(?:^|\s)#")


class CannotRewrite(Exception):
    """Why an expectation cannot be changed in place, in words."""


def with_expectation(text: str, wanted: Mapping[str, Value]) -> str:
    """The text of a scenario file with ``wanted`` as its ``expect:``.

    Keys that ``wanted`` has not got go; of those that it has, only what differs is changed.

    Raises
    ------
    CannotRewrite
        If that would take a comment away, or the text is written in a way that hides its values.
    """
    rewriting = _Rewriting(text)
    rewriting.expectation(wanted)
    return rewriting.result()


@dataclass(frozen=True)
class _Edit:
    start: int
    end: int
    text: str


class _Rewriting:
    def __init__(self, text: str) -> None:
        self._text = text
        self._newline = "\r\n" if "\r\n" in text else "\n"
        self._edits: list[_Edit] = []

    def result(self) -> str:
        """The text with all edits."""
        pieces, place = [], 0
        for edit in sorted(self._edits, key=lambda one: (one.start, one.end)):
            pieces += [self._text[place : edit.start], edit.text]
            place = max(place, edit.end)
        return "".join([*pieces, self._text[place:]])

    def expectation(self, wanted: Mapping[str, Value]) -> None:
        root = root_node(self._text)
        entry = entry_at(root, ("expect",))
        if entry is None:
            self._append(root, wanted)
        elif isinstance(entry[1], yaml.MappingNode):
            self._mapping(entry[1], wanted)
        else:  # `expect:` or `expect: null`
            self._replace(entry[1], _flow(wanted), space=True)

    def _append(self, root: yaml.Node, wanted: Mapping[str, Value]) -> None:
        if not isinstance(root, yaml.MappingNode) or root.flow_style:
            raise CannotRewrite("the file is written in braces")
        lines = ["expect:", *(f"  {key}: {_flow(value)}" for key, value in wanted.items()), ""]
        before = "" if self._text.endswith("\n") else self._newline
        end = len(self._text)
        self._edits.append(_Edit(end, end, before + self._newline.join(lines)))

    def _mapping(self, node: yaml.MappingNode, wanted: Mapping[str, Value]) -> None:
        known = {entry[0].value: entry for entry in node.value}
        kept = False
        for place, (name, entry) in enumerate(known.items()):
            if name in wanted:
                self._value(entry, wanted[name])
                kept = True
            else:
                self._remove(node, place, behind_another=kept)
        for name, value in wanted.items():
            if name not in known:
                self._insert(node, known["status"], f"{name}: {_flow(value)}")

    def _value(self, entry: Entry, wanted: Value) -> None:
        node = entry[1]
        if isinstance(wanted, Mapping):
            assert isinstance(node, yaml.MappingNode)
            for inner in node.value:
                if inner[0].value in wanted:
                    self._value(inner, wanted[inner[0].value])
        elif isinstance(node, yaml.SequenceNode):
            self._sequence(entry, node, wanted)
        elif node.value != _flow(wanted):
            self._replace(node, _flow(wanted))

    def _sequence(self, entry: Entry, node: yaml.SequenceNode, wanted: Value) -> None:
        words = wanted if isinstance(wanted, tuple) else ()
        if words and {item.value for item in node.value} == set(words):
            return
        if node.flow_style:
            self._replace(node, _flow(wanted))
            return
        kept = [item for item in node.value if item.value in words]
        for item in node.value:
            if item not in kept:
                self._cut_lines(item.start_mark.line, item.end_mark.line)
        if not words:  # the list becomes a word: behind the colon
            end = self._text.index(":", entry[0].end_mark.index) + 1
            self._edits.append(_Edit(end, end, f" {_flow(wanted)}"))
            return
        known = {item.value for item in kept}
        indent = " " * node.start_mark.column
        for word in words:
            if word not in known:
                self._add_line((kept or node.value)[-1], f"{indent}- {word}")

    def _remove(self, node: yaml.MappingNode, place: int, *, behind_another: bool) -> None:
        """Take one entry out of a mapping, in braces with the comma that is left over."""
        entries: Sequence[Entry] = node.value
        key, value = entries[place]
        if not node.flow_style:
            self._cut_lines(key.start_mark.line, _last_line(value))
        elif behind_another:
            self._cut(entries[place - 1][1].end_mark.index, value.end_mark.index)
        else:  # `status` always stays, so another follows
            self._cut(key.start_mark.index, entries[place + 1][0].start_mark.index)

    def _insert(self, node: yaml.MappingNode, after: Entry, text: str) -> None:
        key, value = after
        if node.flow_style:
            end = value.end_mark.index
            self._edits.append(_Edit(end, end, f", {text}"))
        else:
            self._add_line(value, " " * key.start_mark.column + text)

    def _replace(self, node: yaml.Node, text: str, *, space: bool = False) -> None:
        start, end = node.start_mark.index, node.end_mark.index
        self._keep_comments(start, end)
        before = " " if space and self._text[start - 1 : start] == ":" else ""
        self._edits.append(_Edit(start, end, before + text))

    def _add_line(self, after: yaml.Node, line: str) -> None:
        end = self._line_start(after.end_mark.line + 1)
        whole = self._text[end - 1 : end] == "\n"
        text = line + self._newline if whole else self._newline + line
        self._edits.append(_Edit(end, end, text))

    def _cut_lines(self, first: int, last: int) -> None:
        self._edits.append(_Edit(self._line_start(first), self._line_start(last + 1), ""))

    def _cut(self, start: int, end: int) -> None:
        self._keep_comments(start, end)
        self._edits.append(_Edit(start, end, ""))

    def _keep_comments(self, start: int, end: int) -> None:
        if _COMMENT.search(self._text[start:end]):
            line = self._text.count("\n", 0, start) + 1
            raise CannotRewrite(f"there is a comment inside the value on line {line}")

    def _line_start(self, line: int) -> int:
        """Index of the first character of a line, counted from 0; of the end, past the last."""
        index = 0
        for _ in range(line):
            found = self._text.find("\n", index)
            if found < 0:
                return len(self._text)
            index = found + 1
        return index


def _last_line(node: yaml.Node) -> int:
    """The last line of ``node``, from 0; the end mark of a block is where the next one begins."""
    if not isinstance(node, yaml.CollectionNode) or node.flow_style or not node.value:
        return node.end_mark.line
    last = node.value[-1]
    return _last_line(last[1] if isinstance(last, tuple) else last)


def _flow(value: Value | Mapping[str, Value]) -> str:
    """A value on one line, as YAML."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {_flow(one)}' for key, one in value.items())}}}"
    return f"[{', '.join(value)}]" if isinstance(value, tuple) else str(value)


__all__ = ["CannotRewrite", "Value", "with_expectation"]
