from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from meshplan.cli.app import application
from tests.meshplan.results import small_file


def _why(*arguments: str) -> Result:
    return CliRunner().invoke(application, ["why", *arguments])


@pytest.mark.parametrize(
    ("layout", "code", "words"),
    [
        ("tp=2,ep=2", 0, "times as long as the optimum"),
        ("tp=3", 1, "Illegal: this layout breaks"),
    ],
)
def test_exit_code_follows_the_layout(tmp_path: Path, layout: str, code: int, words: str) -> None:
    """Tests that a slower layout is an answer, and an illegal one a fault of the layout."""
    run = _why(small_file(tmp_path), "--layout", layout)
    assert run.exit_code == code, run.output
    assert words in run.output


def test_json_holds_both_layouts_and_the_terms(tmp_path: Path) -> None:
    """Tests that the terms of the JSON add up to the two step times and to their difference."""
    run = _why(small_file(tmp_path), "--layout", "tp=2,ep=2", "--json", "-")
    data = json.loads(run.stdout)
    assert data["status"] == "slower" and data["meshplan_result"] == 1
    both = data["comparison"]
    for key, whole in (
        ("given_s", data["given"]["time"]["step_s"]),
        ("optimum_s", data["optimum"]["time"]["step_s"]),
        ("difference_s", both["difference_s"]),
    ):
        assert sum(term[key] for term in both["terms"]) == pytest.approx(whole, abs=2e-5)
    assert {flip["decision"] for flip in data["flips"]} >= {"tp", "ep", "mbs"}


def test_a_search_cut_short_is_told(tmp_path: Path) -> None:
    """Tests that a limit too short for any plan gives exit code 4, with the layout still judged."""
    run = _why(small_file(tmp_path), "--layout", "tp=2,ep=2", "--time-limit", "1e-9")
    assert run.exit_code == 4
    assert "the search was stopped before it found any plan" in " ".join(
        run.output.replace("│", " ").split()
    )


def test_the_scenario_is_not_written_over(tmp_path: Path) -> None:
    """Tests that a result onto the scenario's own file is bad input."""
    file = small_file(tmp_path)
    before = Path(file).read_text("utf-8")
    run = _why(file, "--layout", "tp=2", "--json", file)
    assert run.exit_code == 2
    assert Path(file).read_text("utf-8") == before
