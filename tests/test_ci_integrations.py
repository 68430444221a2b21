"""The GitHub Action and the pre-commit hook: their own words, run as the services would."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
STEPS: dict[str, dict[str, Any]] = {step["name"]: step for step in ACTION["runs"]["steps"]}
_REFERENCE = re.compile(r"\$\{\{ *([a-z_.-]+) *\}\}")

INFEASIBLE = """\
meshplan: 1
name: seven
model: toy-dense
cluster: {preset: h100-hgx, gpus: 7}
workload: {seq_len: 4096, global_batch_size: 32}
expect:
  status: infeasible
"""


@pytest.fixture
def runner(tmp_path: Path) -> dict[str, str]:
    """What a runner of GitHub gives to each step: folders, and files that take outputs."""
    for name in ("temp", "work", "action"):
        (tmp_path / name).mkdir()
    for name in ("output", "summary"):
        (tmp_path / name).touch()
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        "RUNNER_TEMP": str(tmp_path / "temp"),
        "GITHUB_WORKSPACE": str(tmp_path / "work"),
        "GITHUB_OUTPUT": str(tmp_path / "output"),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
    }


def _values(inputs: Mapping[str, str], others: Mapping[str, str]) -> dict[str, str]:
    """Values of all references in a step: inputs with their defaults, and what steps gave."""
    known = {name: one["default"] for name, one in ACTION["inputs"].items()}
    assert inputs.keys() <= known.keys()
    return {f"inputs.{name}": value for name, value in (known | dict(inputs)).items()} | dict(
        others
    )


def _run(
    step: str, runner: Mapping[str, str], values: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run the shell of a step as a runner does: its references filled in, in the workspace."""
    found = STEPS[step]
    given = {
        name: _REFERENCE.sub(lambda one: values[one[1]], text)
        for name, text in found["env"].items()
    }
    assert found["shell"] == "bash"
    script = Path(runner["RUNNER_TEMP"]) / "step.sh"
    script.write_text(found["run"], "utf-8")
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", str(script)],
        cwd=runner["GITHUB_WORKSPACE"],
        env={**runner, **given},
        capture_output=True,
        text=True,
        check=False,
    )


def _program(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/usr/bin/env bash\n{text}\n", "utf-8")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def meshplan(tmp_path: Path) -> dict[str, str]:
    """The output of the step that installs: a program that runs this checkout."""
    line = f'exec {shlex.quote(sys.executable)} -m meshplan "$@"'
    program = _program(tmp_path / "temp" / "meshplan" / "bin" / "meshplan", line)
    return {"steps.install.outputs.meshplan": program}


def test_no_input_is_pasted_into_a_shell() -> None:
    """Tests that inputs reach scripts as variables alone, so that none can bring commands along."""
    for step in STEPS.values():
        assert "${{" not in step.get("run", "")
    used = {
        name for step in ACTION["runs"]["steps"] for name in _REFERENCE.findall(yaml.dump(step))
    }
    declared = {f"inputs.{name}" for name in ACTION["inputs"]}
    outer = {"github.action_path", "steps.install.outputs.meshplan"}
    assert used <= declared | outer
    assert all(one["description"] for one in ACTION["inputs"].values())


def test_action_installs_its_own_checkout(runner: dict[str, str], tmp_path: Path) -> None:
    """Tests the commands: an environment below the runner's folder, and the action's own source."""
    log = tmp_path / "log"
    inner = f'echo "pip: $*" >>{log}'
    python = _program(
        tmp_path / "python",
        f'echo "$*" >>{log}\nmkdir -p "$3/bin"\n'
        f"printf '#!/usr/bin/env bash\\n%s\\n' {shlex.quote(inner)} >\"$3/bin/python\"\n"
        'chmod +x "$3/bin/python"',
    )
    values = _values({"python": python}, {"github.action_path": str(tmp_path / "action")})
    run = _run("Install meshplan", runner, values)
    assert run.returncode == 0, run.stderr
    environment = f"{runner['RUNNER_TEMP']}/meshplan"
    assert log.read_text("utf-8").splitlines() == [
        f"-m venv {environment}",
        f"pip: -m pip install --quiet --disable-pip-version-check {tmp_path / 'action'}",
    ]
    output = Path(runner["GITHUB_OUTPUT"]).read_text("utf-8")
    assert output == f"meshplan={environment}/bin/meshplan\n"


def test_action_passes(runner: dict[str, str], meshplan: dict[str, str]) -> None:
    """Tests the defaults: all scenarios of the checkout, JUnit XML, a summary, exit code 0."""
    work = Path(runner["GITHUB_WORKSPACE"])
    (work / "a b.yaml").write_text(INFEASIBLE, "utf-8")
    run = _run("Test scenarios", runner, _values({}, meshplan))
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("pass  a b.yaml ")
    assert (work / "meshplan-junit.xml").exists()
    summary = Path(runner["GITHUB_STEP_SUMMARY"]).read_text("utf-8")
    assert "1 passed, 0 failed" in summary and summary.count("```") == 2


def test_action_fails_with_annotations(runner: dict[str, str], meshplan: dict[str, str]) -> None:
    """Tests a failure: exit code 1, the annotation in the log, the file for the artifact."""
    work = Path(runner["GITHUB_WORKSPACE"])
    (work / "one").mkdir()
    (work / "one" / "a.yaml").write_text(INFEASIBLE, "utf-8")
    (work / "b.yaml").write_text(INFEASIBLE.replace("infeasible", "optimal"), "utf-8")
    inputs = {
        "paths": "one\nb.yaml\n", "jobs": "1", "time-limit": "60", "junit": "out.xml",
        "options": "-x -k b.yaml",
    }  # fmt: skip
    run = _run("Test scenarios", runner, _values(inputs, meshplan))
    assert run.returncode == 1
    assert "::error file=b.yaml,line=7,col=3,title=meshplan%3A b::status: expected" in run.stdout
    assert "one/a.yaml" not in run.stdout, "-k leaves it out"
    assert (work / "out.xml").exists()
    assert "::error" not in Path(runner["GITHUB_STEP_SUMMARY"]).read_text("utf-8")


def test_action_reads_options_as_a_shell_does(
    runner: dict[str, str], meshplan: dict[str, str]
) -> None:
    """Options on several lines, one of them with spaces: none may be dropped in silence."""
    work = Path(runner["GITHUB_WORKSPACE"])
    for name in ("a", "b", "c"):
        (work / f"{name}.yaml").write_text(INFEASIBLE.replace("infeasible", "optimal"), "utf-8")
    inputs = {"options": "--time-limit 60\n-k 'b.yaml or c.yaml'\n-x\n", "jobs": "1"}
    run = _run("Test scenarios", runner, _values(inputs, meshplan))
    assert run.returncode == 1
    assert [line[:12] for line in run.stdout.splitlines() if line[:4] in ("FAIL", "pass")] == [
        "FAIL  b.yaml"
    ]
    assert "a.yaml" not in run.stdout
    assert "0 passed, 1 failed, 0 without expectation, 1 not run" in run.stdout
    broken = _run("Test scenarios", runner, _values({"options": "-k 'b"}, meshplan))
    assert broken.returncode != 0 and "quote" in broken.stderr


def test_action_takes_no_commands(runner: dict[str, str], meshplan: dict[str, str]) -> None:
    """Tests inputs that a shell would run, and a path that looks like an option."""
    work = Path(runner["GITHUB_WORKSPACE"])
    paths = "$(touch evil)\n`touch evil`; touch evil\n--help"
    run = _run("Test scenarios", runner, _values({"paths": paths}, meshplan))
    assert run.returncode == 2
    assert "is neither a file nor a folder" in run.stdout
    assert not (work / "evil").exists()


def test_action_can_hold_to_the_lock(runner: dict[str, str], meshplan: dict[str, str]) -> None:
    """Tests that without a lock file the locked run is bad input, not success."""
    (Path(runner["GITHUB_WORKSPACE"]) / "a.yaml").write_text(INFEASIBLE, "utf-8")
    run = _run("Test scenarios", runner, _values({"locked": "true"}, meshplan))
    assert run.returncode == 2
    assert "there is no 'meshplan.lock'" in run.stdout


def test_hook_runs_on_the_files_that_it_gets(tmp_path: Path) -> None:
    """Tests the entry as pre-commit runs it: with YAML files of all kinds behind it."""
    hooks: list[dict[str, Any]] = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert [hook["id"] for hook in hooks] == ["meshplan-test"]
    program, *arguments = hooks[0]["entry"].split()
    assert (program, hooks[0]["types"]) == ("meshplan", ["yaml"])

    def commit(*files: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "meshplan", *arguments, *files],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )

    (tmp_path / "ci.yaml").write_text("on: push\n", "utf-8")
    (tmp_path / "good.yaml").write_text(INFEASIBLE, "utf-8")
    (tmp_path / "bad.yaml").write_text(INFEASIBLE.replace("infeasible", "optimal"), "utf-8")
    none = commit("ci.yaml")
    assert (none.returncode, none.stdout) == (0, "no scenario among the files\n")
    assert commit("ci.yaml", "good.yaml").returncode == 0
    both = commit("good.yaml", "ci.yaml", "bad.yaml")
    assert both.returncode == 1
    assert "1 passed, 1 failed" in both.stdout
