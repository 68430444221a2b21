"""Errors of the topology package: plain facts that the command line can print as they are."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UnknownName(KeyError):
    """A name that no data file knows, with the nearest ones that exist.

    Parameters
    ----------
    kind
        What was looked up, for the message: ``node type``.
    name
        The name that was asked for.
    known
        All names that exist.

    Attributes
    ----------
    suggestions
        Up to three existing names that look like ``name``, nearest first.
    """

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        super().__init__(name)
        names = tuple(known)
        self.kind = kind
        self.name = name
        self.suggestions = tuple(difflib.get_close_matches(name, names, n=3, cutoff=0.4))
        self.message = f"unknown {kind} {name!r}"
        self.advice = f"you mean one of: {', '.join(self.suggestions or names)}."

    def __str__(self) -> str:
        return f"{self.message}\nMaybe {self.advice}"


class ClusterError(ValueError):
    """A cluster that cannot exist or is too large.

    Parameters
    ----------
    message
        Names the field *and its value*.
    advice
        What to do, without the leading "Maybe".
    """

    def __init__(self, message: str, *, advice: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.advice = advice

    def __str__(self) -> str:
        return f"{self.message}\nMaybe {self.advice}" if self.advice else self.message


class TopologyFileError(ClusterError):
    """A topology file that cannot be read as what it is, or contradicts itself.

    Parameters
    ----------
    message
        Names the entry *and its value*.
    advice
        What to do, without the leading "Maybe".
    line
        Where it stands (1-based), if it stands on one line.
    file
        Name of the file; whoever knows it may fill it in later.
    """

    def __init__(
        self,
        message: str,
        *,
        advice: str | None = None,
        line: int | None = None,
        file: str | None = None,
    ) -> None:
        super().__init__(message, advice=advice)
        self.line = line
        self.file = file
