"""``meshplan import runs``: rows of measured runs from logs, and logs of something else."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from meshplan.cli.app import application
from tests.scenarios.importers.logs import CONFIGURATION, DUMP, log_line, megatron_log
from tests.solver.calibrate.measured import write_scenarios


def _run(*arguments: str | Path, stdin: str | None = None) -> Result:
    return CliRunner().invoke(application, [str(one) for one in arguments], input=stdin)


def _rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(text.splitlines()))


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
    log = _log(tmp_path, text=megatron_log([4700.0] * 20))
    run = _run("import", "runs", log, "--scenario", tmp_path / "moe.yaml", "--layout", "tp=1,ep=7")
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


# -- logs of something else ----------------------------------------------------------------------

MINE = ("--layout", "tp=1,ep=8,pp=1")


def _logged(folder: Path, ms: float, tflops: float, skipped: int = 0) -> Path:
    write_scenarios(folder)
    lines = (log_line(n, ms, tflops=tflops, skipped=skipped) for n in range(1, 30))
    return _log(folder, text="\n".join(lines) + "\n")


@pytest.mark.parametrize("tflops", [160.0, 194.0, 175.0, 145.0])
def test_ways_of_counting_agree(tflops: float, tmp_path: Path) -> None:
    """Tests that no way of counting is taken for another model.

    4.7 s for 512 sequences of 4096 tokens on 64 H100 are 160 TFLOP/s of Qwen3-30B-A3B with half of
    the attention matrix, 194 with all of it; 15 % beyond either may be a fork's own formula.
    """
    log = _logged(tmp_path, 4700.0, tflops)
    run = _run("import", "runs", log, "--scenario", tmp_path / "moe.yaml", *MINE)
    assert run.exit_code == 0 and "warning" not in run.stderr


def test_log_of_another_model_is_told_with_both_figures(tmp_path: Path) -> None:
    """Tests 280 TFLOP/s: 1.4 times what any count gives is a warning, in JSON too."""
    log = _logged(tmp_path, 4700.0, 280.0)
    run = _run("import", "runs", log, "--scenario", tmp_path / "moe.yaml", *MINE, "--json")
    assert run.exit_code == 0
    (words,) = json.loads(run.stdout)["runs"][0]["warnings"]
    assert words.startswith(
        "the log says 280.0 TFLOP/s per GPU, but its steps of 4.7 s are 160 to 194, by the way of "
        "counting, for 512 sequences of 4096 tokens of qwen3-30b-a3b on 64 GPUs: 1.4 times off"
    )
    assert f"warning: train.log: {words}" in run.stderr


@pytest.mark.parametrize(("tflops", "times"), [(620.0, "3.2"), (40.0, "4.0")])
def test_log_of_another_model_is_refused(tflops: float, times: str, tmp_path: Path) -> None:
    """Tests that TFLOP/s more than twice off are refused, and that no row is written."""
    log, out = _logged(tmp_path, 4700.0, tflops), tmp_path / "runs.csv"
    run = _run("import", "runs", log, "--scenario", tmp_path / "moe.yaml", *MINE, "-o", out)
    assert run.exit_code == 2 and not out.exists()
    assert f"the log says {tflops:.1f} TFLOP/s per GPU" in run.stderr
    assert f"{times} times off; the log is of another model" in run.stderr
    assert "Maybe give the scenario of this run" in run.stderr


def test_steps_beyond_the_peak_are_refused(tmp_path: Path) -> None:
    """Tests 5.2 ms where 4.7 s are 160 TFLOP/s: 144,975 for each GPU, of 989 that an H100 has."""
    log = _logged(tmp_path, 5.2, 160.0)
    run = _run("import", "runs", log, "--scenario", tmp_path / "moe.yaml", *MINE)
    assert run.exit_code == 2 and run.stdout == ""
    assert "a step of 0.0052 s for 512 sequences of 4096 tokens of qwen3-30b-a3b" in run.stderr
    assert "is 144,975 model TFLOP/s of one GPU, more than the bf16 peak of 989" in run.stderr


def test_steps_far_from_any_prediction_are_refused(tmp_path: Path) -> None:
    """Tests an hour for a step that takes about five seconds."""
    log = _logged(tmp_path, 3.6e6, 160.0 * 4.7 / 3600)
    run = _run("import", "runs", log, "--scenario", tmp_path / "moe.yaml", *MINE)
    assert run.exit_code == 2 and "times slower than predicted" in run.stderr


def test_shapes_are_compared_field_by_field(tmp_path: Path) -> None:
    """Tests a log of a smaller model: each figure beside the scenario's, and how to state it."""
    write_scenarios(tmp_path)
    text = DUMP.replace("num_layers ...... 48", "num_layers ...... 32\n  hidden_size ...... 4096")
    log = _log(tmp_path, text=text + megatron_log([4700.0] * 20))
    run = _run("import", "runs", log, "--scenario", tmp_path / "moe.yaml")
    assert run.exit_code == 2
    assert (
        "the run had another model: num_layers 32 (line 12), hidden_size 4096 (line 13); the "
        "scenario's qwen3-30b-a3b has layers 48, hidden 2048" in run.stderr
    )
    assert "model: {card: qwen3-30b-a3b, layers: 32, hidden: 4096}" in run.stderr


def test_skipped_iterations_are_told(tmp_path: Path) -> None:
    """Tests a log whose every line has a skipped step: the number, and what the time is of."""
    log = _logged(tmp_path, 4700.0, 160.0, skipped=1)
    run = _run("import", "runs", log, "--scenario", tmp_path / "moe.yaml", *MINE, "--json")
    row = json.loads(run.stdout)["runs"][0]
    assert row["iterations"] == {"skipped": 29, "nan": 0}
    assert "29 iterations of the log skipped, without an update" in run.stderr
    assert "the step time is theirs, not that of the training" in run.stderr


def test_layout_of_bridge_is_that_of_its_configuration(tmp_path: Path) -> None:
    """Tests degrees, modules and batch from what Megatron-Bridge prints before it trains."""
    write_scenarios(tmp_path)
    log = _log(tmp_path, text=CONFIGURATION + megatron_log([4700.0] * 20))
    run = _run("import", "runs", log, "--scenario", tmp_path / "moe.yaml")
    assert run.exit_code == 0, run.stderr
    (row,) = _rows(run.stdout)
    assert row["layout"].startswith("tp=2,cp=1,pp=1,ep=8,etp=1,vpp=1,mbs=1,recompute=moe_act+mlp")
    assert row["layout"].endswith("gbs=512") and "warning" not in run.stderr


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("num_layers: 48", "num_layers: 94", "num_layers 94 (line 31); the scenario's"),
        ("num_moe_experts: 128", "num_moe_experts: 64", "num_experts 64 (line 32); the scenario's"),
        ("sequence_length: 4096", "sequence_length: 8192", "the run had seq_len 8192, but"),
    ],
)
def test_configuration_of_another_run_is_refused(
    old: str, new: str, words: str, tmp_path: Path
) -> None:
    """Tests another model and length in what Megatron-Bridge prints."""
    write_scenarios(tmp_path)
    assert old in CONFIGURATION
    log = _log(tmp_path, text=CONFIGURATION.replace(old, new) + megatron_log([4700.0] * 20))
    run = _run("import", "runs", log, "--scenario", tmp_path / "moe.yaml")
    assert run.exit_code == 2 and words in run.stderr


def test_layout_that_the_log_contradicts_is_refused(tmp_path: Path) -> None:
    """Tests --layout with another TP than the printed arguments have, with their line."""
    write_scenarios(tmp_path)
    run = _run("import", "runs", _log(tmp_path), "--scenario", tmp_path / "moe.yaml", *MINE)
    assert run.exit_code == 2
    assert "train.log:4: the run had --tensor-model-parallel-size 2, but --layout has tp = 1" in (
        run.stderr
    )
    assert "write tp=2, or leave --layout away" in run.stderr


def test_rates_that_no_gpu_has_are_not_compared(tmp_path: Path) -> None:
    """Tests 59,892 TFLOP/s per GPU, as an early Megatron-Bridge printed: told, not refused."""
    log = _logged(tmp_path, 4700.0, 59892.5)
    run = _run("import", "runs", log, "--scenario", tmp_path / "moe.yaml", *MINE)
    assert run.exit_code == 0
    assert "warning: train.log: the log says 59,892.5 TFLOP/s per GPU, more than the bf16 peak" in (
        run.stderr
    )
