"""Processes that run cases: which outcome each gets, and that none outlives its use."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing
from multiprocessing import Pipe
from pathlib import Path

import pytest

from meshplan.suite.case import Case
from meshplan.suite.workers import Tick, run_in_workers
from meshplan.workers import _work, available_cpus
from tests.meshplan.judges import judge
from tests.meshplan.results import ROOT, small_file


def _outcomes(names: list[str], jobs: int, limit_s: float | None = None) -> dict[str, Case]:
    files = [Path(name) for name in names]
    events = list(run_in_workers(files, jobs, limit_s, judge=judge))
    cases = [event for event in events if not isinstance(event, Tick)]
    assert sorted(index for index, _ in cases) == list(range(len(files))), "each file once"
    assert all(files[index] == case.file for index, case in cases)
    return {str(case.file): case for _, case in cases}


def test_cases_run_at_once() -> None:
    """Tests that two processes work side by side: each runs one of two files that take a while."""
    cases = _outcomes(["sleep-0.5", "sleep-0.6"], 2)
    assert {case.outcome for case in cases.values()} == {"pass"}
    pids = {case.said for case in cases.values()}
    assert len(pids) == 2 and str(os.getpid()) not in pids


def test_one_process_takes_file_after_file() -> None:
    """Tests that there are no more processes than asked for."""
    assert len({case.said for case in _outcomes(["a", "b", "c"], 1).values()}) == 1


def test_a_crash_is_one_failed_case() -> None:
    """Tests that a killed process fails its own case, says how it died, and is replaced."""
    cases = _outcomes(["a", "kill", "b", "exit", "c"], 1)
    assert [case.outcome for case in cases.values()].count("pass") == 3
    assert cases["kill"].outcome == cases["exit"].outcome == "ERROR"
    assert "(signal 9, SIGKILL)" in cases["kill"].faults[0].text
    assert "(exit code 7)" in cases["exit"].faults[0].text
    assert cases["a"].said != cases["c"].said, "a new process"


def test_a_case_that_ignores_its_limit_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that a stuck case becomes an error: twice its limit and the grace have passed."""
    monkeypatch.setattr("meshplan.workers._GRACE_S", 0.1)
    cases = _outcomes(["stuck", "a"], 1, limit_s=1.0)
    assert cases["stuck"].outcome == "ERROR" and cases["stuck"].seconds > 2.1
    assert "its limit does not hold" in cases["stuck"].faults[0].text
    assert cases["a"].outcome == "pass"


def test_closing_ends_what_runs() -> None:
    """Tests that processes are gone as soon as the iterator is closed."""
    with closing(run_in_workers([Path("stuck"), Path("a")], 2, None, judge=judge)) as events:
        case = next(event for event in events if not isinstance(event, Tick))[1]
    assert case.file == Path("a")
    with pytest.raises(ProcessLookupError):
        os.kill(int(case.said), 0)


def test_available_cpus_respect_the_quota(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests a container with half a CPU, one without quota, and a file that says nonsense."""
    quota = tmp_path / "cpu.max"
    monkeypatch.setattr("meshplan.workers._CPU_QUOTA", quota)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(6)), raising=False)
    counts = {}
    for text in ("50000 100000", "400000 100000", "max 100000", "?", "1 0"):
        quota.write_text(text, "ascii")
        counts[text] = available_cpus()
    assert list(counts.values()) == [1, 4, 6, 6, 6]


# -- the command, as a user runs it -------------------------------------------------------------


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "meshplan", "test", *arguments]


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def _slow_scenarios(folder: Path, count: int) -> None:
    """Scenarios that take seconds each, after one that takes none."""
    text = (ROOT / "scenarios/seed/dsv3-h100-128k.yaml").read_text("utf-8")
    small_file(folder, "expect: {status: optimal}\n", "a.yaml")
    for number in range(count):
        (folder / f"slow-{number}.yaml").write_text(text, "utf-8")


def _gone(pids: list[int], patience_s: float = 10.0) -> bool:
    """Whether all processes end in time."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        if not any(Path(f"/proc/{pid}").exists() for pid in pids):
            return True
        time.sleep(0.05)
    return False


def _children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _started(folder: Path) -> tuple[subprocess.Popen[str], list[int]]:
    """A run that has judged the first case, in a process group of its own, and its processes."""
    process = subprocess.Popen(
        _command(str(folder), "-j", "2"),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=_environment(), start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline().startswith("pass ")
    return process, _children(process.pid)


linux = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


@linux
def test_interrupt_shows_what_is_judged(tmp_path: Path) -> None:
    """Tests Ctrl-C as a terminal sends it, to the whole group: totals, code 4, nothing left."""
    _slow_scenarios(tmp_path, 3)
    process, children = _started(tmp_path)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 4, err
    assert err == "", "no traceback, of no process"
    assert out.splitlines()[-1].startswith("stopped: 1 passed, 0 failed, 0 without expectation, 3")
    assert len(children) >= 2 and _gone(children)


@linux
def test_killed_run_leaves_no_process(tmp_path: Path) -> None:
    """Tests that workers end with the command, even if that had no time to end them."""
    _slow_scenarios(tmp_path, 3)
    process, children = _started(tmp_path)
    process.kill()
    process.communicate(timeout=30)
    assert len(children) >= 2 and _gone(children)


@linux
def test_lines_come_in_the_order_of_the_files(tmp_path: Path) -> None:
    """Tests that the output of two processes is that of one, apart from times."""
    for name in ("c", "a", "b", "d"):
        small_file(tmp_path, f"layout: {{tp: {1 + 3 * (name == 'b')}}}\n", f"{name}.yaml")
    outputs = []
    for jobs in ("1", "2"):
        run = subprocess.run(
            _command(str(tmp_path), "-j", jobs),
            capture_output=True, text=True, env=_environment(), check=False,
        )  # fmt: skip
        assert run.returncode == 0, run.stderr
        lines = [line.split() for line in run.stdout.splitlines()]
        outputs.append([[*words[:2], *words[4:]] for words in lines[:-1]])
    assert outputs[0] == outputs[1] and len(outputs[0]) == 4


@linux
def test_terminal_shows_what_runs(tmp_path: Path) -> None:
    """Tests that a terminal sees the running files, which a pipe does not."""
    _slow_scenarios(tmp_path, 1)
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        _command(str(tmp_path), "-j", "1"),
        stdout=theirs, stderr=theirs, stdin=theirs,
        env=_environment() | {"TERM": "xterm", "COLUMNS": "120"},
    )  # fmt: skip
    os.close(theirs)
    shown = b""
    while True:
        try:
            shown += os.read(ours, 4096)
        except OSError:  # the other end is closed
            break
    os.close(ours)
    assert process.wait() == 0
    assert b"1 of 2   slow-0 " in shown
    assert b"2 passed, 0 failed" in shown.splitlines()[-1]


def test_a_worker_whose_result_nobody_reads_ends_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C closes the pipe with a result in it: no ``Process SpawnProcess-2:`` is printed."""
    monkeypatch.setattr("meshplan.workers._ONE_THREAD", ())  # this process goes on
    ours, theirs = Pipe()
    ours.send("a task")
    before = signal.getsignal(signal.SIGINT)
    closing = threading.Timer(0.2, ours.close)
    closing.start()
    try:
        _work(theirs, str.upper)
    finally:
        signal.signal(signal.SIGINT, before)
        closing.join()
        theirs.close()
