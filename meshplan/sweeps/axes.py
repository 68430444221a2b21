"""What is swept: one axis for each ``--over FIELD=V1,V2,...``."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from meshplan.scenarios.checks import shown
from meshplan.scenarios.errors import InputError
from meshplan.scenarios.yaml_reader import read_yaml, shorten

#: Scenarios of one sweep, at most: at a tenth of a second each, a quarter of an hour.
MOST_SCENARIOS = 10_000

#: ``4096..262144*2``: from, to, and the step or factor.
_RANGE = re.compile(r"(\d+)\.\.(\d+)(?:([*+])(\d+))?")
_OPENING, _CLOSING = "[{(", ")}]"


@dataclass(frozen=True)
class Axis:
    """One field of a scenario and the values that it takes.

    Attributes
    ----------
    field
        Its path: ``workload.seq_len``.
    values
        As read from YAML, in the order given.
    texts
        As they were written, for overrides and labels.
    """

    field: str
    values: tuple[Any, ...]
    texts: tuple[str, ...]

    def overrides(self) -> list[str]:
        """What ``--set`` would say for each value."""
        return [f"{self.field}={text}" for text in self.texts]


def read_axes(overs: Sequence[str], fixed: Sequence[str] = ()) -> tuple[Axis, ...]:
    """Read what follows each ``--over``.

    Parameters
    ----------
    overs
        ``workload.seq_len=4096,8192``, or a range: ``workload.seq_len=4096..65536*2``,
        ``cluster.gpus=8..64+8``.
    fixed
        What follows each ``--set``: no field can be in both.

    Raises
    ------
    InputError
        If one is not of that form, says a value or a field twice, or they make too many scenarios.
    """
    if not overs:
        raise InputError("nothing is swept", advice="add --over workload.seq_len=4096,8192,16384.")
    axes = tuple(_axis(over) for over in overs)
    taken: list[tuple[str, str]] = [(one.partition("=")[0], f"--set {one}") for one in fixed]
    for axis, over in zip(axes, overs, strict=True):
        for field, said in taken:
            _keep_apart(axis.field, over, _path(field), said)
        taken.append((axis.field, f"--over {over}"))
    number = math.prod(len(axis.values) for axis in axes)
    if number > MOST_SCENARIOS:
        counts = " * ".join(f"{len(axis.values):,}" for axis in axes)
        raise InputError(
            f"--over makes {counts} = {number:,} scenarios, but {MOST_SCENARIOS:,} are the most",
            advice="sweep fewer values, or a part of the grid at a time.",
        )
    return axes


def axes_of(over: Mapping[str, Iterable[Any]]) -> tuple[Axis, ...]:
    """Axes from Python values, by field.

    Raises
    ------
    InputError
        As :func:`read_axes` does.
    """
    listed = {field: list(values) for field, values in over.items()}
    for field, values in listed.items():
        if not values:
            raise InputError(f"over has no values for {shown(field)}", advice="give one or more.")
    return read_axes(
        [f"{field}={','.join(map(json.dumps, values))}" for field, values in listed.items()]
    )


def _path(field: str) -> str:
    return ".".join(part.strip() for part in field.split("."))


def _axis(over: str) -> Axis:
    label = f"--over {shorten(over, 100)}"
    field, equals, text = over.partition("=")
    if not equals or not all(part.strip() for part in field.split(".")):
        raise InputError(
            f"{label} is not of the form FIELD=V1,V2,...",
            advice="write workload.seq_len=4096,8192.",
        )
    texts = [one for part in _parts(text) for one in _expanded(part, label)]
    values: list[Any] = []
    for one in texts:
        try:
            value = read_yaml(one).value if one else None
        except InputError as error:
            raise InputError(f"{label}: {error.message}", advice=error.advice) from None
        if any(value == other and type(value) is type(other) for other in values):
            raise InputError(
                f"{label} has the value {shown(value)} twice", advice="name each value once."
            )
        values.append(value)
    return Axis(_path(field), tuple(values), tuple(texts))


def _parts(text: str) -> list[str]:
    """``text`` at its commas, but for those inside brackets, braces or quotes."""
    parts, depth, quote = [""], 0, ""
    for char in text:
        if char == "," and depth == 0 and not quote:
            parts.append("")
            continue
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        depth += 0 if quote else (char in _OPENING) - (char in _CLOSING)
        parts[-1] += char
    return [part.strip() for part in parts]


def _expanded(part: str, label: str) -> list[str]:
    """The values of a range; anything else is one value."""
    match = _RANGE.fullmatch(part)
    if match is None:
        if not part:
            raise InputError(
                f"{label} has an empty value",
                advice="write null for a field that is left open, and no comma too many.",
            )
        return [part]
    if max(map(len, match.groups(default=""))) > 18:
        raise InputError(f"{label}: {shorten(part)} has a number that is out of all range")
    first, last = int(match[1]), int(match[2])
    sign, by = match[3] or "+", int(match[4] or 1)
    if first > last or by < (2 if sign == "*" else 1) or (sign == "*" and first == 0):
        raise InputError(
            f"{label}: {part} is no range that ends",
            advice="write FIRST..LAST*FACTOR or FIRST..LAST+STEP: 4096..65536*2, 8..64+8.",
        )
    values = []
    while first <= last:
        values.append(str(first))
        first = first * by if sign == "*" else first + by
        if len(values) > MOST_SCENARIOS:
            raise InputError(
                f"{label}: {part} has more than {MOST_SCENARIOS:,} values",
                advice="take larger steps.",
            )
    return values


def _keep_apart(field: str, over: str, other: str, said: str) -> None:
    """Refuse two changes of one field, or of a field and of a section around it."""
    if f"{field}.".startswith(f"{other}.") or f"{other}.".startswith(f"{field}."):
        raise InputError(
            f"--over {shorten(over, 100)} and {shorten(said, 100)} change the same field",
            advice="keep one of them.",
        )


__all__ = ["MOST_SCENARIOS", "Axis", "axes_of", "read_axes"]
