from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

import meshplan
from meshplan.cli.app import application
from meshplan.cli.expectations import mismatches
from meshplan.scenarios import Expect
from tests.meshplan.results import infeasible, plan, small_file, unknown


def _test(*arguments: str) -> Result:
    return CliRunner().invoke(application, ["test", *arguments])


@pytest.fixture
def always_planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every search gives the same proved plan: tp = 2, ep = 2 on 8 GPUs."""
    (tmp_path / "answer").mkdir()
    answer = plan(small_file(tmp_path / "answer"))
    (tmp_path / "answer" / "small.yaml").unlink()
    monkeypatch.setattr(meshplan, "solve", lambda *_, **__: answer)


def test_met_expectations_pass(tmp_path: Path) -> None:
    """Tests the whole way once, with the true search: one line a case, totals, exit code 0."""
    file = small_file(tmp_path, "expect: {status: optimal, layout: {gpus: 8}}\n")
    run = _test(file)
    assert run.exit_code == 0, run.output
    assert run.output.startswith("pass  ")
    assert "optimal, step " in run.output
    assert "1 passed, 0 failed, 0 without expectation, in " in run.output


@pytest.mark.usefixtures("always_planned")
def test_folders_are_searched(tmp_path: Path) -> None:
    """Tests that scenarios are found at any depth, but neither other files nor model cards."""
    for folder in ("b", "a/deep", "models"):
        (tmp_path / folder).mkdir(parents=True)
    good = "expect: {status: optimal, layout: {tp: 2}}\n"
    small_file(tmp_path / "b", good)
    small_file(tmp_path / "a" / "deep", "expect: {status: optimal, layout: {tp: 4}}\n")
    small_file(tmp_path / "models", good)
    small_file(tmp_path, name="open.yaml")
    (tmp_path / "other.yaml").write_text("meshplans: 1\n", "utf-8")
    run = _test(str(tmp_path))
    assert run.exit_code == 1
    lines = run.output.splitlines()
    assert [line.split()[0] for line in lines[:2]] == ["FAIL", "layout.tp:"]
    assert lines[1].strip() == "layout.tp: expected 4, got 2"
    assert "a/deep/small.yaml" in lines[0] and "b/small.yaml" in lines[2]
    assert lines[3].startswith("open ") and lines[3].endswith("(no expectation)")
    assert lines[4].startswith("1 passed, 1 failed, 1 without expectation")


@pytest.mark.usefixtures("always_planned")
def test_files_run_once(tmp_path: Path) -> None:
    """Tests that a file named twice, by itself and by its folder, is one case."""
    file = small_file(tmp_path)
    assert "0 passed, 0 failed, 1 without" in _test(file, str(tmp_path), file).output


def test_bad_scenarios_fail_and_others_go_on(tmp_path: Path, always_planned: None) -> None:
    """Tests that one broken file is a failed case with its message, not the end of the run."""
    (tmp_path / "a.yaml").write_text("meshplan: 1\nname: a\n", "utf-8")
    small_file(tmp_path, "expect: {status: optimal}\n")
    run = _test(str(tmp_path))
    assert run.exit_code == 1
    assert "ERROR" in run.output and "model is missing" in run.output
    assert "1 passed, 1 failed" in run.output


def test_faults_of_ours_fail_one_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that a case on which meshplan breaks is an error with its cause, not the end."""

    def solve(*_: object, **__: object) -> None:
        raise MemoryError("too large")

    monkeypatch.setattr(meshplan, "solve", solve)
    monkeypatch.delenv("MESHPLAN_DEBUG", raising=False)
    run = _test(small_file(tmp_path))
    assert run.exit_code == 1
    assert "ERROR" in run.output and "MemoryError: too large" in run.output
    assert "0 passed, 1 failed" in run.output


def test_no_scenarios_is_bad_input(tmp_path: Path) -> None:
    """Tests that an empty folder, or a path that is not there, never counts as passed."""
    assert _test(str(tmp_path)).exit_code == 2
    assert _test(str(tmp_path / "nothing")).exit_code == 2
    assert _test().exit_code == 2


def test_junit_has_every_case(tmp_path: Path, always_planned: None) -> None:
    """Tests the XML that CI services read: counts, failure text, skipped without expectation."""
    small_file(tmp_path, "expect: {status: infeasible}\n", "a.yaml")
    small_file(tmp_path, "", "b.yaml")
    small_file(tmp_path, "expect: {status: feasible}\n", "c.yaml")
    target = tmp_path / "out.xml"
    run = _test(str(tmp_path), "--junit", str(target))
    assert run.exit_code == 1
    suite = ElementTree.parse(target).getroot()[0]
    counts = {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": "3", "failures": "1", "errors": "0", "skipped": "1"}
    failure = suite[0].find("failure")
    assert failure is not None
    assert failure.get("message") == "status: expected infeasible, got optimal"
    assert suite[1].find("skipped") is not None
    assert suite[2].find("failure") is None, "feasible is met by a proved plan"


def test_junit_of_names_that_are_no_text(tmp_path: Path, always_planned: None) -> None:
    """Tests a file name whose bytes are no UTF-8: what was solved is not lost for it."""
    file = small_file(tmp_path, "expect: {status: optimal}\n", os.fsdecode(b"a\xff.yaml"))
    target = tmp_path / "out.xml"
    assert _test(file, "--junit", str(target)).exit_code == 0
    name = ElementTree.parse(target).getroot()[0][0].get("name")
    assert name is not None and name.endswith("/a?.yaml")


def test_unwritable_junit_is_refused_first(tmp_path: Path) -> None:
    """Tests that nothing is solved when the outcome cannot be kept."""
    run = _test(small_file(tmp_path), "--junit", str(tmp_path / "no" / "out.xml"))
    assert run.exit_code == 2
    assert run.stdout == "" and "--junit is " in run.stderr


@pytest.mark.parametrize(
    ("make", "expect", "wrong"),
    [
        (plan, {"status": "optimal", "layout": {"tp": 2, "ep": 2, "gpus": 8}}, ()),
        (plan, {"status": "optimal", "layout": {"cp": 8}}, ("layout.cp: expected 8, got 1",)),
        (plan, {"status": "feasible"}, ()),
        (plan, {"status": "infeasible"}, ("status: expected infeasible, got optimal",)),
        (plan, {"status": "optimal", "recompute": "none"}, ()),
        (
            plan,
            {"status": "optimal", "recompute": ["moe"]},
            ("recompute: expected moe, got none",),
        ),
        (plan, {"status": "optimal", "dispatcher": "deepep"}, ()),
        (
            plan,
            {"status": "optimal", "dispatcher": "alltoall"},
            ("dispatcher: expected alltoall, got deepep",),
        ),
        (infeasible, {"status": "infeasible"}, ()),
        (infeasible, {"status": "infeasible", "conflict": ["memory-capacity", "heads-tp"]}, ()),
        (
            infeasible,
            {"status": "infeasible", "conflict": ["heads-tp"]},
            ("conflict: expected [heads-tp], got [heads-tp, memory-capacity]",),
        ),
        (
            infeasible,
            {"status": "optimal"},
            ("status: expected optimal, got infeasible", "it is too large"),
        ),
        (unknown, {"status": "optimal"}, ("status: expected optimal, got unknown",)),
        (
            lambda file: plan(file, "feasible"),
            {"status": "optimal"},
            ("status: expected optimal, got feasible",),
        ),
    ],
)
def test_answers_are_held_to_the_expectation(
    tmp_path: Path, make: Callable[[str], Any], expect: dict[str, Any], wrong: tuple[str, ...]
) -> None:
    """Tests each thing that can be expected, met and not met."""
    answer = make(small_file(tmp_path))
    assert mismatches(Expect.model_validate(expect), answer) == wrong
