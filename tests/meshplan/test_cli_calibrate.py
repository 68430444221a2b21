"""``meshplan import runs`` and ``meshplan calibrate``, from a log to a calibration in use."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

import meshplan
from meshplan.cli.app import application
from meshplan.scenarios.calibration import read_calibration
from meshplan.solver import extras
from tests.meshplan.results import ROOT
from tests.solver.calibrate.measured import LAYOUTS, write_runs

FEW = {"moe": LAYOUTS["moe"][:4]}


def _run(*arguments: str | Path, stdin: str | None = None) -> Result:
    return CliRunner().invoke(application, [str(one) for one in arguments], input=stdin)


def _rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(text.splitlines()))


# -- calibrate ---------------------------------------------------------------------------------


def test_calibrate_writes_all_three_files(tmp_path: Path) -> None:
    """Tests that YAML, picture and JSON appear, agree, and that a scenario can use the YAML."""
    runs = write_runs(tmp_path, layouts=FEW)
    out, page, data = (tmp_path / name for name in ("my-cluster.yaml", "fit.png", "fit.json"))
    run = _run("calibrate", runs, "--out", out, "--picture", page, "--json", data)
    assert run.exit_code == 0, run.output
    assert "my-cluster" in run.stdout and "Efficiencies" in run.stdout
    assert f"calibration: {out}" in run.stdout
    written = json.loads(data.read_text("utf-8"))
    calibration = read_calibration(out)
    assert calibration.name == written["name"] == "my-cluster"
    assert calibration.error_band == written["errors"]["error_band"]
    assert yaml.safe_load(out.read_text("utf-8"))["date"] == calibration.date
    assert page.read_bytes().startswith(b"\x89PNG")
    report = meshplan.check(meshplan.load(tmp_path / "moe.yaml", [f"calibration={out}"]), "ep=8")
    assert report.to_json()["time"]["calibration"]["name"] == "my-cluster"


def test_json_to_standard_output(tmp_path: Path) -> None:
    """Tests that ``--json -`` is nothing but JSON, with a row for each run and each parameter."""
    run = _run("calibrate", write_runs(tmp_path, layouts=FEW), "--json", "-")
    data = json.loads(run.stdout)
    assert data["meshplan_result"] == 1 and data["status"] == "ok"
    assert [row["line"] for row in data["runs"]] == [2, 3, 4, 5]
    assert {one["status"] for one in data["parameters"]} <= {"fitted", "shared", "kept", "idle"}
    page = (ROOT / "docs" / "calibration.md").read_text("utf-8")
    page = re.sub(r"^```.*?^```", "", page, flags=re.MULTILINE | re.DOTALL)
    words = set(re.findall(r"[a-z_0-9]+", " ".join(re.findall(r"`([^`\n]+)`", page))))
    keys = {*data["errors"], *data["runs"][0], *data["parameters"][0], *data["ties"], *data}
    assert sorted(keys - words - {"meshplan_result", "status"}) == []


def test_quiet_prints_nothing(tmp_path: Path) -> None:
    """Tests that ``--quiet`` leaves files only."""
    out = tmp_path / "c.yaml"
    run = _run("calibrate", write_runs(tmp_path, layouts=FEW), "--out", out, "-q")
    assert run.exit_code == 0 and run.output == "" and out.exists()


def test_weak_calibrations_are_not_written_silently(tmp_path: Path) -> None:
    """Tests one run 1.9 times as long as predicted: a warning even with ``--quiet``."""
    out = tmp_path / "c.yaml"
    runs = write_runs(
        tmp_path, noise=0.0, truth={}, layouts={"moe": LAYOUTS["moe"][:1]}, factors={0: 1.9}
    )
    run = _run("calibrate", runs, "--out", out, "-q")
    assert run.exit_code == 0 and run.stdout == ""
    assert f"warning: {out} is worth little: 1 layout tells a common factor at best" in run.stderr
    assert read_calibration(out).error_band == 0.9


def test_bad_runs_leave_old_files_alone(tmp_path: Path) -> None:
    """Tests that a fault in the last row writes nothing over what was there."""
    runs = write_runs(tmp_path, layouts=FEW)
    with open(runs, "a", encoding="utf-8") as file:
        file.write("moe.yaml,ep=7,4,bad\n")
    out = tmp_path / "c.yaml"
    out.write_text("old", "utf-8")
    run = _run("calibrate", runs, "--out", out)
    assert run.exit_code == 2 and f"{runs}:6: layout is 'ep=7', which is illegal" in run.stderr
    assert out.read_text("utf-8") == "old"
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".csv"] + [".yaml"] * 5


def test_results_may_not_share_a_file(tmp_path: Path) -> None:
    """Tests that the runs are not written over, nor one result by the other."""
    runs = write_runs(tmp_path, layouts=FEW)
    run = _run("calibrate", runs, "--out", runs)
    assert run.exit_code == 2 and "the same file as RUNS.csv" in run.stderr
    run = _run("calibrate", runs, "--out", tmp_path / "a", "--json", tmp_path / "." / "a")
    assert run.exit_code == 2 and "the same file as --out" in run.stderr
    run = _run("calibrate", runs, "--picture", tmp_path / "no" / "a.png")
    assert run.exit_code == 2 and "--picture is" in run.stderr


@pytest.mark.parametrize(
    ("base", "words"),
    [("nothing.yaml", "does not exist"), ("moe.yaml", "unknown key"), ("runs.csv", "Maybe")],
)
def test_bad_base_is_refused(base: str, words: str, tmp_path: Path) -> None:
    """Tests a missing base, a scenario in its place, and a table."""
    runs = write_runs(tmp_path, layouts=FEW)
    run = _run("calibrate", runs, "--base", tmp_path / base)
    assert run.exit_code == 2 and words in run.stderr and base in run.stderr


@pytest.mark.parametrize(("module", "extra"), [("scipy", "calibrate"), ("matplotlib", "plot")])
def test_without_the_extras(
    module: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests that the message names the extra before any work is done."""
    hidden = {module: None}
    monkeypatch.setattr(extras, "find_spec", lambda name: hidden.get(name, name))
    run = _run("calibrate", tmp_path / "none.csv", "--picture", tmp_path / "p.png")
    assert run.exit_code == 2
    assert f"needs {module}, which is not installed" in run.stderr
    assert f"pip install 'meshplan[{extra}]'" in run.stderr


def test_core_needs_neither() -> None:
    """Tests that a check imports neither SciPy nor Matplotlib, and that help does not either."""
    code = (
        "import sys, meshplan, meshplan.cli.app\n"
        "meshplan.check('scenarios/seed/dsv3-h100-4k-published.yaml')\n"
        "import meshplan.solver.calibrate, meshplan.solver.calibrate.picture\n"
        "import meshplan.solver.calibrate.report, meshplan.scenarios.importers.megatron_log\n"
        "print([name for name in ('scipy', 'matplotlib') if name in sys.modules])"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.stdout.strip() == "[]", run.stderr
