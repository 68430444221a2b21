"""The start of the command line: what it imports, and that the benchmark would notice."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest

from benchmarks import startup
from meshplan.cli.app import application


def test_help_imports_what_it_needs() -> None:
    """Tests that ``meshplan --help`` imports click and nothing else that has to be installed."""
    assert set(startup.imported(["--help"])) == startup.NEEDED
    assert {"ortools", "numpy", "networkx", "pydantic"}.isdisjoint(startup.NEEDED)


def _commands() -> list[list[str]]:
    known = []
    for name, command in application.commands.items():
        inner = command.commands if isinstance(command, click.Group) else {}
        known += [[name], *([name, one] for one in inner)]
    return known


@pytest.mark.parametrize("command", _commands(), ids=" ".join)
def test_help_of_each_command_is_light(command: list[str]) -> None:
    """Tests that no command imports its tools before it is run."""
    assert set(startup.imported([*command, "--help"])) == startup.NEEDED


def test_benchmark_measures_all_commands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests a run: the baseline first and fastest, no solver and no arrays in any import."""
    target = tmp_path / "out.json"
    startup.main(["--runs", "1", "--json", str(target)])
    rows = json.loads(target.read_text("utf-8"))
    assert [row["command"] for row in rows][:2] == ["python -c pass", "meshplan --help"]
    assert all(0 < rows[0]["cpu_s"] < row["cpu_s"] for row in rows[1:])
    heavy = {"networkx", "numpy", "ortools"}
    assert [row["command"] for row in rows if heavy & set(row["imports"])] == []
    assert "| `meshplan schema` |" in capsys.readouterr().out


def test_slow_and_heavy_starts_are_found() -> None:
    """Tests both faults, and none at the edge below."""
    good = {"command": "meshplan --help", "cpu_s": 0.299, "imports": ["click", "meshplan"]}
    assert startup.faults([good]) == []
    bad = {**good, "cpu_s": 0.3, "imports": ["click", "meshplan", "numpy"]}
    assert startup.faults([bad]) == [
        "meshplan --help takes 0.30 s, not less than 0.3 s",
        "meshplan --help imports numpy",
    ]
