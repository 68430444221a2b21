"""Tables on terminals of any width: each figure whole, each text there."""

from __future__ import annotations

import sys

import click
import pytest

from meshplan.cli.text_table import print_table

_HEADS = ("seq_len", "status", "step s", "layout or conflict")
_ROWS = [
    ("131,072", "optimal", "0.8742", "tp=4 cp=2 ep=16 ga=8"),
    ("524,288", "infeasible", "", "memory-capacity"),
]


def _shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], columns: int, keys: int = 1
) -> list[str]:
    """Lines of the table on a terminal with so many columns."""
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    print_table(_ROWS, columns=_HEADS, numbers=("seq_len", "step s"), keys=keys)
    return [line.rstrip() for line in click.unstyle(capsys.readouterr().out).splitlines()]


def test_one_table_where_there_is_room(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """7 + 10 + 6 + 20 columns with three gaps of 2 are 49."""
    assert _shown(monkeypatch, capsys, 49) == [
        "seq_len  status      step s  layout or conflict",
        "131,072  optimal     0.8742  tp=4 cp=2 ep=16 ga=8",
        "524,288  infeasible          memory-capacity",
        "",
    ]


def test_what_has_no_room_follows_in_another_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a column less the text goes below, beside what says which row it is of."""
    assert _shown(monkeypatch, capsys, 48) == [
        "seq_len  status      step s",
        "131,072  optimal     0.8742",
        "524,288  infeasible",
        "",
        "seq_len  layout or conflict",
        "131,072  tp=4 cp=2 ep=16 ga=8",
        "524,288  memory-capacity",
        "",
    ]


@pytest.mark.parametrize("columns", [1, 10, 20, 30, 40, 60])
@pytest.mark.parametrize("keys", [1, 2])
def test_no_terminal_cuts_a_cell(
    columns: int, keys: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A step of 0.8742 s that lost its last digit, or DP 64 as 6, would be a wrong figure."""
    text = "\n".join(_shown(monkeypatch, capsys, columns, keys))
    for cell in [*_HEADS, *(cell for row in _ROWS for cell in row)]:
        assert cell in text


def test_a_long_text_wraps(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Words of the last column go on in the next line, below each other."""
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    print_table([("id", "one rule and another one, which clash")])
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["id  one rule and another one,", "    which clash", ""]
