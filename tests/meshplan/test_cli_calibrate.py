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
from tests.scenarios.importers.logs import DUMP, log_line, megatron_log
from tests.solver.calibrate.measured import LAYOUTS, write_runs, write_scenarios

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
    assert {one["status"] for one in data["parameters"]} <= {"fitted", "kept", "idle"}
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


# -- import runs -------------------------------------------------------------------------------


def _log(folder: Path, name: str = "train.log", text: str | None = None) -> Path:
    path = folder / name
    body = DUMP + megatron_log([30_000.0, *[4700.0, 4710.0, 4690.0] * 8]) if text is None else text
    path.write_text(body, "utf-8")
    return path


def test_import_runs_takes_layout_from_printed_arguments(tmp_path: Path) -> None:
    """Tests a row with the layout of the dump and the median of 4.7 s; findings go elsewhere."""
    write_scenarios(tmp_path)
    run = _run("import", "runs", _log(tmp_path), "--scenario", tmp_path / "moe.yaml")
    assert run.exit_code == 0, run.output
    (row,) = _rows(run.stdout)
    assert row["step_s"] == "4.7" and row["name"] == "train.log"
    assert row["layout"].startswith("tp=2,cp=1,pp=1,ep=8,etp=1")
    assert "train.log: 4.7 s, 160.0 TFLOP/s per GPU, over 20 lines ± 0.3%" in run.stderr
    assert "left out: 5 of warm-up" in run.stderr


def test_import_runs_then_calibrate(tmp_path: Path) -> None:
    """Tests the whole way: two logs into a file in another folder, and a fit to it."""
    write_scenarios(tmp_path)
    logs = tmp_path / "logs"
    logs.mkdir()
    runs = logs / "runs.csv"
    scenario = tmp_path / "moe.yaml"
    for name, layout, ms in (("a.log", "ep=8,tp=1", 4800.0), ("b.log", "ep=8,tp=2", 6700.0)):
        text = megatron_log([ms] * 20)
        layout += ",recompute=full,dispatcher=alltoall"
        run = _run("import", "runs", _log(logs, name, text), "--scenario", scenario, "--layout",
                   layout, "-o", runs)  # fmt: skip
        assert run.exit_code == 0 and run.stdout == "", run.output
    rows = _rows(runs.read_text("utf-8"))
    assert [row["scenario"] for row in rows] == ["../moe.yaml"] * 2, "from the folder of the file"
    assert [float(row["step_s"]) for row in rows] == [4.8, 6.7]
    run = _run("calibrate", runs)
    assert run.exit_code == 0, run.output
    assert "to 2 runs of" in run.stdout


def test_import_runs_adds_no_row_twice(tmp_path: Path) -> None:
    """Tests that the same log again changes nothing, and that other columns and comments stay."""
    write_scenarios(tmp_path)
    runs = tmp_path / "runs.csv"
    runs.write_text("# mine\nname,weight,scenario,layout,step_s\nold,2,moe.yaml,,5\n", "utf-8")
    arguments = ("import", "runs", _log(tmp_path), "--scenario", tmp_path / "moe.yaml", "-o", runs)
    assert _run(*arguments).exit_code == 0
    first = runs.read_text("utf-8")
    assert first.startswith("# mine\nname,weight,scenario,layout,step_s\nold,2,moe.yaml,,5\n")
    assert first.splitlines()[-1].startswith('train.log,,moe.yaml,"tp=2,')
    run = _run(*arguments)
    assert "already; not added again" in run.stderr
    assert runs.read_text("utf-8") == first


def test_import_runs_keeps_the_separator(tmp_path: Path) -> None:
    """Tests a table that a spreadsheet wrote, and that a layout then needs no quotes."""
    write_scenarios(tmp_path)
    runs = tmp_path / "runs.csv"
    runs.write_text("Scenario;layout;step_s\nmoe.yaml;tp=2,ep=8;5", "utf-8")
    arguments = ("import", "runs", _log(tmp_path), "--scenario", tmp_path / "moe.yaml", "-o", runs)
    assert _run(*arguments).exit_code == 0
    lines = runs.read_text("utf-8").splitlines()
    assert lines[:2] == ["Scenario;layout;step_s", "moe.yaml;tp=2,ep=8;5"]
    assert lines[2].startswith("moe.yaml;tp=2,")
    assert "already; not added again" in _run(*arguments).stderr


def test_import_runs_refuses_another_table(tmp_path: Path) -> None:
    """Tests that a file with other columns is left as it is."""
    write_scenarios(tmp_path)
    other = tmp_path / "other.csv"
    other.write_text("a,b\n1,2\n", "utf-8")
    run = _run("import", "runs", _log(tmp_path), "--scenario", tmp_path / "moe.yaml", "-o", other)
    assert run.exit_code == 2 and "without scenario, layout, step_s" in run.stderr
    assert other.read_text("utf-8") == "a,b\n1,2\n"


def test_import_runs_states_the_batch_of_the_log(tmp_path: Path) -> None:
    """Tests that a batch of 256 where the scenario has 512 becomes a part of the layout."""
    write_scenarios(tmp_path)
    text = "\n".join(log_line(n, 2400.0, batch=256) for n in range(1, 20)) + "\n"
    log, scenario = _log(tmp_path, text=text), tmp_path / "moe.yaml"
    run = _run("import", "runs", log, "--scenario", scenario, "--layout", "tp=1,ep=8")
    assert _rows(run.stdout)[0]["layout"] == "tp=1,ep=8,gbs=256"
    run = _run("import", "runs", log, "--scenario", scenario)
    assert _rows(run.stdout)[0]["layout"] == "gbs=256"
    assert "the layout is that of the scenario" in run.stderr
    run = _run("import", "runs", log, "--scenario", scenario, "--layout", "ep=8,gbs=512")
    assert run.exit_code == 2
    assert "the log has global batch size 256, but the layout has gbs = 512" in run.stderr


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("seq_length ...... 4096", "seq_length ...... 8192", "the run had seq_len 8192, but"),
        ("world_size ...... 64", "world_size ...... 32", "the run had GPUs 32, but"),
        ("  bf16 ...... True", "  bf16 ...... True\n  fp8 ...... e4m3", "the run had precision"),
    ],
)
def test_import_runs_refuses_another_run(old: str, new: str, words: str, tmp_path: Path) -> None:
    """Tests that a log of another length, size or precision is refused with its line."""
    write_scenarios(tmp_path)
    text = DUMP.replace(old, new) + megatron_log([4700.0] * 20)
    run = _run("import", "runs", _log(tmp_path, text=text), "--scenario", tmp_path / "moe.yaml")
    assert run.exit_code == 2
    assert words in run.stderr and "train.log:" in run.stderr


def test_import_runs_tells_illegal_layouts(tmp_path: Path) -> None:
    """Tests that a layout that calibrate would refuse is told at once, with the rule."""
    write_scenarios(tmp_path)
    run = _run("import", "runs", _log(tmp_path), "--scenario", tmp_path / "moe.yaml", "--layout",
               "tp=1,ep=7")  # fmt: skip
    assert run.exit_code == 0
    assert "the layout is illegal, and calibrate will refuse it: " in run.stderr


def test_import_runs_as_json_and_from_standard_input(tmp_path: Path) -> None:
    """Tests all findings as JSON, of a log on standard input."""
    write_scenarios(tmp_path)
    run = _run("import", "runs", "-", "--scenario", tmp_path / "moe.yaml", "--json", "--skip", "10",
               stdin=megatron_log([1000.0] * 30))  # fmt: skip
    (row,) = json.loads(run.stdout)["runs"]
    assert row["step_s"] == 1.0 and row["name"] == "standard-input"
    assert row["lines"] == {"kept": 20, "warm_up": 10, "outliers": 0, "faulty": 0}


def test_import_runs_says_what_is_no_log(tmp_path: Path) -> None:
    """Tests exit code 2 with the name of the file, and that no output appears."""
    write_scenarios(tmp_path)
    out = tmp_path / "runs.csv"
    run = _run("import", "runs", _log(tmp_path, text="hello\n"), "--scenario",
               tmp_path / "moe.yaml", "-o", out)  # fmt: skip
    assert run.exit_code == 2 and "train.log: there is no step time in it" in run.stderr
    assert not out.exists()
