"""YAML of a stranger as plain values with their lines, bounded while it is read.

Made from events, so that depth, size and aliases are refused before anything is built, and
libyaml does the work: files for thousands of nodes take milliseconds.  Scalars stay text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, cast

import yaml

from meshplan.topologies.errors import TopologyFileError

MAX_VALUES = 500_000
MAX_DEPTH = 20

Data: TypeAlias = "str | list[Value] | dict[str, Value]"


@dataclass
class Value:
    """A text, a list or a mapping, and the line where it begins."""

    data: Data
    line: int


def read_values(text: str) -> Value:
    """The one document in ``text``.

    Raises
    ------
    TopologyFileError
        With the line, if the text is malformed, empty, has several documents, aliases, tags,
        duplicate keys, keys that are no plain text, more than 20 levels or 500,000 values.
    """
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return _built(yaml.parse(text, Loader=loader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise TopologyFileError(
            f"malformed YAML: {error.problem or 'cannot be parsed'}",
            advice="check the indents and quotes here and on the line before.",
            line=mark.line + 1 if mark is not None else None,
        ) from None
    except yaml.YAMLError as error:
        raise TopologyFileError(
            f"malformed YAML: {str(error)[:80]!r}", advice="check that this is a text file."
        ) from None


def _built(events: object) -> Value:
    root: Value | None = None
    # Open collections; for a mapping also the key that waits for its value.
    stack: list[Value] = []
    keys: list[str | None] = []
    count = documents = 0
    for event in events:  # type: ignore[attr-defined]
        line = event.start_mark.line + 1
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise _refused("a second document starts here", line)
        elif isinstance(event, yaml.AliasEvent):
            raise _refused("aliases ('*') are not read", line)
        elif isinstance(event, yaml.CollectionEndEvent):
            stack.pop()
            keys.pop()
        elif isinstance(event, yaml.NodeEvent):
            count += 1
            if count > MAX_VALUES or len(stack) >= MAX_DEPTH:
                raise _refused(f"more than {MAX_VALUES:,} values or {MAX_DEPTH} levels", line)
            if getattr(event, "tag", None) not in (None, "!"):
                raise _refused("tags ('!') are not read", line)
            value = Value(_data(event), line)
            if root is None:
                root = value
            else:
                _put(stack[-1], keys, value)
            if isinstance(event, yaml.CollectionStartEvent):
                stack.append(value)
                keys.append(None)
    if root is None:
        raise TopologyFileError("the file is empty", advice="check that it was saved.")
    return root


def _data(event: yaml.NodeEvent) -> Data:
    if isinstance(event, yaml.ScalarEvent):
        return str(event.value)
    return {} if isinstance(event, yaml.MappingStartEvent) else []


def _put(holder: Value, keys: list[str | None], value: Value) -> None:
    if isinstance(holder.data, list):
        holder.data.append(value)
        return
    mapping = cast("dict[str, Value]", holder.data)
    key = keys[-1]
    if key is not None:
        mapping[key] = value
        keys[-1] = None
    elif not isinstance(value.data, str):
        raise _refused("a key is a list or mapping", value.line)
    elif value.data in mapping:
        raise _refused(f"the key {value.data[:60]!r} is given twice", value.line)
    else:
        keys[-1] = value.data


def _refused(why: str, line: int) -> TopologyFileError:
    return TopologyFileError(why, advice="write plain lists, mappings and texts.", line=line)


def mapping_of(value: Value, what: str, known: tuple[str, ...]) -> dict[str, Value]:
    """The mapping in ``value``, with no key but those ``known``.

    Raises
    ------
    TopologyFileError
        If it is none, or has another key.
    """
    if not isinstance(value.data, dict):
        raise TopologyFileError(
            f"{what} is {shown(value)}, but must be a mapping",
            advice=f"give it keys: {', '.join(known)}.",
            line=value.line,
        )
    for key, part in value.data.items():
        if key not in known:
            raise TopologyFileError(
                f"{what} has the unknown key {key[:60]!r}",
                advice=f"use {', '.join(known)}.",
                line=part.line,
            )
    return value.data


def list_of(value: Value, what: str) -> list[Value]:
    """The list in ``value``; a single mapping stands for a list of one, as in Slurm.

    Raises
    ------
    TopologyFileError
        If it is a text.
    """
    if isinstance(value.data, list):
        return value.data
    if isinstance(value.data, dict):
        return [value]
    raise TopologyFileError(
        f"{what} is {shown(value)}, but must be a list",
        advice="begin each entry with '- ' on a line of its own.",
        line=value.line,
    )


def text_of(value: Value | None, what: str, line: int) -> str:
    """The text in ``value``.

    Raises
    ------
    TopologyFileError
        If it is missing, empty, or no text.
    """
    if value is None or not isinstance(value.data, str) or not value.data:
        said = "is missing" if value is None else f"is {shown(value)}, but must be a text"
        raise TopologyFileError(f"{what} {said}", advice="write it as plain text.",
                                line=value.line if value else line)  # fmt: skip
    return value.data


def whole_of(value: Value, what: str) -> int:
    """The positive whole number in ``value``.

    Raises
    ------
    TopologyFileError
        If it is none, or above 1,048,576.
    """
    text = value.data
    if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 8:
        number = int(text)
        if 1 <= number <= 1_048_576:
            return number
    raise TopologyFileError(
        f"{what} is {shown(value)}, but must be a whole number from 1 to 1048576",
        advice="write a plain number.",
        line=value.line,
    )


def shown(value: Value) -> str:
    """``value`` in a few words, for a message."""
    if isinstance(value.data, str):
        return repr(value.data if len(value.data) <= 60 else value.data[:57] + "...")
    return "a list" if isinstance(value.data, list) else "a mapping"
