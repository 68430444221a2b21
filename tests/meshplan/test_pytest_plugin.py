"""The pytest plugin, as a project that has meshplan installed uses it."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.meshplan.results import ROOT, SMALL

pytest_plugins = ["pytester"]

_NAME = "meshplan.pytest_plugin"
#: What a run without scenarios must not pay for.
_HEAVY = ("click", "networkx", "numpy", "ortools", "pydantic", "rich", "yaml")
#: A batch of 32 sequences on 7 GPUs: proved infeasible at once.
_INFEASIBLE = SMALL.replace("gpus: 8", "gpus: 7") + "expect: {status: infeasible}\n"


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project with one ordinary test and a folder with one scenario that is as expected."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyfile(test_ordinary="def test_ordinary(): pass")
    folder = pytester.mkdir("runs")
    (folder / "good.yaml").write_text(_INFEASIBLE, "utf-8")
    (folder / "other.yaml").write_text("a: 1\n", "utf-8")
    return pytester


def _run(project: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """Run pytest with this plugin and no other."""
    return project.runpytest_subprocess("-p", _NAME, *arguments)


def test_nothing_is_collected_unless_asked(project: pytest.Pytester) -> None:
    """Tests that YAML files of a project that does not ask are none of our business."""
    _run(project).assert_outcomes(passed=1)


def test_option_collects_scenarios(project: pytest.Pytester) -> None:
    """Tests that --meshplan adds the scenario, and no other YAML file."""
    run = _run(project, "--meshplan", "-v")
    run.assert_outcomes(passed=2)
    run.stdout.fnmatch_lines(["runs/good.yaml::good PASSED*"])


def test_configuration_collects_scenarios(project: pytest.Pytester) -> None:
    """Tests meshplan_paths: only what lies below them, and the marker that all have."""
    project.makeini("[pytest]\nmeshplan_paths = runs\naddopts = --strict-markers\n")
    project.path.joinpath("elsewhere.yaml").write_text(_INFEASIBLE, "utf-8")
    _run(project).assert_outcomes(passed=2)
    _run(project, "-m", "not meshplan").assert_outcomes(passed=1, deselected=1)


def test_failures_say_what_differs(project: pytest.Pytester) -> None:
    """Tests the report: the answer, then file, line and sentence; no traceback of meshplan."""
    wrong = project.path / "runs" / "wrong.yaml"
    wrong.write_text(_INFEASIBLE.replace("infeasible}", "optimal}"), "utf-8")
    broken = project.path / "runs" / "broken.yaml"
    broken.write_text(SMALL.replace("toy-moe", "toy-mo"), "utf-8")
    run = _run(project, "--meshplan")
    run.assert_outcomes(passed=2, failed=2)
    run.stdout.fnmatch_lines(
        ["* scenario: broken *", "broken: bad input", f"{broken}:3: *", "Maybe *"]
    )
    run.stdout.fnmatch_lines(
        ["wrong: infeasible: *", f"{wrong}:6: status: expected optimal, got infeasible"]
    )
    run.stdout.no_fnmatch_line("*Traceback*")


def test_without_expectation_it_is_skipped(project: pytest.Pytester) -> None:
    """Tests that the answer of an open scenario is told, and does not count as passed."""
    text = _INFEASIBLE.rpartition("expect:")[0]
    project.path.joinpath("runs", "open.yaml").write_text(text, "utf-8")
    run = _run(project, "--meshplan", "-rs")
    run.assert_outcomes(passed=2, skipped=1)
    run.stdout.fnmatch_lines(["SKIPPED*: infeasible: *(no expectation)"])


@pytest.mark.parametrize("limit", ["-1", "soon", "nan"])
def test_bad_limits_are_refused(project: pytest.Pytester, limit: str) -> None:
    """Tests that no limit is invented."""
    project.makeini(f"[pytest]\nmeshplan_time_limit = {limit}\n")
    run = _run(project, "--meshplan", "runs")
    run.assert_outcomes(failed=1)
    run.stdout.fnmatch_lines([f"*meshplan_time_limit is '{limit}', but is a positive number*"])


def test_others_pay_nothing(tmp_path: Path) -> None:
    """Tests that a run that asks for no scenarios imports nothing heavy, YAML files or not."""
    (tmp_path / "a.yaml").write_text(_INFEASIBLE, "utf-8")
    (tmp_path / "test_a.py").write_text(
        "import json, pathlib, sys\n"
        "def test_a():\n"
        "    pathlib.Path('modules.json').write_text(json.dumps(sorted(sys.modules)))\n"
    )
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", _NAME, "--rootdir", "."],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        check=True,
        capture_output=True,
    )
    modules = json.loads((tmp_path / "modules.json").read_text("utf-8"))
    assert _NAME in modules
    assert [name for name in _HEAVY if name in modules] == []
    assert [name for name in modules if name.startswith("meshplan.")] == [_NAME]


def test_pytest_finds_the_plugin() -> None:
    """Tests that the package says where the plugin is."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["entry-points"]["pytest11"] == {"meshplan": _NAME}
