from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from meshplan.cli.app import application
from tests.meshplan.results import small_file


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(application, list(arguments))


def _checked(folder: Path, name: str, layout: str) -> str:
    """Path of the JSON of a judged layout."""
    path = str(folder / name)
    run = _run("check", small_file(folder), "--layout", layout, "--json", path, "-q")
    assert run.exit_code == 0, run.output
    return path


def test_two_results_are_compared(tmp_path: Path) -> None:
    """Tests the report and its JSON: the terms add up, the decision that differs is flipped."""
    files = [_checked(tmp_path, f"{tp}.json", f"tp={tp},etp=1,ep=2") for tp in (2, 1)]
    run = _run("diff", *files)
    assert run.exit_code == 0, run.output
    assert "One decision changed alone, from A towards B" in run.output
    data = json.loads(_run("diff", *files, "--json", "-").stdout)
    assert data["status"] == "compared" and data["a"]["layout"]["tp"] == 2
    both = data["comparison"]
    assert sum(term["a_s"] for term in both["terms"]) == pytest.approx(both["a_s"], abs=2e-5)
    assert {flip["decision"] for flip in data["flips"]} >= {"tp"}


def test_a_result_against_itself(tmp_path: Path) -> None:
    """Tests that the same file twice is the same layout, and that nothing is compared further."""
    file = _checked(tmp_path, "a.json", "tp=2,ep=2")
    run = _run("diff", file, file)
    assert run.exit_code == 0
    assert "A and B are the same layout of the same scenario." in run.output


def test_another_step_time_in_the_file_is_told(tmp_path: Path) -> None:
    """Tests that a file whose step time this version does not confirm is not trusted silently."""
    file = Path(_checked(tmp_path, "a.json", "tp=2,ep=2"))
    data = json.loads(file.read_text("utf-8"))
    data["time"]["step_s"] *= 1.5
    other = tmp_path / "b.json"
    other.write_text(json.dumps(data), "utf-8")
    assert "another version or calibration wrote it" in _run("diff", str(file), str(other)).output


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "this is no JSON"),
        ("[]", "no result of meshplan"),
        ('{"meshplan_result": 1, "status": "ok"}', "it is of another command, or older"),
        ('{"meshplan_result": 1, "layout": null, "scenario": {}}', "the result has no layout"),
        ('{"meshplan_result": 1, "layout": {}, "scenario": {}}', "meshplan"),
        ('{"meshplan_result": 1, "layout": 3, "scenario": SCENARIO}', "this result is damaged"),
        ("[" * 100_000, "this is no JSON"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, text: str, words: str) -> None:
    """Tests that a file that is no result is bad input, named, with no traceback."""
    good = _checked(tmp_path, "a.json", "tp=2,ep=2")
    scenario = json.dumps(json.loads(Path(good).read_text("utf-8"))["scenario"])
    bad = tmp_path / "bad.json"
    bad.write_text(text.replace("SCENARIO", scenario), "utf-8")
    run = _run("diff", good, str(bad))
    assert run.exit_code == 2, run.output
    assert words in run.output and "bad.json" in run.output


def test_a_result_is_not_written_over_an_input(tmp_path: Path) -> None:
    """Tests that the comparison may not replace one of the two files."""
    file = _checked(tmp_path, "a.json", "tp=2,ep=2")
    before = Path(file).read_text("utf-8")
    assert _run("diff", file, file, "--json", file).exit_code == 2
    assert Path(file).read_text("utf-8") == before
