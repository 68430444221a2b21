"""``meshplan sweep``, as a user runs it: outputs, resume, stops, messages."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from meshplan.sweeps.local import run_in_processes
from meshplan.sweeps.work import Task
from tests.meshplan.judges import solve_or_die
from tests.meshplan.results import ROOT, small_file

_GRID = ("--over", "workload.seq_len=4096,8388608", "--over", "cluster.gpus=8,16")


def _sweep(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "meshplan", "sweep", *arguments],
        cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def _rows(journal: Path) -> list[str]:
    """Keys of the rows of a journal, in their order."""
    return [json.loads(line)["key"] for line in journal.read_text().splitlines()[1:]]


def test_same_bytes_for_any_number_of_processes(tmp_path: Path) -> None:
    """Tests table, picture and report of one and of three processes; a proof of no plan is 0."""
    small_file(tmp_path)
    runs = [
        _sweep(tmp_path, "small.yaml", *_GRID, "-j", jobs, "-o", f"{jobs}.csv",
               "--picture", f"{jobs}.svg")
        for jobs in ("1", "3")
    ]  # fmt: skip
    assert [run.returncode for run in runs] == [0, 0], runs[0].stderr
    assert runs[0].stdout == runs[1].stdout
    assert runs[0].stdout.endswith("small: 4 of 4 scenarios: 2 optimal, 2 infeasible\n")
    assert runs[0].stderr == runs[1].stderr == ""
    for end in ("csv", "svg"):
        assert (tmp_path / f"1.{end}").read_bytes() == (tmp_path / f"3.{end}").read_bytes()


def test_second_run_solves_only_what_is_missing(tmp_path: Path) -> None:
    """Tests a larger grid on the same output: two old rows stay, two are added, none is twice."""
    small_file(tmp_path)
    common = ("small.yaml", "--over", "workload.seq_len=4096,8192", "-o", "a.csv", "-j", "1")
    assert _sweep(tmp_path, *common).returncode == 0
    first = _rows(tmp_path / "a.csv.journal")
    again = _sweep(tmp_path, *common[:2], "workload.seq_len=2048..16384*2", *common[3:])
    assert again.returncode == 0
    assert again.stderr == f"2 of 4 scenarios are in {tmp_path.resolve()}/a.csv.journal\n"
    keys = _rows(tmp_path / "a.csv.journal")
    assert keys[:2] == first and len(set(keys)) == len(keys) == 4
    lengths = [line.split(",")[0] for line in (tmp_path / "a.csv").read_text().splitlines()]
    assert lengths == ["workload.seq_len", "2048", "4096", "8192", "16384"]


def _until(path: Path, lines: int, patience_s: float = 60.0) -> None:
    deadline = time.monotonic() + patience_s
    while not (path.exists() and path.read_bytes().count(b"\n") >= lines):
        assert time.monotonic() < deadline, "rows come as they are finished"
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_stopped_sweep_loses_nothing(tmp_path: Path, number: signal.Signals) -> None:
    """Tests Ctrl-C and a kill in the middle: what was finished is not solved again."""
    small_file(tmp_path)
    grid = ("small.yaml", "--over", "workload.global_batch_size=8..240+8", "-o", "a.csv", "-j", "2")
    process = subprocess.Popen(
        [sys.executable, "-m", "meshplan", "sweep", *grid],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    journal = tmp_path / "a.csv.journal"
    _until(journal, 4)
    if number == signal.SIGINT:
        os.killpg(process.pid, number)  # as a terminal sends it
    else:
        process.kill()
    out, err = process.communicate(timeout=60)
    assert out == "" and not (tmp_path / "a.csv").exists(), "no table of a part"
    if number == signal.SIGINT:
        assert process.returncode == 4
        assert err.startswith("Stopped: ") and "the same command goes on from there" in err
    before = _rows(journal)
    assert 3 <= len(before) < 30, "in the middle"
    again = _sweep(tmp_path, *grid)
    assert again.returncode == 0, again.stderr
    keys = _rows(journal)
    assert keys[: len(before)] == before and len(keys) == len(set(keys)) == 30
    table = (tmp_path / "a.csv").read_text().splitlines()[1:]
    assert [int(line.split(",")[0]) for line in table] == list(range(8, 241, 8))


def test_limit_keeps_unknown_apart(tmp_path: Path) -> None:
    """Tests that a limit too short for any answer is code 4, and that more time solves again."""
    small_file(tmp_path)
    common = ("small.yaml", "--over", "workload.seq_len=4096", "-o", "a.json", "-j", "1")
    short = _sweep(tmp_path, *common, "--time-limit", "0.0001")
    assert short.returncode == 4, short.stderr
    assert json.loads((tmp_path / "a.json").read_text())["rows"][0]["status"] == "unknown"
    assert _sweep(tmp_path, *common).returncode == 0
    assert json.loads((tmp_path / "a.json").read_text())["rows"][0]["status"] == "optimal"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("small.yaml --over workload.seq_len=0,1", "override 'workload.seq_len=0'"),
        ("small.yaml --over workload.sequence=1", "workload.sequence is an unknown key"),
        ("small.yaml --over cluster.gpus=8 -o small.yaml", "a .csv, a .parquet or a .json file"),
        ("small.yaml --over cluster.gpus=8 -o -", "--output is '-'"),
        ("small.yaml --over cluster.gpus=8 --picture a.pdf", "a .png or a .svg file"),
        ("small.yaml --over cluster.gpus=8 --picture a.png -o a/b.csv", "cannot be written"),
        ("small.yaml --over cluster.gpus=8 --scheduler here", "no address of a scheduler"),
        ("small.yaml --over cluster.gpus=8 --scheduler tcp://a:1 -j 2", "use one"),
        ("small.yaml", "--over"),
        ("none.yaml --over cluster.gpus=8", "none.yaml"),
    ],
)
def test_bad_input_is_named(tmp_path: Path, arguments: str, said: str) -> None:
    """Tests one message with the value, code 2, no traceback, and that no file is left behind."""
    if said.startswith("no address"):
        pytest.importorskip("distributed", reason="distributed is not installed")
    small_file(tmp_path)
    run = _sweep(tmp_path, *arguments.split())
    assert run.returncode == 2, run.stderr
    assert said in run.stderr and "Traceback" not in run.stderr and run.stdout == ""
    assert [path.name for path in tmp_path.iterdir()] == ["small.yaml"]


def test_a_task_whose_process_dies_twice_is_an_error() -> None:
    """Tests that the others are solved, and that the one says how its process died."""
    tasks = [Task({}, "a"), Task({}, "kill"), Task({}, "b")]
    events = run_in_processes(tasks, 2, solve_or_die)
    rows = dict(event for event in events if event is not None)
    assert {index: row["status"] for index, row in rows.items()} == {
        0: "optimal", 1: "error", 2: "optimal",
    }  # fmt: skip
    assert rows[1]["error"] == "its process died (signal 9, SIGKILL), twice"
