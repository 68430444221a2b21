from __future__ import annotations

import dataclasses
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import meshplan
from meshplan.cli.app import application
from meshplan.cli.progress import progress_text
from meshplan.solver.progress import Progress
from tests.meshplan.results import infeasible, plan, small_file, unknown


def _solve(*arguments: str) -> Result:
    return CliRunner().invoke(application, ["solve", *arguments])


def _answers(monkeypatch: pytest.MonkeyPatch, answer: Any) -> list[dict[str, Any]]:
    """Let every search give ``answer``; the arguments of the calls are kept."""
    calls: list[dict[str, Any]] = []

    def solve(scenario: object, **arguments: Any) -> Any:
        calls.append(arguments)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    monkeypatch.setattr(meshplan, "solve", solve)
    return calls


def test_small_scenario_is_solved(tmp_path: Path) -> None:
    """Tests the whole way once, with the true search: a plan, proved, exit code 0."""
    run = _solve(small_file(tmp_path), "--json", "-")
    assert run.exit_code == 0, run.output
    data = json.loads(run.stdout)
    assert data["status"] == "optimal"
    assert data["proof"]["gap"] == 0.0
    assert data["layout"]["gpus"] == 8


@pytest.mark.parametrize(
    ("make", "code", "words"),
    [
        (lambda file: plan(file), 0, "Optimal: proved"),
        (lambda file: plan(file, "feasible"), 4, "Feasible, not proved optimal"),
        (infeasible, 3, "Infeasible: proved in 0.250 s"),
        (unknown, 4, "Unknown: a limit stopped the search"),
    ],
)
def test_exit_code_follows_the_answer(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[str], Any],
    code: int,
    words: str,
) -> None:
    """Tests the exit code and the first words of each kind of answer."""
    file = small_file(tmp_path)
    _answers(monkeypatch, make(file))
    run = _solve(file)
    assert run.exit_code == code
    assert words in run.output


def test_options_reach_the_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that limits are handed on, and that nobody is told progress where nobody looks."""
    file = small_file(tmp_path)
    calls = _answers(monkeypatch, plan(file))
    limits = ("--time-limit", "2.5", "--quiet")
    assert _solve(file, *limits).output == ""
    assert _solve(file, *limits, "--top", "3", "--pareto", "--binding").output == ""
    assert _solve(file, *limits, "--pareto", "--within", "25").output == ""
    common = {"time_limit_s": 2.5, "progress": None}
    assert calls == [
        {**common, "top": 0, "pareto_within": None, "binding": False},
        {**common, "top": 3, "pareto_within": 0.1, "binding": True},
        {**common, "top": 0, "pareto_within": 0.25, "binding": False},
    ]


@pytest.mark.parametrize(
    "options", [("--top", "0"), ("--top", "x"), ("--within", "5"), ("--pareto", "--within", "-1")]
)
def test_impossible_listings_are_refused(tmp_path: Path, options: tuple[str, ...]) -> None:
    """Tests that a ranking of nothing and a width without a front are bad input."""
    assert _solve(small_file(tmp_path), *options).exit_code == 2


def test_an_unfinished_listing_is_no_final_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests exit code 4 for a proved plan whose front was cut short."""
    file = small_file(tmp_path)
    _answers(monkeypatch, dataclasses.replace(plan(file), unfinished=("pareto",)))
    run = _solve(file, "--pareto")
    assert run.exit_code == 4
    assert "Not finished before the search was stopped: --pareto." in run.output


@pytest.mark.parametrize("limit", ["0", "-1", "nan", "inf", "x"])
def test_bad_time_limits_are_bad_input(tmp_path: Path, limit: str) -> None:
    """Tests that only a finite positive number of seconds is a limit."""
    run = _solve(small_file(tmp_path), "--time-limit", limit)
    assert run.exit_code == 2
    assert "--time-limit" in run.stderr


def test_unwritable_paths_are_refused_before_the_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests that nobody waits for an answer that cannot be kept, and that no file is left."""
    file = small_file(tmp_path)
    calls = _answers(monkeypatch, plan(file))
    missing = tmp_path / "missing" / "out.json"
    for path in (str(missing), str(tmp_path), "bad\0name", "x" * 5000):
        run = _solve(file, "--json", path)
        assert run.exit_code == 2
        assert "--json is " in run.stderr and "cannot be written" in run.stderr
    assert calls == []
    assert os.listdir(tmp_path) == ["small.yaml"]


def test_file_that_cannot_be_finished_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests that an old result survives when the new one cannot be put in its place."""
    file, target = small_file(tmp_path), tmp_path / "out.json"
    target.write_text("{}", "utf-8")
    _answers(monkeypatch, plan(file))

    def replace(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", replace)
    run = _solve(file, "--json", str(target))
    assert run.exit_code == 2
    assert "No space left on device" in run.stderr
    assert target.read_text("utf-8") == "{}"
    assert sorted(os.listdir(tmp_path)) == ["out.json", "small.yaml"]


def test_written_file_is_a_plain_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that others may read the file as the umask says, and that links stay links."""
    file, target = small_file(tmp_path), tmp_path / "out.json"
    link = tmp_path / "link.json"
    link.symlink_to(target)
    _answers(monkeypatch, plan(file))
    old = os.umask(0o022)
    try:
        assert _solve(file, "--quiet", "--json", str(link)).exit_code == 0
    finally:
        os.umask(old)
    assert link.is_symlink()
    assert stat.S_IMODE(target.stat().st_mode) == 0o644
    assert json.loads(target.read_text("utf-8"))["status"] == "optimal"


def test_devices_are_written_and_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that a device is not replaced by a file."""
    file = small_file(tmp_path)
    _answers(monkeypatch, plan(file))
    assert _solve(file, "--quiet", "--json", os.devnull).exit_code == 0
    assert not Path(os.devnull).is_file()


def test_progress_is_one_line() -> None:
    """Tests what a person sees while waiting, from the start to a first plan and bound."""
    assert progress_text(Progress(2.4)) == "2 s   throughput   no plan yet"
    state = Progress(12.0, incumbent_s=34.56, bound_s=33.9, gap=0.0191, phase="memory")
    text = progress_text(state)
    assert text == "12 s   memory   best step 34.56 s   bound 33.9 s   gap 1.9%"
