"""What a page consists of: sections with tables, lists and drawings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Table:
    """Rows of text under heads; the first column names its row.

    Attributes
    ----------
    numbers
        Places of the columns that are aligned to the right.
    unfolded
        Whether a page shows it at once even beside a figure: it says more than that.
    """

    caption: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: frozenset[int] = frozenset()
    unfolded: bool = False


@dataclass(frozen=True)
class Drawing:
    """A figure to be drawn.

    Attributes
    ----------
    kind
        Which of the figures of :mod:`meshplan.solver.report.html.figures`.
    label
        What it shows, in a sentence: its caption, and its name for a screen reader.
    rows
        Its data: what is drawn, and nothing else.
    keys
        Its legend: CSS class of a colour, and what has it.
    """

    kind: str
    label: str
    rows: list[dict[str, Any]]
    keys: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Section:
    """A chapter of the page.

    Attributes
    ----------
    name
        Its anchor.
    items
        Paragraphs, each with the id that it explains, or an empty one.
    """

    name: str
    title: str
    note: str = ""
    drawings: tuple[Drawing, ...] = ()
    tables: tuple[Table, ...] = ()
    items: tuple[tuple[str, str], ...] = field(default=())
    tone: str = ""


def table(
    caption: str,
    heads: tuple[str, ...],
    rows: Sequence[tuple[str, ...]],
    text: tuple[int, ...] = (0,),
    *,
    unfolded: bool = False,
) -> Table:
    """A table whose columns are numbers but for those at the places ``text``."""
    numbers = frozenset(range(len(heads))) - frozenset(text)
    return Table(caption, heads, tuple(rows), numbers, unfolded)


__all__ = ["Drawing", "Section", "Table", "table"]
