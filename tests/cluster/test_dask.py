"""Sweeps on a real Dask cluster of this machine, whose workers get killed; Parquet."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.meshplan.results import ROOT, small_file

_SCENARIOS = 24


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


class Cluster:
    """A scheduler and workers of one thread each, started from the command line as users do."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.workers: list[subprocess.Popen[str]] = []
        self.scheduler = self._start(
            "scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard"
        )
        assert self.scheduler.stderr is not None
        found = None
        while found is None:
            line = self.scheduler.stderr.readline()
            assert line, "the scheduler says where it is"
            found = re.search(r"Scheduler at:\s+(tcp://\S+)", line)
        self.address = found[1]

    def add_worker(self) -> subprocess.Popen[str]:
        """Start another worker, with no nanny that would restart it."""
        worker = self._start("worker", self.address, "--nthreads", "1", "--no-nanny",
                             "--no-dashboard", "--local-directory", str(self._folder))  # fmt: skip
        self.workers.append(worker)
        return worker

    def _start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "distributed.cli.dask_" + arguments[0], *arguments[1:]],
            cwd=self._folder, env=_environment(), text=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE if arguments[0] == "scheduler" else subprocess.DEVNULL,
        )  # fmt: skip

    def end(self) -> None:
        """End all processes."""
        for process in (*self.workers, self.scheduler):
            with suppress(ProcessLookupError):
                process.kill()
            process.wait()
            if process.stderr is not None:
                process.stderr.close()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A scheduler with no worker yet."""
    pytest.importorskip("distributed", reason="distributed is not installed")
    folder = tmp_path / "dask"
    folder.mkdir()
    made = Cluster(folder)
    yield made
    made.end()


def _sweep(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "meshplan", "sweep", "small.yaml",
         "--over", f"workload.global_batch_size=8..{8 * _SCENARIOS}+8", *arguments],
        cwd=folder, env=_environment(), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip


def _keys(journal: Path) -> list[str]:
    return [json.loads(line)["key"] for line in journal.read_text().splitlines()[1:]]


def _until_rows(journal: Path, number: int, patience_s: float = 60.0) -> None:
    deadline = time.monotonic() + patience_s
    while not (journal.exists() and journal.read_bytes().count(b"\n") > number):
        assert time.monotonic() < deadline, "rows come as they are finished"
        time.sleep(0.02)


def test_killed_workers_lose_nothing(tmp_path: Path, cluster: Cluster) -> None:
    """Tests that a SIGKILL of a worker, and of the last one, costs no row, and no row is twice."""
    small_file(tmp_path)
    victim, other = cluster.add_worker(), cluster.add_worker()
    sweep = _sweep(tmp_path, "--scheduler", cluster.address, "-o", "dask.csv")
    _until_rows(tmp_path / "dask.csv.journal", 2)
    os.kill(victim.pid, signal.SIGKILL)
    _until_rows(tmp_path / "dask.csv.journal", 6)
    os.kill(other.pid, signal.SIGKILL)
    cluster.add_worker()
    out, err = sweep.communicate(timeout=240)
    assert sweep.returncode == 0, err
    assert f"{_SCENARIOS} of {_SCENARIOS} scenarios: {_SCENARIOS} optimal" in out
    keys = _keys(tmp_path / "dask.csv.journal")
    assert len(keys) == len(set(keys)) == _SCENARIOS
    here = _sweep(tmp_path, "-o", "here.csv", "-q", "-j", "2")
    here.communicate(timeout=240)
    assert (tmp_path / "dask.csv").read_bytes() == (tmp_path / "here.csv").read_bytes()


def test_lost_scheduler_keeps_what_is_finished(tmp_path: Path, cluster: Cluster) -> None:
    """Tests one message when the scheduler dies, and that the sweep then goes on without it."""
    small_file(tmp_path)
    cluster.add_worker()
    sweep = _sweep(tmp_path, "--scheduler", cluster.address, "-o", "a.csv")
    _until_rows(tmp_path / "a.csv.journal", 3)
    cluster.scheduler.kill()
    _, err = sweep.communicate(timeout=120)
    assert sweep.returncode == 2
    assert "was lost" in err and "Traceback" not in err
    before = _keys(tmp_path / "a.csv.journal")
    assert 3 <= len(before) < _SCENARIOS
    again = _sweep(tmp_path, "-o", "a.csv", "-q", "-j", "2")
    again.communicate(timeout=240)
    assert again.returncode == 0
    keys = _keys(tmp_path / "a.csv.journal")
    assert keys[: len(before)] == before and len(keys) == len(set(keys)) == _SCENARIOS


def test_interrupt_keeps_what_is_finished(tmp_path: Path, cluster: Cluster) -> None:
    """Tests Ctrl-C of a sweep on a cluster: code 4, and the rows are there."""
    small_file(tmp_path)
    cluster.add_worker()
    sweep = _sweep(tmp_path, "--scheduler", cluster.address, "-o", "a.csv")
    _until_rows(tmp_path / "a.csv.journal", 3)
    os.killpg(sweep.pid, signal.SIGINT)
    out, err = sweep.communicate(timeout=120)
    assert sweep.returncode == 4 and out == ""
    assert err.startswith("Stopped: ") and "Traceback" not in err
    assert len(_keys(tmp_path / "a.csv.journal")) >= 3


def test_nobody_at_the_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests the message for an address where no scheduler answers."""
    pytest.importorskip("distributed", reason="distributed is not installed")
    import meshplan
    from meshplan.sweeps import dask_cluster

    monkeypatch.setattr(dask_cluster, "_PATIENCE_S", 0.5)
    with pytest.raises(meshplan.InputError, match="where no scheduler answers"):
        dask_cluster.check_scheduler("tcp://127.0.0.1:1")


def test_parquet_has_types(tmp_path: Path) -> None:
    """Tests that numbers are numbers in Parquet, and that what has no plan is empty."""
    pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    small_file(tmp_path)
    run = subprocess.run(
        [sys.executable, "-m", "meshplan", "sweep", "small.yaml", "--over",
         "workload.seq_len=4096,8388608", "--over", "layout.cp=null,[1, 2]", "-o", "a.parquet"],
        cwd=tmp_path, env=_environment(), check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    table = pq.read_table(tmp_path / "a.parquet").to_pydict()
    assert table["workload.seq_len"] == [4096, 4096, 8388608, 8388608]
    assert table["layout.cp"] == [None, "[1, 2]", None, "[1, 2]"]
    assert table["status"] == ["optimal", "optimal", "infeasible", "infeasible"]
    assert all(isinstance(one, float) for one in table["step_s"][:2])
    assert table["dp"][2:] == [None, None]
