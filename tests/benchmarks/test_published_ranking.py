"""Where published layouts stand: scenarios left open, counts against all choices, exit codes."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from benchmarks import published_ranking, ranking
from benchmarks.compared_layouts import compared, lines
from benchmarks.memory_words import Unusable
from benchmarks.published_ranking import FILES, main, tasks
from benchmarks.ranking import CHOICE, Opened, Standing, open_scenario, standing
from benchmarks.ranking_report import as_json, line, report
from benchmarks.throughput_rows import Measured, read_measured
from benchmarks.throughput_scenario import Case, case_of

#: 8 GPUs, 291 choices: solved within a second or two.
SMALL = "ar-moonlight_16b_a3b-h100-8-empty"


@cache
def shipped() -> dict[str, Measured]:
    """All rows of the shipped file, by name."""
    return {one.run.id: one for one in read_measured(FILES[0])}


@cache
def small() -> Case:
    """The small case."""
    return case_of(shipped()[SMALL])


@cache
def opened() -> Opened:
    """Its scenario, searched."""
    return ranking._opened(repr(open_scenario(small())), None)


@cache
def judged() -> Standing:
    """Where its layout stands."""
    return standing([small()])


def test_only_the_layout_is_left_open() -> None:
    """Tests that dispatcher, graphs, batch and training stay, and degrees and limits go."""
    found = open_scenario(case_of(shipped()["ps-26.06-deepseek_v3-gb300-mxfp8-256"]))
    assert found["layout"] == {} and "limits" not in found
    assert found["options"]["dispatcher"] == "hybridep"
    assert found["options"]["cuda_graphs"] == "full_iteration"
    assert found["options"]["recompute"] == found["options"]["pipeline_layout"] == "auto"
    assert found["workload"]["global_batch_size"] == 4096
    assert found["training"]["fused_grouped_mlp"] is True


def exact_steps(most: int) -> dict[tuple[int, ...], int]:
    """Fastest step within ``most`` of each choice but the published one, by its own programs."""
    own = tuple(getattr(small().layout, name) for name in CHOICE)
    steps = {
        choice: opened().fastest_of(choice, most) for choice in opened().choices if choice != own
    }
    return {choice: step for choice, step in steps.items() if step is not None}


def test_the_rank_counts_each_choice_by_its_best_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests the count against the exact best of every choice, and its bounds with few programs."""
    step = round(judged().step_s * 1e6)
    own = tuple(getattr(small().layout, name) for name in CHOICE)
    faster = sum(found < step for found in exact_steps(step - 1).values())
    assert faster > 3
    monkeypatch.setattr(ranking, "PROGRAMS", 10_000)
    monkeypatch.setattr(ranking, "REFINED", 10_000)
    assert opened().count_faster(step, own) == (faster, 0)
    monkeypatch.setattr(ranking, "PROGRAMS", 3)
    proved, maybe = opened().count_faster(step, own)
    assert proved <= faster <= proved + maybe
    monkeypatch.setattr(ranking, "REFINED", 5)
    proved, maybe = opened().count_faster(step, own)
    assert proved <= faster <= proved + maybe


def test_the_optimum_is_the_best_of_all_choices() -> None:
    """Tests that no choice has a plan below the optimum, and that one has just that."""
    best = opened().best.step
    own = tuple(getattr(small().layout, name) for name in CHOICE)
    found = [*exact_steps(best).values(), opened().fastest_of(own, best)]
    assert {one for one in found if one is not None} == {best}


def test_a_standing_adds_up() -> None:
    """Tests loss, rank, parts and what differs."""
    one = judged()
    assert one.loss == pytest.approx(100 * (1 - one.best_step_s / one.step_s))
    assert one.rank == (one.faster + 1, one.faster + one.maybe_faster + 1)
    assert one.rank[1] <= one.choices == len(opened().choices)
    assert sum(one.parts.values()) == pytest.approx(one.step_s)
    assert sum(one.best_parts.values()) == pytest.approx(one.best_step_s)
    assert one.verdict == "fits" and not one.broken and not one.refutes_the_proof
    assert one.own_best_step_s is not None
    assert one.best_step_s <= one.own_best_step_s <= one.step_s
    assert one.measured == pytest.approx(small().tflops)


def test_only_a_layout_that_may_run_refutes_a_proof() -> None:
    """Tests that a layout that does not fit, or breaks a rule, may well be faster."""
    fast = replace(judged(), step_s=judged().best_step_s / 2)
    assert fast.refutes_the_proof
    assert not replace(fast, verdict="overfull").refutes_the_proof
    assert not replace(fast, broken=("seq-2cp",)).refutes_the_proof


def test_a_search_that_takes_too_long_is_told() -> None:
    """Tests the limit, which leaves a row out and does not end the run."""
    with pytest.raises(Unusable, match="stopped after 0 s"):
        standing([small()], 0.0)


def test_rows_of_one_layout_are_one() -> None:
    """Tests grouping by scenario and layout, and reasons for what is left out."""
    found, left_out = tasks(shipped().values())
    names = [{row.run.id for row in rows} for task in found for rows in task]
    releases = {f"ps-26.0{n}-deepseek_v3-gb300-mxfp8-256" for n in (6, 8)}
    assert any(releases <= some for some in names)
    moonlight = [task for task in found if any(r.run.id == SMALL for rows in task for r in rows)]
    assert len(moonlight) == 1 and len(moonlight[0]) > 3  # one scenario, several recomputes
    reasons = dict(left_out)
    assert reasons["ps-26.06.01-gpt_oss_120b-gb300-mxfp8-64"].endswith(
        "regression of the container"
    )
    assert reasons["lc-qwen3_next_80b_a3b-gb200-seq8192"] == "tp not stated"
    assert any(reason == "no experts" for reason in reasons.values())


def test_the_report_shows_ranks_marks_and_parts() -> None:
    """Tests the table, the largest losses by scenario, and the sums."""
    one = replace(judged(), ids=("a", "b"), faster=4, maybe_faster=5, doubt="guess")
    other = replace(one, ids=("c",), step_s=one.best_step_s, verdict="overfull")
    text = report([other, one], [("x", "why"), ("y", "why")])
    assert "a and 1 more" in text and " 5-10 of " in text
    assert text.index("a and 1 more") < text.index("\nc ")
    assert "?!" in line(other)
    assert "the 1 largest losses" in text
    assert "2 published layouts, all: loss median" in text and "1 within 2 %" in text
    assert "    2 why: x, y" in text
    data = json.loads(as_json([other, one], [("x", "why")]))
    assert [row["ids"] for row in data["layouts"]] == [["a", "b"], ["c"]]
    assert data["layouts"][0]["rank"] == [5, 10]
    assert data["left_out"] == [{"id": "x", "reason": "why"}]


def test_exit_codes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests 0 with JSON, 2 for nothing to rank and bad files, 1 for a proof refuted."""
    path = tmp_path / "out.json"
    arguments = ["--workers", "1", "--only", SMALL, "--json"]
    assert main([*arguments, str(path)]) == 0
    assert json.loads(path.read_text())["layouts"][0]["ids"] == [SMALL]
    shown = capsys.readouterr()
    assert "[1/1, " in shown.err and SMALL in shown.out
    missing = tmp_path / "missing.json"
    assert main(["--only", "no such row", "--json", str(missing)]) == 2
    assert main([str(tmp_path / "none.csv")]) == 2
    assert not missing.exists()
    fast = replace(judged(), step_s=judged().best_step_s / 2)

    def refuted(*_: Any) -> list[Standing]:
        return [fast]

    monkeypatch.setattr(published_ranking, "judge", refuted)
    assert main([*arguments, "-"]) == 1
    assert "faster than the optimum" in capsys.readouterr().err


def test_the_measured_best_of_three_is_not_last() -> None:
    """Tests the table beside another estimator, which puts it last, and the errors shown."""
    best, *others = compared()
    assert [one.measured for one in (best, *others)] == [245, 200, 167]
    assert best.predicted > min(one.predicted for one in others)
    assert best.error == pytest.approx(100 * (best.predicted / 245 - 1))
    assert max(abs(one.error) for one in compared()) < 20
    assert any("number 3 (as recorded; not run here)" in text for text in lines())
