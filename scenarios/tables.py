"""Read a table that a user names (CSV): bounded, each fault with file, line, value and advice.

Columns are separated by commas, semicolons or tabs, whichever the header has most of.  Blank lines,
and those that begin with ``#`` before a row, are passed over.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from meshplan.scenarios.errors import InputError
from meshplan.scenarios.files import read_file
from meshplan.scenarios.yaml_reader import CONTROL, shorten

#: More rows than any table of runs has; a file of 1 MiB could hold a million.
MOST_ROWS = 10_000
#: No measured figure of a run is as large, in any unit that is in use.
LARGEST = 1e12

_SEPARATORS = ",;\t"


@dataclass(frozen=True)
class TableRow:
    """Cells of one row by column, without spaces at the ends.

    Attributes
    ----------
    file, line
        Where it begins, for messages (1-based).
    """

    file: str
    line: int
    cells: dict[str, str]

    def text(self, column: str) -> str:
        """The cell; empty if the table has no such column."""
        return self.cells.get(column, "")

    def number(self, column: str, most: float = LARGEST) -> float | None:
        """A positive number up to ``most``, or None if the cell is empty.

        Raises
        ------
        InputError
            If it is no such number: a plain one, with a decimal point and without a unit.
        """
        text = self.text(column)
        if not text:
            return None
        if len(text) > 40 or not re.fullmatch(r"\d+(\.\d*)?([eE][-+]?\d+)?", text, re.ASCII):
            raise self.fault(column, "a positive number")
        return self.within(column, float(text), most)

    def within(self, column: str, value: float, most: float) -> float:
        """``value``, which the cell says, if it is above zero and not above ``most``.

        Raises
        ------
        InputError
            If it is not.
        """
        if not 0 < value <= most:
            raise self.fault(column, f"a positive number up to {most:,.12g}")
        return value

    def whole(self, column: str, least: int = 1, most: int = 10**9) -> int | None:
        """A whole number from ``least`` to ``most``, or None if the cell is empty.

        Raises
        ------
        InputError
            If it is no such number.
        """
        text = self.text(column)
        if not text:
            return None
        wanted = f"a whole number from {least:,} to {most:,}"
        if not re.fullmatch(r"\d{1,18}(\.0)?", text, re.ASCII):
            raise self.fault(column, wanted)
        value = int(text.removesuffix(".0"))
        if not least <= value <= most:
            raise self.fault(column, wanted)
        return value

    def fault(self, column: str, wanted: str) -> InputError:
        """The refusal of a cell that is not ``wanted``."""
        text = self.text(column)
        advice = "the value stands in another column, or leave it empty if it is not known."
        if re.fullmatch(r"\d+,\d+", text, re.ASCII):
            advice = f"write {text.replace(',', '.')}, with a decimal point."
        return self.error(f"{column} is {shorten(text)}, but must be {wanted}", advice)

    def error(self, message: str, advice: str) -> InputError:
        """A refusal that names the place of the row."""
        return InputError(message, advice=advice, file=self.file, line=self.line)


@dataclass(frozen=True)
class Table:
    """The rows of a file.

    Attributes
    ----------
    file
        Its name, for messages.
    line
        Line of the header (1-based); 0 if there is none.
    columns
        Names in their order, in small letters.
    separator
        What stands between the columns.
    rows
        All rows; none if the file is empty.
    """

    file: str
    line: int
    columns: tuple[str, ...]
    separator: str
    rows: tuple[TableRow, ...]

    def require(self, columns: Collection[str], like: str) -> None:
        """Refuse a table without all of ``columns``, or without rows.

        Parameters
        ----------
        like
            A file whose header has them, for the advice.

        Raises
        ------
        InputError
            If a column is missing, or there is no row.
        """
        if missing := [name for name in columns if name not in self.columns]:
            raise InputError(
                f"the header lacks {', '.join(missing)}" if self.line else "the file is empty",
                advice=f"take the header of {like}.",
                file=self.file,
                line=self.line or None,
            )
        self.require_rows("add rows below the header.")

    def require_rows(self, advice: str) -> None:
        """Refuse a table without rows.

        Raises
        ------
        InputError
            If there is none.
        """
        if not self.rows:
            what = "a header, but no rows" if self.line else "neither a header nor rows"
            raise InputError(f"the file has {what}", advice=advice, file=self.file)


def read_table(path: str | Path, *, most_rows: int = MOST_ROWS, whole_rows: bool = True) -> Table:
    """The table in a file.

    Parameters
    ----------
    most_rows
        More are refused.
    whole_rows
        Whether each row must have all cells; otherwise those at its end may be left out, as empty.

    Raises
    ------
    InputError
        If the file cannot be read or is no table: over 1 MiB or ``most_rows``, a column that stands
        twice, a row of another length, a quotation mark left open, or control characters.
    """
    name = str(path)
    lines = _lines(read_file(path))
    separator = _separator(lines)
    columns: tuple[str, ...] = ()
    start = 0
    rows: list[TableRow] = []
    for line, cells in _records(name, lines, separator):
        if not columns:
            columns, start = _header(name, line, cells), line
            continue
        if len(rows) == most_rows:
            raise InputError(
                f"there are more than {most_rows} rows",
                advice="split the file, or leave rows out.",
                file=name,
                line=line,
            )
        rows.append(_row(name, line, columns, cells, whole_rows))
    return Table(name, start, columns, separator, tuple(rows))


def _lines(text: str) -> list[str]:
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def _is_comment(line: str) -> bool:
    return line.lstrip().startswith("#")


def _separator(lines: list[str]) -> str:
    """The separator that the header has most of, outside of quotes; of equals the comma."""
    header = next((line for line in lines if line.strip() and not _is_comment(line)), "")
    bare = re.sub(r'"[^"]*"', "", header)
    return max(_SEPARATORS, key=bare.count)


def _records(name: str, lines: list[str], separator: str) -> Iterator[tuple[int, list[str]]]:
    """First line and cells of each record that is neither blank nor a comment."""
    begins = False

    def fed() -> Iterator[str]:
        nonlocal begins
        for line in lines:
            # Within a quoted cell, a line that begins with # is text.
            passed_over = begins and _is_comment(line)
            begins = False
            yield "\n" if passed_over else f"{line}\n"

    reader = csv.reader(fed(), strict=True, delimiter=separator)
    start = 1
    while True:
        begins = True
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise InputError(
                f"the line is no CSV: {error}",
                advice="close each double quote, and write a quote within one twice.",
                file=name,
                line=start,
            ) from None
        if any(cell.strip() for cell in cells):
            yield start, cells
        start = reader.line_num + 1


def _header(name: str, line: int, cells: list[str]) -> tuple[str, ...]:
    header = tuple(cell.strip().lower() for cell in cells)
    for place, column in enumerate(header):
        _refuse_control(name, line, f"the name of column {place + 1}", column)
        if column and column in header[:place]:
            raise InputError(
                f"the column {shorten(column)} stands twice",
                advice="remove one of the two.",
                file=name,
                line=line,
            )
    return header


def _row(name: str, line: int, columns: tuple[str, ...], cells: list[str], whole: bool) -> TableRow:
    if len(cells) > len(columns) == 1:
        raise InputError(
            f"the header is {shorten(columns[0])}, one column, but the line has {len(cells)} cells",
            advice="this is no CSV file, or its first line is missing.",
            file=name,
            line=line,
        )
    if len(cells) > len(columns):
        raise InputError(
            f"the line has {len(cells)} cells, but the header has {len(columns)} columns; the "
            f"first cell too many is {shorten(cells[len(columns)])}",
            advice='put a text with commas, such as a layout, in double quotes: "tp=2,pp=4".',
            file=name,
            line=line,
        )
    if whole and len(cells) < len(columns):
        raise InputError(
            f"the line has {len(cells)} cells, but the header has {len(columns)} columns; there is "
            f"none for {shorten(columns[len(cells)])}",
            advice="leave cells empty, but not out.",
            file=name,
            line=line,
        )
    filled = [*cells, *[""] * (len(columns) - len(cells))]
    found = {column: cell.strip() for column, cell in zip(columns, filled, strict=True) if column}
    for column, cell in found.items():
        _refuse_control(name, line, column, cell)
    return TableRow(name, line, found)


def _refuse_control(name: str, line: int, what: str, text: str) -> None:
    if found := CONTROL.search(text):
        raise InputError(
            f"{what} has the control character {found[0]!a}: {text[:60]!a}",
            advice="remove it; a table has plain text.",
            file=name,
            line=line,
        )


__all__ = ["LARGEST", "MOST_ROWS", "Table", "TableRow", "read_table"]
