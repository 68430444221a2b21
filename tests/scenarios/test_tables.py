"""Tests of the CSV reader: columns and lines of good tables, one clear refusal of bad ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshplan.scenarios.errors import InputError
from meshplan.scenarios.files import MAX_BYTES
from meshplan.scenarios.tables import Table, TableRow, read_table


def table(folder: Path, text: str, most_rows: int = 5) -> Table:
    """The table in a file with this text."""
    path = folder / "t.csv"
    path.write_bytes(text.encode())
    return read_table(path, most_rows=most_rows)


def cell(text: str) -> TableRow:
    """A row of the one column ``n``."""
    return TableRow("t.csv", 2, {"n": text})


@pytest.mark.parametrize(
    "text", ["A, b ,c\n1,2,3\n", "a;b;c\r\n1;2;3\r\n", "a\tb\tc\r1\t2\t3", "\ufeffa,b,c\n1,2,3"]
)
def test_separators_and_line_ends(tmp_path: Path, text: str) -> None:
    """Tests commas, semicolons and tabs, each kind of line end, and a byte-order mark."""
    found = table(tmp_path, text)
    assert found.columns == ("a", "b", "c") and found.line == 1
    assert [(row.line, row.cells) for row in found.rows] == [(2, {"a": "1", "b": "2", "c": "3"})]


def test_commas_within_cells_do_not_decide_the_separator(tmp_path: Path) -> None:
    """Tests a quoted header with more commas than semicolons, and layouts without quotes."""
    found = table(tmp_path, '"a (x,y,z)";b\ntp=2,pp=4;9\n')
    assert found.separator == ";" and found.rows[0].cells == {"a (x,y,z)": "tp=2,pp=4", "b": "9"}


def test_lines_are_those_of_an_editor(tmp_path: Path) -> None:
    """Tests comments, blank lines, and a cell of several lines, one of which begins with ``#``."""
    found = table(tmp_path, '# c\n\na,b\n1,"x\n# no comment\ny"\n , \n  # c, d\n2,"say ""z"""\n')
    assert found.line == 3
    assert [row.line for row in found.rows] == [4, 9]
    assert [row.text("b") for row in found.rows] == ["x\n# no comment\ny", 'say "z"']


def test_empty_columns_and_short_rows(tmp_path: Path) -> None:
    """Tests what spreadsheets leave behind, and rows that may end early."""
    found = table(tmp_path, "a,b,,\n1,2,,\n")
    assert found.rows[0].cells == {"a": "1", "b": "2"}
    path = tmp_path / "short.csv"
    path.write_text("a,b\n1\n", "utf-8")
    assert read_table(path, whole_rows=False).rows[0].cells == {"a": "1", "b": ""}
    with pytest.raises(InputError, match=r"short.csv:2: the line has 1 cells.* none for 'b'"):
        read_table(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n1,2,3\n", "t.csv:2: the line has 3 cells.* the first cell too many is '3'"),
        ("meshplan: 1\nx: [1, 2]\n", "t.csv:2: the header is 'meshplan: 1', one column, but .* 2"),
        ("a,A\n1,2\n", "t.csv:1: the column 'a' stands twice"),
        ('a,b\n\n1,"2\n3,4\n', "t.csv:3: the line is no CSV"),
        ("a\n1\n2\n3\n", "t.csv:4: there are more than 2 rows"),
        ("a\n\x1b[2J\n", r"t.csv:2: a has the control character '\\x1b': '\\x1b\[2J'"),
        ("a\x00\n1\n", "t.csv:1: the name of column 1 has the control character"),
        ("a\nx\u202ey\n", r"t.csv:2: a has the control character '\\u202e'"),
        ("a\n" + "x" * MAX_BYTES, "t.csv: the file is larger than"),
    ],
)  # fmt: skip
def test_bad_tables_are_refused(tmp_path: Path, text: str, words: str) -> None:
    """Tests that each refusal has file, line where there is one, value and advice."""
    with pytest.raises(InputError, match=words) as refused:
        table(tmp_path, text, most_rows=2)
    assert refused.value.advice and "\x1b" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "t.csv: the file is empty"),
        ("# c\n\n", "t.csv: the file is empty"),
        ("a\n1\n", "t.csv:1: the header lacks b"),
        ("a,b\n", "t.csv: the file has a header, but no rows"),
    ],
)
def test_tables_without_what_is_required(tmp_path: Path, text: str, words: str) -> None:
    """Tests empty files, missing columns, and a header alone."""
    with pytest.raises(InputError, match=words) as refused:
        table(tmp_path, text).require(("a", "b"), "other.csv")
    assert refused.value.advice


def test_numbers() -> None:
    """Tests figures, an empty cell, and a column that is not there."""
    assert [cell(text).number("n") for text in ("2.5", "1e3", "3.", "")] == [2.5, 1000, 3, None]
    assert [cell(text).whole("n", 0) for text in ("0", "12.0", "")] == [0, 12, None]
    assert cell("1").number("other") is None


@pytest.mark.parametrize(
    "text", ["0", "-1", "nan", "inf", "1e13", "1e999", "1_0", "٣", "1 s", "0x1", "9" * 41]
)
def test_what_is_no_number(text: str) -> None:
    """Tests that each is refused as a figure and as a count, with place and value."""
    for read in (cell(text).number, cell(text).whole):
        with pytest.raises(InputError, match=r"t.csv:2: n is '.*', but must be a ") as refused:
            read("n")
        assert refused.value.advice


def test_a_decimal_comma_is_recognised() -> None:
    """Tests the advice."""
    with pytest.raises(InputError, match=r"Maybe write 6\.5, with a decimal point"):
        cell("6,5").number("n")
