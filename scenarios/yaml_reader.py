"""Read YAML that a stranger wrote: plain data and the line of every value, or one clear error.

The reader builds the node graph with PyYAML and turns it into data itself, because only the
graph knows lines, duplicate keys and aliases.  Scalars follow YAML 1.2 where YAML 1.1 surprises:
only ``true`` and ``false`` are booleans, and only plain decimal numbers are numbers.  ``yes``,
``on``, ``0x10``, ``010``, ``1_000``, ``1:30`` and dates stay strings, so that a field that wants
a number refuses them by name instead of reading another value than the one in sight.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from meshplan.scenarios.errors import InputError
from meshplan.scenarios.files import MAX_BYTES, read_file

#: Keys and list indices that lead from the top of a document to a value.
KeyPath: TypeAlias = tuple[str | int, ...]

#: Limits on one document.  A scenario has about 50 nodes and 5 levels; a list of NVLink domains
MAX_NODES = 20_000
MAX_DEPTH = 40
MAX_DIGITS = 100

_TAG = "tag:yaml.org,2002:"
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)\Z")
_DECIMAL = re.compile(
    r"[-+]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?|\.[0-9]+(?:[eE][-+]?[0-9]+)?)\Z"
)
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)\Z|\.(?:nan|NaN|NAN)\Z")
_BOOLEAN = re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z")
_NULL = re.compile(r"(?:~|null|Null|NULL|)\Z")
#: Characters that have no business in a file of ours: codes that move a terminal's cursor or turn
#: the direction of writing, and halves of characters.
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


@dataclass(frozen=True)
class YamlDocument:
    """Plain data of one YAML document and the line of every value in it.

    Attributes
    ----------
    value
        Dictionaries with string keys, lists, strings, integers, finite floats, booleans, None.
    lines
        Path of a value to its 1-based line: the line of its key in a mapping, of its first
        character in a list.  The path ``()`` is the whole document.
    """

    value: Any
    lines: dict[KeyPath, int]


class _Refusal(Exception):
    """A reason to refuse the document, before the file name is known."""

    def __init__(self, message: str, advice: str, line: int | None) -> None:
        super().__init__(message)
        self.message, self.advice, self.line = message, advice, line


class NodeGraph(yaml.SafeLoader):
    """PyYAML's node graph with our scalars, and limits that hold while it is built."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.depth = 0
        self.nodes = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Compose one node; refuse when the document is too deep or too large."""
        line = self.peek_event().start_mark.line + 1  # type: ignore[no-untyped-call]
        self.nodes += 1
        _within_limits(self.nodes, self.depth, line)
        self.depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1


for _name, _pattern, _first in (
    ("int", _INTEGER, "-+0123456789"),
    ("float", _DECIMAL, "-+.0123456789"),
    ("float", _NOT_FINITE, "-+."),
    ("bool", _BOOLEAN, "tTfF"),
    ("null", _NULL, ["~", "n", "N", ""]),
):
    NodeGraph.add_implicit_resolver(_TAG + _name, _pattern, list(_first))


def read_yaml_file(path: str | Path) -> YamlDocument:
    """Read the YAML file at ``path``.

    Raises
    ------
    InputError
        If the file is missing, a folder, unreadable, larger than 1 MiB, not UTF-8, or refused by
        :func:`read_yaml`.
    """
    return read_yaml(read_file(path), str(path))


def read_yaml(text: str, name: str = "<string>") -> YamlDocument:
    """Read one YAML document from ``text``; ``name`` stands for the file in errors.

    Raises
    ------
    InputError
        If the text is malformed, empty, has several documents, duplicate or non-string keys,
        tags that build objects, numbers that are not finite, aliases that contain themselves,
        more than 20,000 nodes (aliases counted as often as they are used), more than 40 levels,
        or more than 1 MiB.
    """
    with _named(name, text):
        if len(text) > MAX_BYTES:
            raise _Refusal(
                f"the text is longer than {MAX_BYTES} characters",
                "this is not the text you meant; scenarios have a few kilobytes.",
                None,
            )
        graph = NodeGraph(text)
        try:
            root = graph.get_single_node()
        except (ValueError, OverflowError):  # PyYAML on escapes beyond Unicode ("\\UFFFFFFFF")
            raise _Refusal(
                "malformed YAML: an escape names no character",
                "check the backslashes in double quotes, or use single quotes.",
                graph.line + 1,
            ) from None
        finally:
            graph.dispose()
        if root is None:
            raise _Refusal(
                "the file is empty", "check the path, and that the file was saved.", None
            )
        reading = _Reading()
        return YamlDocument(reading.value(root, (), root.start_mark.line + 1), reading.lines)


@contextmanager
def _named(name: str, text: str) -> Iterator[None]:
    """Turn every refusal, PyYAML's and ours, into an InputError about the file ``name``."""
    try:
        yield
    except _Refusal as refusal:
        raise InputError(
            refusal.message, advice=refusal.advice, file=name, line=refusal.line
        ) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise InputError(
            f"character {text[error.position]!r} is not allowed in YAML",
            advice="remove it, or check that this is a text file.",
            file=name,
            line=line,
        ) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark is not None else 1
        problem = error.problem or "cannot be parsed"
        if "but found another document" in problem:
            raise InputError(
                "a second document starts here ('---')",
                advice="put each document into a file of its own.",
                file=name,
                line=line,
            ) from None
        source = text.splitlines()[line - 1 : line]
        where = f" at {shorten(source[0].strip())}" if source and source[0].strip() else ""
        raise InputError(
            f"malformed YAML{where}: {problem}",
            advice=_cure(problem),
            file=name,
            line=line,
        ) from None
    except yaml.YAMLError as error:
        raise InputError(f"malformed YAML: {shorten(str(error))}", file=name) from None


class _Reading:
    """One walk over a node graph: data out, lines kept, limits held with aliases expanded."""

    def __init__(self) -> None:
        self.lines: dict[KeyPath, int] = {}
        self._nodes = 0
        self._open: set[int] = set()

    def value(self, node: yaml.Node, path: KeyPath, line: int) -> Any:
        """Plain data below ``node``, whose place in the document is ``path``."""
        self.lines[path] = line
        self._nodes += 1
        _within_limits(self._nodes, len(path), line)
        kind = node.tag.removeprefix(_TAG)
        if isinstance(node, yaml.ScalarNode):
            return _scalar(node, kind, line)
        expected = "map" if isinstance(node, yaml.MappingNode) else "seq"
        if kind != expected:
            raise _bad_tag(node.tag, line)
        if id(node) in self._open:
            raise _Refusal(
                "an alias contains itself, so it would expand without end",
                "write the values out instead of using '&' and '*'.",
                line,
            )
        self._open.add(id(node))
        try:
            if isinstance(node, yaml.MappingNode):
                return self._mapping(node, path)
            return [
                self.value(item, (*path, index), item.start_mark.line + 1)
                for index, item in enumerate(node.value)
            ]
        finally:
            self._open.discard(id(node))

    def _mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            kind = key_node.tag.removeprefix(_TAG)
            if not isinstance(key_node, yaml.ScalarNode) or kind != "str":
                said = (
                    shorten(key_node.value)
                    if isinstance(key_node, yaml.ScalarNode)
                    else "a list or mapping"
                )
                raise _Refusal(
                    f"the key {said} is not a string", "put it in quotes, or check the colon.", line
                )
            key = _scalar(key_node, kind, line)
            if key in mapping:
                first = self.lines[(*path, key)]
                raise _Refusal(
                    f"duplicate key {shorten(key)}, first on line {first}",
                    "delete one of the two.",
                    line,
                )
            mapping[key] = self.value(value_node, (*path, key), line)
        return mapping


def _within_limits(nodes: int, depth: int, line: int) -> None:
    """Refuse at ``line`` when there are too many nodes or levels."""
    if nodes > MAX_NODES:
        raise _Refusal(
            f"more than {MAX_NODES:,} values, aliases expanded",
            "write the values out instead of using '&' and '*', or check the file.",
            line,
        )
    if depth > MAX_DEPTH:
        raise _Refusal(
            f"more than {MAX_DEPTH} levels of nesting", "check the brackets and indents.", line
        )


def _scalar(node: yaml.ScalarNode, kind: str, line: int) -> Any:
    """Value of a scalar, by its tag (resolved by us, or written by the user)."""
    text: str = node.value
    if kind == "str":
        if found := CONTROL.search(text):
            raise _Refusal(
                f"the string {shorten(text)} has the control character {found[0]!a}",
                "remove it.",
                line,
            )
        return text
    if kind == "null" and _NULL.match(text):
        return None
    if kind == "bool" and _BOOLEAN.match(text):
        return text.lower() == "true"
    if kind in ("int", "float"):
        return _number(text, kind, line)
    raise _bad_tag(node.tag, line, text)


def _number(text: str, kind: str, line: int) -> int | float:
    if _NOT_FINITE.match(text):
        raise _Refusal(f"{text} is not a finite number", "write a finite number.", line)
    if len(text) > MAX_DIGITS:
        raise _Refusal(
            f"the number {shorten(text)} has {len(text)} characters", "write a smaller one.", line
        )
    if kind == "int" and _INTEGER.match(text):
        return int(text)
    if kind == "float" and _DECIMAL.match(text):
        number = float(text)
        if math.isinf(number):
            raise _Refusal(f"{text} is too large for a number", "write a smaller one.", line)
        return number
    raise _bad_tag(_TAG + kind, line, text)


def _bad_tag(tag: str, line: int, text: str | None = None) -> _Refusal:
    short = tag.replace(_TAG, "!!")
    value = f" on {shorten(text)}" if text is not None else ""
    return _Refusal(
        f"the tag {shorten(short)}{value} is not allowed", "remove it: plain values suffice.", line
    )


def _cure(problem: str) -> str:
    """What most often helps against one of PyYAML's complaints."""
    if "'\\t'" in problem:
        return "indent with spaces: YAML allows no tabs there."
    if "mapping values are not allowed" in problem or "could not find expected ':'" in problem:
        return "check the indent here and the colon on the line before, or put the text in quotes."
    if "undefined alias" in problem:
        return "put a text that starts with '*' in quotes."
    return "check the quotes, brackets and indents here and on the line before."


def shorten(text: str, limit: int = 60) -> str:
    """``text`` in quotes with escapes, cut to about ``limit`` characters for a message."""
    return repr(text if len(text) <= limit else text[: limit - 3] + "...")
