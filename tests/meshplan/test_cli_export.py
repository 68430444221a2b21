"""``meshplan export`` as a user runs it: solve, then export."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import meshplan
from meshplan.cli.app import application
from tests.meshplan.results import plan, small_file


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(application, list(arguments))


@pytest.fixture
def file(tmp_path: Path) -> str:
    """The JSON of a plan on 8 GPUs: tp = 2, ep = 2."""
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan(small_file(tmp_path)).to_json()), "utf-8")
    return str(path)


def test_solved_plans_can_be_exported(tmp_path: Path) -> None:
    """Tests the whole way once, with the true search, down to a layout that ``check`` finds ok."""
    scenario, plan_file = small_file(tmp_path), str(tmp_path / "plan.json")
    assert _run("solve", scenario, "--json", plan_file, "-q").exit_code == 0
    flags = str(tmp_path / "flags.sh")
    made = _run("export", plan_file, "--to", "megatron-lm", "--out", flags)
    assert (made.exit_code, made.output) == (0, "")
    checked = _run("check", scenario, "--args", flags, "--json", "-")
    assert checked.exit_code == 0, checked.stderr
    layout = json.loads(checked.stdout)["layout"]
    assert layout == json.loads(Path(plan_file).read_text("utf-8"))["layout"]


@pytest.mark.parametrize(
    ("target", "line"),
    [
        ("megatron-lm", "    --tensor-model-parallel-size 2"),
        ("megatron-bridge", "    model.tensor_model_parallel_size=2"),
        ("slurm", "#SBATCH --ntasks-per-node=8"),
    ],
)
def test_each_form_goes_to_standard_output(file: str, target: str, line: str) -> None:
    """Tests one line of each text, and the program that wrote it."""
    run = _run("export", file, "--to", target)
    assert run.exit_code == 0, run.stderr
    assert line in run.stdout.splitlines()
    assert f"# Written by meshplan {meshplan.__version__}." in run.stdout.splitlines()
    assert run.stdout.endswith("\n") and not run.stdout.endswith("\n\n")


def test_model_flags_come_on_demand(file: str) -> None:
    """Tests --with-model, which only one of the forms has."""
    assert "--num-layers" not in _run("export", file, "--to", "megatron-lm").stdout
    assert "--num-layers 6" in _run("export", file, "--to", "megatron-lm", "--with-model").stdout
    refused = _run("export", file, "--to", "slurm", "--with-model")
    assert refused.exit_code == 2 and "recipes have their model" in refused.stderr


def test_bad_plans_are_refused(tmp_path: Path, file: str) -> None:
    """Tests other files, edited plans and bad targets: exit code 2, nothing written."""
    out = tmp_path / "out.sh"
    scenario = str(tmp_path / "small.yaml")
    edited = tmp_path / "edited.json"
    edited.write_text(Path(file).read_text("utf-8").replace('"tp": 2', '"tp": 4', 1), "utf-8")
    for bad in (scenario, str(edited), str(tmp_path / "none.json")):
        run = _run("export", bad, "--to", "slurm", "--out", str(out))
        assert run.exit_code == 2 and "Maybe " in run.stderr, bad
    assert _run("export", file, "--to", "nemo").exit_code == 2
    assert _run("export", file).exit_code == 2
    assert not out.exists()


def test_the_plan_is_never_overwritten(file: str) -> None:
    """Tests --out that is the plan itself."""
    before = Path(file).read_bytes()
    assert _run("export", file, "--to", "slurm", "--out", file).exit_code == 2
    assert Path(file).read_bytes() == before
