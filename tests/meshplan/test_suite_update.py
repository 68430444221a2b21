"""``meshplan test --update``: only the expectation changes, or nothing does."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

import meshplan
from meshplan.cli.app import application
from meshplan.scenarios import loads
from meshplan.suite.answer import Answer
from meshplan.suite.case import Case, judged
from meshplan.suite.expectations import mismatches
from meshplan.suite.update import NoUpdate, Update, expectation, update_of
from tests.meshplan.results import SMALL, infeasible, plan, small_file, unknown

PLAN = Answer(
    "optimal",
    layout={"tp": 2, "cp": 1, "pp": 4, "ep": 8, "dp": 16, "mbs": 1},
    recompute=("moe", "mlp"),
    dispatcher="deepep",
    step_s=1.5,
)
CONFLICT = Answer(
    "infeasible", conflicts=(("heads-tp", "memory-capacity"),), reasons=("too large",)
)


def _case(folder: Path, text: str, answer: Answer) -> Case:
    file = folder / "a.yaml"
    file.write_bytes(text.encode())
    return judged(file, text, loads(text, str(file)), answer, 0.1)


def _change(folder: Path, text: str, answer: Answer) -> Update:
    change = update_of(_case(folder, text, answer))
    assert change is not None
    return change


def _new(folder: Path, extra: str, answer: Answer) -> str:
    """What becomes of the lines behind a scenario without expectation."""
    return _change(folder, SMALL + extra, answer).new.removeprefix(SMALL)


@pytest.mark.parametrize(
    ("extra", "answer", "new"),
    [
        pytest.param(
            "expect: {status: optimal, layout: {tp: 4, ep: 8}}  # why\n", PLAN,
            "expect: {status: optimal, layout: {tp: 2, ep: 8}}  # why\n",
            id="braces",
        ),
        pytest.param(
            "expect:\n  layout:  # mesh\n    tp: 4   # a\n    # between\n    pp: 8\n\n"
            "  status: optimal\n# end\n", PLAN,
            "expect:\n  layout:  # mesh\n    tp: 2   # a\n    # between\n    pp: 4\n\n"
            "  status: optimal\n# end\n",
            id="block",
        ),
        pytest.param(
            "expect:\n  status: optimal\n  recompute:\n  - mlp  # kept\n  # a line\n  - layernorm\n"
            "  dispatcher: 'hybridep'\n", PLAN,
            "expect:\n  status: optimal\n  recompute:\n  - mlp  # kept\n  - moe\n  # a line\n"
            "  dispatcher: deepep\n",
            id="list of lines",
        ),
        pytest.param(
            "expect:\n  status: optimal\n  recompute:\n    - layernorm\n", PLAN,
            "expect:\n  status: optimal\n  recompute:\n    - moe\n    - mlp\n",
            id="no word of a list stays",
        ),
        pytest.param(
            "expect:\n  status: optimal\n  recompute:\n    - mlp\n", replace(PLAN, recompute=()),
            "expect:\n  status: optimal\n  recompute: none\n",
            id="list becomes a word",
        ),
        pytest.param(
            "expect: {status: optimal, recompute: none}\n", PLAN,
            "expect: {status: optimal, recompute: [moe, mlp]}\n",
            id="word becomes a list",
        ),
        pytest.param(
            "expect: {status: optimal, recompute: [mlp]}\n", replace(PLAN, recompute=("full",)),
            "expect: {status: optimal, recompute: full}\n",
            id="full recompute",
        ),
        pytest.param(
            "expect:\n  layout:\n    tp: 2\n    ep: 8  #\n\n  # z\n  status: optimal  #", CONFLICT,
            "expect:\n\n  # z\n  status: infeasible  #\n  conflict: [heads-tp, memory-capacity]",
            id="infeasible now, in lines, without end of line",
        ),
        pytest.param(
            "expect: {layout: {tp: 2}, dispatcher: deepep, status: optimal, recompute: none}\n",
            CONFLICT,
            "expect: {status: infeasible, conflict: [heads-tp, memory-capacity]}\n",
            id="infeasible now, in braces",
        ),
        pytest.param(
            "expect:\n  status: infeasible\n  conflict: [gbs-divisible]\n# end\n", PLAN,
            "expect:\n  status: optimal\n# end\n",
            id="feasible now",
        ),
        pytest.param(
            "expect: {conflict: [gbs-divisible], status: infeasible}\n", CONFLICT,
            "expect: {conflict: [heads-tp, memory-capacity], status: infeasible}\n",
            id="other conflict",
        ),
        pytest.param(
            "expect: {status: feasible, layout: {tp: 1}}\n", PLAN,
            "expect: {status: feasible, layout: {tp: 2}}\n",
            id="feasible is met by optimal",
        ),
        pytest.param(
            "", PLAN,
            "expect:\n  status: optimal\n  layout: {tp: 2, cp: 1, pp: 4, ep: 8}\n",
            id="none so far",
        ),
        pytest.param(
            "# end", CONFLICT,
            "# end\nexpect:\n  status: infeasible\n  conflict: [heads-tp, memory-capacity]\n",
            id="none so far, infeasible",
        ),
        pytest.param(
            "expect:  # later\n", PLAN,
            "expect: {status: optimal, layout: {tp: 2, cp: 1, pp: 4, ep: 8}}  # later\n",
            id="empty",
        ),
        pytest.param(
            "expect: null\n", PLAN,
            "expect: {status: optimal, layout: {tp: 2, cp: 1, pp: 4, ep: 8}}\n",
            id="null",
        ),
    ],
)  # fmt: skip
def test_only_the_expectation_changes(tmp_path: Path, extra: str, answer: Answer, new: str) -> None:
    """Tests the text that comes out, character by character."""
    assert _new(tmp_path, extra, answer) == new


def test_line_ends_and_byte_order_mark_stay(tmp_path: Path) -> None:
    """Tests a file from Windows: each line ends as before, new ones as the others."""
    text = (SMALL + "expect:\n  status: optimal\n").replace("\n", "\r\n")
    case = _case(tmp_path, text, CONFLICT)
    case.file.write_bytes(b"\xef\xbb\xbf" + text.encode())
    change = update_of(case)
    assert change is not None
    assert change.content.startswith(b"\xef\xbb\xbfmeshplan: 1\r\n")
    assert change.content.endswith(
        b"status: infeasible\r\n  conflict: [heads-tp, memory-capacity]\r\n"
    )
    assert b"\n" not in change.content.replace(b"\r\n", b"")


def test_difference_is_a_unified_diff(tmp_path: Path) -> None:
    """Tests the lines that are shown, also for a file whose last line has no end."""
    change = _change(tmp_path, SMALL + "expect: {status: optimal, layout: {tp: 4}}", PLAN)
    name = str(tmp_path / "a.yaml")
    assert list(change.diff()) == [
        f"--- {name}", f"+++ {name}", "@@ -3,4 +3,4 @@",
        " model: toy-moe",
        " cluster: {preset: h100-hgx, gpus: 8}",
        " workload: {seq_len: 4096, global_batch_size: 32}",
        "-expect: {status: optimal, layout: {tp: 4}}", "\\ No newline at end of file",
        "+expect: {status: optimal, layout: {tp: 2}}", "\\ No newline at end of file",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        ("expect: {status: optimal, recompute: [mlp,  # x\n  moe_act]}\n", "comment .* line 6"),
        ("expect: {layout: {tp: &x 4}, status: optimal}\nlayout: {mbs: *x}\n", "in place"),
        ("layout: {mbs: &x 4}\nexpect: {layout: {tp: *x}, status: optimal}\n", "in place"),
        ("...\n", "in place"),
    ],
)  # fmt: skip
def test_what_would_be_lost_is_left_to_the_user(tmp_path: Path, extra: str, said: str) -> None:
    """Tests comments inside a value, values that stand elsewhere, and ended documents."""
    with pytest.raises(NoUpdate, match=said) as caught:
        update_of(_case(tmp_path, SMALL + extra, PLAN))
    assert "write by hand: " in str(caught.value)


def test_a_file_in_braces_is_left_to_the_user(tmp_path: Path) -> None:
    """Tests that no key is added behind the closing brace."""
    text = (
        "{meshplan: 1, name: a, model: toy-moe, cluster: {preset: h100-hgx, gpus: 8},\n"
        " workload: {seq_len: 4096, global_batch_size: 32}}\n"
    )
    with pytest.raises(NoUpdate, match="written in braces"):
        update_of(_case(tmp_path, text, PLAN))


def test_what_is_met_is_left_alone(tmp_path: Path) -> None:
    """Tests that a passing case needs no update, nor one without an answer."""
    assert update_of(_case(tmp_path, SMALL + "expect: {status: optimal}\n", PLAN)) is None
    assert update_of(Case(tmp_path / "a.yaml", "ERROR")) is None


def test_a_limit_is_no_expectation(tmp_path: Path) -> None:
    """Tests that what a limit left is never written down as right."""
    text = SMALL + "expect: {status: optimal}\n"
    with pytest.raises(NoUpdate, match="feasible is no answer to expect"):
        update_of(_case(tmp_path, text, replace(PLAN, status="feasible")))


def test_files_that_are_more_than_one_are_refused(tmp_path: Path) -> None:
    """Tests links of both kinds, read-only files, and one that changed in the meantime."""
    case = _case(tmp_path, SMALL, PLAN)
    case.file.chmod(0o444)
    with pytest.raises(NoUpdate, match="it is read-only"):
        update_of(case)
    case.file.chmod(0o644)
    (tmp_path / "link.yaml").symlink_to("a.yaml")
    with pytest.raises(NoUpdate, match=r"it is a link to a\.yaml"):
        update_of(replace(case, file=tmp_path / "link.yaml"))
    case.file.write_text(SMALL + "\n", "utf-8")
    with pytest.raises(NoUpdate, match="the file changed while it was solved"):
        update_of(case)
    os.link(case.file, tmp_path / "hard.yaml")
    with pytest.raises(NoUpdate, match="2 names"):
        update_of(case)


_layouts = st.fixed_dictionaries(
    {}, optional={name: st.sampled_from([1, 2, 4, 8]) for name in ("tp", "cp", "pp", "ep", "mbs")}
)


@st.composite
def _expectations(draw: st.DrawFn) -> list[tuple[str, object]]:
    """Keys and values of an expectation of a plan, in any order."""
    entries: dict[str, object] = {"status": "optimal"}
    if layout := draw(_layouts):
        entries["layout"] = layout
    if draw(st.booleans()):
        words = st.lists(st.sampled_from(["moe", "mlp", "layernorm"]), min_size=1, unique=True)
        entries["recompute"] = draw(words)
    if draw(st.booleans()):
        entries["dispatcher"] = draw(st.sampled_from(["alltoall", "deepep"]))
    return draw(st.permutations(list(entries.items())))


def _written(draw: st.DrawFn, value: object, indent: str) -> str:
    """A value of an expectation in one of the styles of YAML, comments where they may stand."""
    note = draw(st.sampled_from(["", "  # note"])) + "\n"
    if isinstance(value, list):
        if draw(st.booleans()):
            return f" [{', '.join(value)}]{note}"
        return note + "".join(f"{indent}- {word}{note}" for word in value)
    if isinstance(value, dict):
        if draw(st.booleans()):
            return f" {{{', '.join(f'{k}: {v}' for k, v in value.items())}}}{note}"
        return note + "".join(f"{indent}  {k}: {v}{note}" for k, v in value.items())
    return f" {value}{note}"


@st.composite
def _texts(draw: st.DrawFn) -> str:
    """A scenario with an expectation, written in any style, somewhere in the file."""
    entries = draw(_expectations())
    between = st.sampled_from(["", "\n", "  # between\n"])
    lines = [f"  {key}:{_written(draw, value, '  ')}{draw(between)}" for key, value in entries]
    block = "expect:\n" + "".join(lines)
    return block + SMALL if draw(st.booleans()) else SMALL + block


_answers = st.builds(
    lambda layout, recompute, dispatcher: replace(
        PLAN, layout={**PLAN.layout, **layout}, recompute=tuple(recompute), dispatcher=dispatcher
    ),
    _layouts,
    st.lists(st.sampled_from(["moe", "mlp", "layernorm"]), unique=True),
    st.sampled_from(["alltoall", "deepep"]),
)


@given(text=_texts(), answer=st.one_of(_answers, st.just(CONFLICT)))
def test_any_style_can_be_rewritten(
    tmp_path_factory: pytest.TempPathFactory, text: str, answer: Answer
) -> None:
    """Tests that what comes out is met, that comments of what stays stay, and nothing else moves.

    ``update_of`` itself holds the rest of the scenario to be the same.
    """
    case = _case(tmp_path_factory.mktemp("any"), text, answer)
    change = update_of(case)
    if change is None:
        assert case.outcome == "pass"
        return
    expect = loads(change.new).expect
    assert expect is not None and mismatches(expect, answer) == ()
    assert change.new.count("# between") == text.count("# between") or answer is CONFLICT
    old = loads(text).expect
    assert expectation(old, answer) == expectation(expect, answer), "in as much detail as before"
    untouched = [line for line in text.splitlines() if re.match(r"\S", line)]
    assert [line for line in change.new.splitlines() if re.match(r"\S", line)] == untouched


# -- the command --------------------------------------------------------------------------------


def _update(*arguments: str) -> Result:
    return CliRunner().invoke(application, ["test", "--jobs", "1", "--update", *arguments])


@pytest.fixture
def always_planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every search gives the same proved plan: tp = 2, ep = 2 on 8 GPUs."""
    answer = plan(small_file(tmp_path))
    (tmp_path / "small.yaml").unlink()
    monkeypatch.setattr(meshplan, "solve", lambda *_, **__: answer)


@pytest.mark.usefixtures("always_planned")
def test_update_shows_and_writes(tmp_path: Path) -> None:
    """Tests that the difference is shown, and written where one is needed alone."""
    good = Path(small_file(tmp_path, "expect: {status: optimal}\n", "good.yaml"))
    wrong = Path(small_file(tmp_path, "expect: {status: optimal, layout: {tp: 4}}\n", "wrong.yaml"))
    os.utime(good, ns=(1, 1))
    wrong.chmod(0o640)
    run = _update(str(tmp_path))
    assert run.exit_code == 0, run.output
    assert "-expect: {status: optimal, layout: {tp: 4}}" in run.output.splitlines()
    assert "+expect: {status: optimal, layout: {tp: 2}}" in run.output.splitlines()
    assert "1 passed, 0 failed, 0 without expectation, 1 updated, in " in run.output
    assert good.stat().st_mtime_ns == 1, "never touched"
    assert wrong.stat().st_mode & 0o777 == 0o640
    assert sorted(one.name for one in tmp_path.iterdir()) == ["good.yaml", "wrong.yaml"]
    again = _update(str(tmp_path))
    assert again.exit_code == 0 and "2 passed" in again.output and "+++" not in again.output


@pytest.mark.usefixtures("always_planned")
def test_a_file_that_cannot_be_updated_fails_alone(tmp_path: Path) -> None:
    """Tests that a protected file stays as it is and fails, and the others are updated."""
    kept = Path(small_file(tmp_path, "expect: {status: infeasible}\n", "a.yaml"))
    kept.chmod(0o444)
    small_file(tmp_path, "expect: {status: infeasible}\n", "b.yaml")
    run = _update(str(tmp_path))
    assert run.exit_code == 1
    assert "      | not updated: it is read-only" in run.output.splitlines()
    assert "0 passed, 1 failed, 0 without expectation, 1 updated" in run.output
    assert kept.read_text("utf-8").endswith("expect: {status: infeasible}\n")


@pytest.mark.parametrize(("make", "said"), [(infeasible, "infeasible"), (unknown, "unknown")])
def test_update_follows_the_kind_of_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: object, said: str
) -> None:
    """Tests that a proof of infeasibility is written down, and a limit is not."""
    assert callable(make)
    file = small_file(tmp_path, "expect: {status: optimal}\n")
    answer = make(file)
    monkeypatch.setattr(meshplan, "solve", lambda *_, **__: answer)
    run = _update(file)
    assert run.exit_code == (0 if said == "infeasible" else 1)
    assert ("status: infeasible" in Path(file).read_text("utf-8")) == (said == "infeasible")
