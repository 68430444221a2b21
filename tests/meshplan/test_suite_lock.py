"""``meshplan.lock``: written when asked, held to when asked, and readable in review."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import meshplan
from meshplan.cli.app import application
from meshplan.scenarios import InputError
from meshplan.suite.answer import Answer
from meshplan.suite.case import Case
from meshplan.suite.lock import Lock, read_lock
from tests.meshplan.results import plan, small_file

PLAN = Answer(
    "optimal",
    layout={"tp": 2, "cp": 1, "gpus": 8},
    recompute=("moe", "mlp"),
    dispatcher="deepep",
    pipeline="Ett|ttL",
    cp_comm="p2p",
    offload=0.5,
    step_s=1.234567,
    peak_gib=61.2345,
    tokens_per_s_per_gpu=23456.7,
    calibration="default, 2026-11-01",
)
CONFLICT = Answer("infeasible", conflicts=(("heads-tp", "memory-capacity"),))


def _case(folder: Path, name: str, answer: Answer | None = PLAN) -> Case:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    return Case(file, "pass" if answer else "ERROR", answer=answer)


def _locked(folder: Path, *cases: Case) -> Lock:
    """The lock of ``cases``, as it is read back from its file."""
    lock = Lock(folder / "meshplan.lock").with_answers(cases)
    lock.file.write_text(lock.dumps(), "utf-8")
    return read_lock(lock.file)


def test_text_is_sorted_and_rounded(tmp_path: Path) -> None:
    """Tests the whole text: a table a scenario, a line a decision, figures that can be compared."""
    cases = [_case(tmp_path, "z.yaml", CONFLICT), _case(tmp_path, 'a/"x".yaml')]
    assert Lock(tmp_path / "meshplan.lock", "1.2.3").with_answers(cases).dumps() == (
        "# The answers to scenarios, by `meshplan test --lock`; `--locked` holds to them.\n"
        "version = 1\n"
        f'meshplan = "{meshplan.__version__}"\n'
        "\n"
        '[scenario."a/\\"x\\".yaml"]\n'
        'status = "optimal"\n'
        'layout = "tp=2 cp=1"\n'
        "gpus = 8\n"
        'pipeline = "Ett|ttL"\n'
        'recompute = "moe, mlp"\n'
        "optimizer_offload = 0.5\n"
        'dispatcher = "deepep"\n'
        'cp_comm = "p2p"\n'
        'cuda_graphs = "none"\n'
        "peak_gib = 61.23\n"
        "step_s = 1.235\n"
        "tokens_per_s_per_gpu = 23460\n"
        'calibration = "default, 2026-11-01"\n'
        "\n"
        '[scenario."z.yaml"]\n'
        'status = "infeasible"\n'
        'conflict = "heads-tp, memory-capacity"\n'
    )


def test_what_is_written_is_held(tmp_path: Path) -> None:
    """Tests that a lock holds its own answers, whatever the names of the files."""
    names = ["a.yaml", "b/ü \\ 'x'.yaml", "c.yaml"]
    cases = [_case(tmp_path, name) for name in names[:2]] + [_case(tmp_path, "c.yaml", CONFLICT)]
    lock = _locked(tmp_path, *cases)
    assert [lock.held(case) for case in cases] == cases
    assert lock.vanished() is None
    assert lock.dumps() == lock.text, "stable"


def test_differences_name_what_differs(tmp_path: Path) -> None:
    """Tests the sentences and lines: only degrees that differ, and each figure on its line."""
    case = _case(tmp_path, "a.yaml")
    lock = _locked(tmp_path, case, _case(tmp_path, "b.yaml"))
    assert case.answer is not None
    now = replace(PLAN, layout={"tp": 4, "cp": 1, "gpus": 8}, peak_gib=70.0, step_s=1.2349)
    held = lock.held(replace(case, answer=now))
    assert held.outcome == "FAIL"
    lines = lock.text.split("\n")
    assert [(fault.text, lines[(fault.line or 0) - 1]) for fault in held.faults] == [
        ("meshplan.lock: layout was tp=2, and is tp=4", 'layout = "tp=2 cp=1"'),
        ("meshplan.lock: peak_gib was 61.23, and is 70.0", "peak_gib = 61.23"),
    ], "1.2349 s rounds to the 1.235 s of before"
    assert all((fault.line or 0) < lines.index('[scenario."b.yaml"]') for fault in held.faults)


def test_another_kind_of_answer_differs(tmp_path: Path) -> None:
    """Tests a plan where the lock has a conflict, and the other way round."""
    plan_case, conflict_case = _case(tmp_path, "a.yaml"), _case(tmp_path, "b.yaml", CONFLICT)
    lock = _locked(tmp_path, plan_case, conflict_case)
    texts = [fault.text for fault in lock.held(replace(plan_case, answer=CONFLICT)).faults]
    assert texts[0] == "meshplan.lock: status was optimal, and is infeasible"
    assert "meshplan.lock: conflict was none, and is heads-tp, memory-capacity" in texts
    texts = [fault.text for fault in lock.held(replace(conflict_case, answer=PLAN)).faults]
    assert "meshplan.lock: layout was none, and is tp=2 cp=1" in texts


def test_scenarios_come_and_go(tmp_path: Path) -> None:
    """Tests one that the lock has not got, and one that is no more; others are not looked at."""
    cases = [_case(tmp_path, f"{name}.yaml") for name in "abc"]
    lock = _locked(tmp_path, *cases)
    new = lock.held(_case(tmp_path, "new.yaml"))
    assert [fault.text for fault in new.faults] == ["meshplan.lock has no answer to this scenario"]
    cases[1].file.unlink()
    gone = lock.vanished()
    assert gone is not None and gone.outcome == "FAIL"
    assert [fault.text for fault in gone.faults] == ["it has an answer to b.yaml, which is no more"]
    again = lock.with_answers([replace(cases[0], answer=CONFLICT), _case(tmp_path, "d.yaml")])
    assert list(again.entries) == ["a.yaml", "c.yaml", "d.yaml"], "c was not run, and stays"
    assert again.changes_from(lock) == "1 as before, 1 changed, 1 added, 1 removed"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("version = \n", "the lock is damaged: .*line 1"),
        ("version = 1\n<<<<<<< ours\nmeshplan = 1\n", ":2: there are marks of a merge conflict"),
        ("version = 1\n\n=======\n", ":3: there are marks of a merge conflict"),
        ("version = 2\n", "version is 2, but"),
        ("", "version is empty, but"),
        ("version = 1\nscenario = 3\n", "scenario is no table"),
        ("version = 1\n[scenario]\na = 3\n", "scenario is no table"),
    ],
)
def test_damaged_locks_are_refused(tmp_path: Path, text: str, said: str) -> None:
    """Tests merge conflicts, other versions and other files: the message says what to do."""
    file = tmp_path / "meshplan.lock"
    file.write_text(text, "utf-8")
    with pytest.raises(InputError, match=said) as caught:
        read_lock(file)
    assert caught.value.advice == "delete it, and write it anew with meshplan test --lock."


# -- the command --------------------------------------------------------------------------------


def _test(*arguments: str) -> Result:
    return CliRunner().invoke(application, ["test", "--jobs", "1", *arguments])


@pytest.fixture
def answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """What each search says: a proved plan with tp = 2 unless a test changes ``answers["now"]``."""
    known: dict[str, object] = {"now": plan(small_file(tmp_path))}
    monkeypatch.setattr(meshplan, "solve", lambda *_, **__: known["now"])
    monkeypatch.chdir(tmp_path)
    return known


def test_lock_and_locked(tmp_path: Path, answers: dict[str, object]) -> None:
    """Tests the round: lock, hold, another answer fails with an annotation at the lock's line."""
    early = _test("small.yaml", "--locked")
    assert early.exit_code == 2 and "Maybe write it first: meshplan test --lock" in early.stderr
    run = _test("small.yaml", "--lock")
    assert run.exit_code == 0 and "meshplan.lock: 1 added\n" in run.output
    lock = tmp_path / "meshplan.lock"
    assert list(tomllib.loads(lock.read_text("utf-8"))["scenario"]) == ["small.yaml"]
    assert _test("small.yaml", "--locked").exit_code == 0
    answers["now"] = plan("small.yaml", layout="tp=1,ep=2")
    before = lock.read_bytes()
    held = _test("small.yaml", "--locked", "--github")
    assert held.exit_code == 1
    assert "      | meshplan.lock: layout was tp=2 dp=4 ga=8, and is tp=1 dp=8 ga=4" in held.output
    assert "::error file=meshplan.lock,line=7,title=meshplan%3A small::" in held.output
    assert lock.read_bytes() == before
    assert "1 changed" in _test("small.yaml", "--lock").output
    assert lock.read_bytes() != before


def test_a_lock_of_another_version_is_told(tmp_path: Path, answers: dict[str, object]) -> None:
    """Tests that one learns what else may have changed than the scenario."""
    _test("small.yaml", "--lock")
    lock = tmp_path / "meshplan.lock"
    lock.write_text(lock.read_text("utf-8").replace(meshplan.__version__, "0.0.1"), "utf-8")
    run = _test("small.yaml", "--locked")
    assert run.exit_code == 0
    assert run.stderr == (
        f"note: meshplan.lock was written by meshplan 0.0.1, this is {meshplan.__version__}\n"
    )


def test_lock_needs_proofs(tmp_path: Path, answers: dict[str, object]) -> None:
    """Tests that nothing is locked while a case has no proved answer, or its file is broken."""
    answers["now"] = plan("small.yaml", "feasible")
    run = _test("small.yaml", "--lock")
    assert run.exit_code == 1
    assert "not written: there is no proved answer to small.yaml" in run.output
    (tmp_path / "bad.yaml").write_text("meshplan: 1\n", "utf-8")
    answers["now"] = plan("small.yaml")
    assert "no proved answer to bad.yaml" in _test(".", "--lock").output
    assert not (tmp_path / "meshplan.lock").exists()


def test_vanished_scenarios_fail(tmp_path: Path, answers: dict[str, object]) -> None:
    """Tests that a lock with too much in it is no green run."""
    small_file(tmp_path, name="other.yaml")
    assert _test(".", "--lock", "--lock-file", "answers.lock").exit_code == 0
    (tmp_path / "other.yaml").unlink()
    run = _test(".", "--locked", "--lock-file", "answers.lock", "--github")
    assert run.exit_code == 1
    assert "::error file=answers.lock,line=5,title=meshplan%3A answers::it has" in run.output
    assert "other.yaml, which is no more" in run.output and "1 failed" in run.output


def test_update_does_not_hide_the_lock(tmp_path: Path, answers: dict[str, object]) -> None:
    """Tests that a new expectation makes no peace with a locked answer that is another one."""
    assert _test(small_file(tmp_path, "expect: {status: optimal}\n"), "--lock").exit_code == 0
    answers["now"] = plan("small.yaml", layout="tp=1,ep=2")
    before = Path("small.yaml").read_bytes()
    met = _test("small.yaml", "--locked", "--update")
    assert met.exit_code == 1 and "+++" not in met.output
    assert Path("small.yaml").read_bytes() == before, "its expectation is met"
    small_file(tmp_path, "expect: {status: optimal, layout: {tp: 2}}\n")
    both = _test("small.yaml", "--locked", "--update")
    assert both.exit_code == 1 and "layout: {tp: 1}" in Path("small.yaml").read_text("utf-8")
    assert "0 passed, 1 failed" in both.output


def test_unchanged_lock_is_not_written(tmp_path: Path, answers: dict[str, object]) -> None:
    """Tests that a second --lock leaves the file with its time."""
    _test("small.yaml", "--lock")
    before = (tmp_path / "meshplan.lock").stat().st_mtime_ns
    assert "1 as before" in _test("small.yaml", "--lock").output
    assert (tmp_path / "meshplan.lock").stat().st_mtime_ns == before


@pytest.mark.parametrize(
    "options",
    [("--lock", "--locked"), ("--lock-file", "x"), ("--lock", "--lock-file", "small.yaml")],
)
def test_options_that_clash(options: tuple[str, ...], answers: dict[str, object]) -> None:
    """Tests that bad options are refused, and no scenario is overwritten."""
    before = Path("small.yaml").read_bytes()
    assert _test("small.yaml", *options).exit_code == 2
    assert Path("small.yaml").read_bytes() == before
