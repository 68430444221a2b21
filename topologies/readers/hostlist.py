"""Hostlists, the short form of many node names: ``gpu-[001-016,020],login1``.

Written here because the libraries for it do not suit: python-hostlist is under the GPL, and the
grammar of ClusterShell has more in it (operators, groups that read files of the machine), which a
file of a stranger must not reach.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import product

from meshplan.topologies.errors import TopologyFileError

#: Most names in one hostlist: as many nodes of 4 GPUs as the largest cluster has.
MAX_NAMES = 262_144

#: Longest name of a node or switch: that of a host name.
MAX_LENGTH = 253

#: Most brackets, and texts between them, of one name.
MAX_PARTS = 16

_PIECE = re.compile(r"\[([^\[\]]*)\]|([^\[\],\s]+)|(.)", re.DOTALL)
_NAME = re.compile(r"[A-Za-z0-9_.:+-]+\Z")
_RANGE = re.compile(r"([0-9]{1,12})(?:-([0-9]{1,12}))?\Z")
_NUMBERED = re.compile(r"(.*?)([0-9]{1,12})\Z", re.DOTALL)


def expand(text: str, line: int | None = None) -> tuple[str, ...]:
    """All names of the hostlist ``text``, in order; zeros in front of numbers are kept.

    The names are counted before any is made, so a list of a billion costs nothing.

    Raises
    ------
    TopologyFileError
        If the list is malformed, has more than 262,144 names, or an impossible name.
    """
    names: list[str] = []
    for word in _words(text, line):
        parts = [_choices(inner, plain, text, line) for inner, plain in word]
        count = 1
        for part in parts:
            count *= len(part)
            if count + len(names) > MAX_NAMES:
                raise TopologyFileError(
                    f"the hostlist {_cut(text)} has more than {MAX_NAMES:,} names",
                    advice="check the ranges; no cluster has as many nodes.",
                    line=line,
                )
        made = ["".join(pieces) for pieces in product(*parts)]
        for name in (made[0], made[-1]):  # all others have the same length or one between
            if len(name) > MAX_LENGTH or not _NAME.match(name):
                raise TopologyFileError(
                    f"{_cut(name)} is no name of a node or switch",
                    advice="use letters, digits, '.', '_' and '-', and close all brackets.",
                    line=line,
                )
        names += made
    return tuple(names)


def _words(text: str, line: int | None) -> Iterable[list[tuple[str | None, str]]]:
    """Parts of each name between commas: a bracket's inside, or None and plain text."""
    word: list[tuple[str | None, str]] = []
    for inner, plain, other in _PIECE.findall(text):
        if other == ",":
            if not word:
                raise _malformed(text, "has an empty entry", line)
            yield word
            word = []
        elif other:
            raise _malformed(text, f"has {other!r} where none may be", line)
        else:
            word.append((None, plain) if plain else (inner, ""))
            if len(word) > MAX_PARTS:
                raise _malformed(text, f"has a name of more than {MAX_PARTS} parts", line)
    if not word:
        raise _malformed(text, "has an empty entry", line)
    yield word


def _choices(inner: str | None, plain: str, text: str, line: int | None) -> list[str] | tuple[str]:
    if inner is None:
        return (plain,)
    choices: list[str] = []
    for part in inner.split(","):
        match = _RANGE.match(part)
        if match is None:
            raise _malformed(text, f"has the range {_cut(part)}", line)
        low, high = match[1], match[2] or match[1]
        if int(high) < int(low):
            raise _malformed(text, f"has the range {part}, which runs backwards", line)
        if int(high) - int(low) + len(choices) >= MAX_NAMES:
            raise TopologyFileError(
                f"the hostlist {_cut(text)} has more than {MAX_NAMES:,} names",
                advice="check the ranges; no cluster has as many nodes.",
                line=line,
            )
        width = len(low) if low.startswith("0") or len(low) == len(high) else 0
        choices += [str(number).zfill(width) for number in range(int(low), int(high) + 1)]
    return choices


def _malformed(text: str, why: str, line: int | None) -> TopologyFileError:
    return TopologyFileError(
        f"the hostlist {_cut(text)} {why}",
        advice="write it as Slurm does: gpu[01-16,20],login1.",
        line=line,
    )


def _cut(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")


def fold(names: Iterable[str]) -> str:
    """A hostlist whose expansion is ``names`` in the same order.

    Only neighbours are joined, so that the order is kept.
    """
    runs: list[tuple[str, list[tuple[str, str]]]] = []
    for name in names:
        match = _NUMBERED.match(name)
        if match is None:
            runs.append((name, []))
            continue
        stem, number = match[1], match[2]
        if not (runs and runs[-1][0] == stem and runs[-1][1]):
            runs.append((stem, [(number, number)]))
            continue
        low, high = runs[-1][1][-1]
        follows = int(number) == int(high) + 1 and str(int(high) + 1).zfill(len(high)) == number
        # A padded list counts on by its own width only, and an unpadded one never gets padding.
        if follows and (len(number) == len(low) or not low.startswith("0")):
            runs[-1][1][-1] = (low, number)
        else:
            runs[-1][1].append((number, number))
    return ",".join(_folded(stem, ranges) for stem, ranges in runs)


def _folded(stem: str, ranges: list[tuple[str, str]]) -> str:
    if not ranges:
        return stem
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        return stem + ranges[0][0]
    inside = ",".join(low if low == high else f"{low}-{high}" for low, high in ranges)
    return f"{stem}[{inside}]"
