from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from meshplan.cli.app import application
from tests.meshplan.results import small_file

_TOO_LARGE = "layout: {tp: 8, cp: 2}\n"


def _diagnose(*arguments: str) -> Result:
    return CliRunner().invoke(application, ["diagnose", *arguments])


def _flat(text: str) -> str:
    return " ".join(text.replace("│", " ").split())


@pytest.mark.parametrize(
    ("extra", "code", "words"),
    [
        (_TOO_LARGE, 3, "arithmetic alone shows that no layout can exist"),
        ("layout: {dp: 8}\n", 0, "It fits, with room"),
    ],
)
def test_exit_code_follows_the_answer(tmp_path: Path, extra: str, code: int, words: str) -> None:
    """Tests 3 where nothing fits, and 0 where something does."""
    run = _diagnose(small_file(tmp_path, extra))
    assert run.exit_code == code, run.output
    assert words in _flat(run.output)


def test_a_limit_before_the_verdict_is_told(tmp_path: Path) -> None:
    """Tests exit code 4 where a limit came before it was known whether anything fits."""
    run = _diagnose(small_file(tmp_path), "--time-limit", "1e-9")
    assert run.exit_code == 4
    assert "Unknown: the time was up" in _flat(run.output)


def test_a_layout_is_diagnosed_by_its_pins(tmp_path: Path) -> None:
    """Tests that a clash of given values names them, and that what is open has a value."""
    clash = _diagnose(small_file(tmp_path), "--layout", "tp=8,cp=2,gbs=16,pipeline=even")
    assert clash.exit_code == 3
    given = "tp = 8, cp = 2, global_batch_size = 16, pipeline_layout = even"
    assert f"layout {given}" in _flat(clash.output)
    assert "layout.tp = 8 + layout.cp = 2 + rule world-dense-divisible" in _flat(clash.output)
    assert _diagnose(small_file(tmp_path), "--layout", "tp=8").exit_code == 0


def test_json_and_markdown_go_where_they_are_sent(tmp_path: Path) -> None:
    """Tests both files, and that standard output can hold one of them alone."""
    file = small_file(tmp_path, _TOO_LARGE)
    as_json, as_markdown = tmp_path / "a.json", tmp_path / "a.md"
    run = _diagnose(file, "--json", str(as_json), "--markdown", str(as_markdown), "-q")
    assert (run.exit_code, run.output) == (3, "")
    assert json.loads(as_json.read_text("utf-8"))["status"] == "infeasible"
    markdown = as_markdown.read_text("utf-8")
    assert markdown.startswith("### small: Nothing fits")
    assert _diagnose(file, "--markdown", "-").stdout == markdown
    assert json.loads(_diagnose(file, "--json", "-").stdout)["name"] == "small"
    both = _diagnose(file, "--json", "-", "--markdown", "-")
    assert both.exit_code == 2
    assert "both go to standard output" in both.output


@pytest.mark.parametrize("option", ["--json", "--markdown"])
def test_the_scenario_is_not_written_over(tmp_path: Path, option: str) -> None:
    """Tests that a result onto the scenario's own file is bad input."""
    file = small_file(tmp_path, _TOO_LARGE)
    before = Path(file).read_text("utf-8")
    assert _diagnose(file, option, file).exit_code == 2
    assert Path(file).read_text("utf-8") == before


def test_other_commands_point_here(tmp_path: Path) -> None:
    """Tests the last line of ``solve`` and of ``check`` where nothing fits."""
    file = small_file(tmp_path, _TOO_LARGE)
    for command in (["solve", file], ["check", file]):
        run = CliRunner().invoke(application, command)
        assert "`meshplan diagnose`" in run.output
    good = CliRunner().invoke(application, ["check", small_file(tmp_path), "--layout", "tp=2"])
    assert "diagnose" not in good.output


def test_the_schema_of_a_diagnosis() -> None:
    """Tests that the schema names the keys of the contract."""
    run = CliRunner().invoke(application, ["schema", "diagnosis"])
    properties = json.loads(run.output)["properties"]
    assert {"cause", "conflicts", "repairs", "no_help", "facts", "near_misses"} <= set(properties)
