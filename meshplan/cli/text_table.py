"""Rows as aligned columns, of which no terminal is too narrow to show all."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

import click

#: Columns of a report that goes into a file or pipe.
PLAIN_WIDTH = 100
#: The last column holds text and wraps, but not into less than this.
_LEAST_TEXT = 24
_GAP = 2


def print_table(
    rows: Iterable[Sequence[str]],
    *,
    title: str = "",
    columns: Sequence[str] = (),
    numbers: Sequence[str] = (),
    keys: int = 1,
) -> None:
    """Print rows as aligned columns, the last of which may wrap, then an empty line.

    Only the last column is ever broken, and nothing is ever cut: a figure without its last digits
    is a wrong figure.  Columns that do not fit beside the others follow in tables of their own.

    Parameters
    ----------
    columns
        Heads of the columns; none for a table of names and texts.
    numbers
        Those of ``columns`` that are aligned to the right.
    keys
        How many of the first columns say what a row is: each of several tables begins with them.
    """
    from rich.console import Console

    width = min(Console().width, PLAIN_WIDTH) if sys.stdout.isatty() else PLAIN_WIDTH
    indent = "  " if title else ""
    known = [(indent + row[0], *row[1:]) for row in rows]
    if title:
        click.echo(click.style(title, bold=True))
    least = _least_widths(known, columns)
    for part in _parts(least, keys, width):
        room = max(width, _sum(least[index] for index in part))
        _print(known, part, columns, numbers, room)


def _least_widths(rows: Sequence[Sequence[str]], columns: Sequence[str]) -> list[int]:
    """Columns of the terminal that each column of the table cannot do without."""
    from rich.cells import cell_len

    cells = zip(*([columns] if columns else []), *rows, strict=True)
    widths = [max(map(cell_len, column)) for column in cells]
    return [*widths[:-1], min(widths[-1], _LEAST_TEXT)]


def _sum(widths: Iterable[int]) -> int:
    known = list(widths)
    return sum(known) + _GAP * (len(known) - 1)


def _parts(least: Sequence[int], keys: int, width: int) -> list[list[int]]:
    """Which columns stand side by side: all, or the keys and as many others as there is room."""
    first = list(range(min(keys, len(least))))
    parts = [first]
    for index in range(len(first), len(least)):
        if _sum(least[one] for one in [*parts[-1], index]) > width and len(parts[-1]) > len(first):
            parts.append(first)
        parts[-1] = [*parts[-1], index]
    return parts


def _print(
    rows: Sequence[Sequence[str]],
    part: Sequence[int],
    columns: Sequence[str],
    numbers: Sequence[str],
    width: int,
) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(width=width, highlight=False)
    table = Table(box=None, padding=(0, _GAP, 0, 0), show_header=bool(columns), pad_edge=False)
    for index in part:
        head = columns[index] if columns else ""
        table.add_column(
            Text(head),
            justify="right" if head in numbers else "left",
            no_wrap=index < len(rows[0]) - 1,
            overflow="fold",
        )
    for row in rows:
        table.add_row(*(Text(row[index]) for index in part))
    with console.capture() as captured:
        console.print(table)
    click.echo("\n".join(line.rstrip() for line in captured.get().splitlines()) + "\n")


__all__ = ["PLAIN_WIDTH", "print_table"]
