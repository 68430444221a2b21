from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import xmlschema
from click.testing import CliRunner, Result

import meshplan
from meshplan.cli.app import application
from meshplan.scenarios import Expect, InputError
from meshplan.suite.answer import answer_of
from meshplan.suite.expectations import mismatches
from meshplan.suite.files import selected
from tests.meshplan.results import SMALL, infeasible, plan, small_file, unknown

#: The elements and attributes that Jenkins' junit-10 allows, written anew.
JUNIT = xmlschema.XMLSchema(str(Path(__file__).parent / "data" / "junit.xsd"))


def _test(*arguments: str) -> Result:
    """Run in this process, where tests replace the search."""
    return CliRunner().invoke(application, ["test", "--jobs", "1", *arguments])


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
    """Tests that scenarios are found at any depth, but neither other files nor model cards.

    Nor those of an installed meshplan in an environment below.
    """
    for folder in ("b", "a/deep", "models", ".venv/x", "env/site-packages/x"):
        (tmp_path / folder).mkdir(parents=True)
    good = "expect: {status: optimal, layout: {tp: 2}}\n"
    small_file(tmp_path / "b", good)
    small_file(tmp_path / "a" / "deep", "expect: {status: optimal, layout: {tp: 4}}\n")
    for folder in ("models", ".venv/x", "env/site-packages/x"):
        small_file(tmp_path / folder, good)
    small_file(tmp_path, name="open.yaml")
    (tmp_path / "other.yaml").write_text("meshplans: 1\n", "utf-8")
    run = _test(str(tmp_path))
    assert run.exit_code == 1
    lines = run.output.splitlines()
    assert lines[0].startswith("FAIL ")
    assert lines[1] == "      | layout.tp: expected 4, got 2"
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
    assert list(JUNIT.iter_errors(str(target))) == [], "as Jenkins and others expect it"


def test_junit_is_escaped(tmp_path: Path, always_planned: None) -> None:
    """Tests names and messages full of what XML would take for markup, and a broken file."""
    (tmp_path / "a.yaml").write_text("meshplan: 1\nname: '<&\">'\n", "utf-8")
    file = small_file(tmp_path, "expect: {status: infeasible}\n", "<b> & ]]> 'c'.yaml")
    target = tmp_path / "out.xml"
    assert _test(str(tmp_path), "--junit", str(target)).exit_code == 1
    assert list(JUNIT.iter_errors(str(target))) == []
    suite = ElementTree.parse(target).getroot()[0]
    assert suite[0].get("name") == file
    error = suite[1].find("error")
    assert error is not None and error.text is not None
    assert error.get("type") == "bad input" and "name is '<&\">'" in error.text


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


@pytest.mark.usefixtures("always_planned")
def test_files_are_chosen_by_their_path(tmp_path: Path) -> None:
    """Tests -k: parts of paths, and a choice of nothing is bad input, not a green run."""
    for name in ("a-h100.yaml", "b-h100-long.yaml", "c-gb200.yaml"):
        small_file(tmp_path, name=name)
    run = _test(str(tmp_path), "-k", "H100 and not long")
    assert [line.split()[1] for line in run.output.splitlines()[:-1]] == [f"{tmp_path}/a-h100.yaml"]
    none = _test(str(tmp_path), "-k", "mi300")
    assert none.exit_code == 2
    assert "-k 'mi300' chooses none of 3 scenarios" in none.stderr


@pytest.mark.usefixtures("always_planned")
def test_fail_fast_stops_at_the_first_failure(tmp_path: Path) -> None:
    """Tests that what comes after a failure is shown as not run, in the XML as skipped."""
    small_file(tmp_path, "expect: {status: optimal}\n", "a.yaml")
    for name in ("b.yaml", "c.yaml"):
        small_file(tmp_path, "expect: {status: infeasible}\n", name)
    target = tmp_path / "out.xml"
    run = _test(str(tmp_path), "-x", "--junit", str(target))
    assert run.exit_code == 1
    lines = run.output.splitlines()
    assert lines[3] == f"not run {tmp_path / 'c.yaml'}"
    assert lines[4].startswith("1 passed, 1 failed, 0 without expectation, 1 not run, in ")
    assert ElementTree.parse(target).getroot()[0].get("skipped") == "1"


@pytest.mark.usefixtures("always_planned")
def test_annotations_stand_at_the_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests --github: paths from the checkout, line and column of the key that was not met."""
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    (tmp_path / "in: a, b").mkdir()
    small_file(tmp_path / "in: a, b", "expect:\n  status: optimal\n  layout: {ep: 2, tp: 4}\n")
    bad = SMALL.replace("seq_len: 4096", "seq_len: 100%")
    (tmp_path / "z.yaml").write_text(bad, "utf-8")
    run = _test(str(tmp_path), "--github")
    commands = [line for line in run.output.splitlines() if line.startswith("::")]
    assert commands[0] == (
        "::error file=in%3A a%2C b/small.yaml,line=8,col=19,title=meshplan%3A small"
        "::layout.tp: expected 4, got 2"
    ), "line 8 is that of layout, column 19 that of tp"
    assert commands[1].startswith("::error file=z.yaml,line=5,title=meshplan%3A z::")
    assert "%0AMaybe " in commands[1] and "'100%25'" in commands[1]


def test_no_other_line_is_a_command_of_github(tmp_path: Path) -> None:
    """Tests that a file cannot smuggle commands into the log: no line of ours begins with ::."""
    evil = "::add-mask::x.yaml"
    (tmp_path / evil).write_text("meshplan: 1\nname: '::error::y'\n", "utf-8")
    run = _test(str(tmp_path / evil), "--github")
    starts = [line for line in run.output.splitlines() if line.lstrip().startswith("::")]
    assert len(starts) == 1 and starts[0].startswith("::error file=")


@pytest.mark.parametrize(
    ("expression", "chosen"),
    [
        ("a", ["a", "ab"]),
        ("a and b", ["ab"]),
        ("not a", ["b", "c"]),
        ("not (a or c)", ["b"]),
        ("a and not b or c", ["a", "c"]),
        ("NOT A and not not B", ["b"]),
    ],
)
def test_expressions(expression: str, chosen: list[str]) -> None:
    """Tests that *not* binds before *and*, and *and* before *or*."""
    files = [Path(name) for name in ("a", "b", "ab", "c")]
    assert [file.name for file in selected(files, expression)] == chosen


@pytest.mark.parametrize("expression", ["", "a and", "(a", "a b", "or a", "not", "a)", "()"])
def test_malformed_expressions_are_refused(expression: str) -> None:
    """Tests that nothing is guessed: which part is wrong stands in the message."""
    with pytest.raises(InputError, match="is malformed: ") as caught:
        selected([Path("a")], expression)
    assert caught.value.advice is not None


@pytest.mark.parametrize("jobs", ["0", "-1", "two", "1.5", "9999"])
def test_jobs_are_a_number_or_auto(jobs: str, tmp_path: Path) -> None:
    """Tests that other values are bad input."""
    run = _test(small_file(tmp_path), "--jobs", jobs)
    assert run.exit_code == 2 and "neither auto nor a number" in run.stderr


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
            ("status: expected optimal, got infeasible\nit is too large",),
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
    answer = answer_of(make(small_file(tmp_path)))
    found = mismatches(Expect.model_validate(expect), answer)
    assert tuple(one.text for one in found) == wrong
