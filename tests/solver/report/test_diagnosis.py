from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from meshplan.solver.check import check
from meshplan.solver.diagnosis.result import Diagnosis
from meshplan.solver.repairs import Change, NoHelp, Repair
from meshplan.solver.report.diagnosis_schema import DiagnosisForm
from meshplan.solver.results import Conflict, Plan, Proof
from tests.solver.small import toy_scenario


def _plan() -> Plan:
    judged = check(toy_scenario(32), "tp=2,ep=4")
    assert judged.cost is not None
    step_s = judged.cost.time.step_us / 1e6
    return Plan(
        judged.problem, "optimal", judged.layout, judged.cost, Proof(step_s, step_s, 0.0, 1.0)
    )


def _diagnosis(**changes: Any) -> Diagnosis:
    """A diagnosis made by hand, with all that one can have."""
    gpus = Change("cluster.gpus", 4, 8, "cluster.gpus: 8 instead of 4")
    ep = Change("layout.ep", 2, None, "layout.ep: free instead of 2")
    found = Diagnosis(
        _plan().problem,
        "infeasible",
        "Whatever the degrees, no layout fits.",
        1.0,
        facts={"cluster.gpus": 4, "usable_gib": 72.8},
        conflicts=(
            Conflict(("memory-capacity",), ("layout.ep = 2",), "It is too much.", minimal=True),
            Conflict(("heads-tp",), ("layout.tp = 3",), "8 heads, tp = 3.", minimal=False),
        ),
        repairs=(
            Repair("gpus", (gpus,), verified=True, plan=_plan()),
            Repair("gpus+layout.ep", (gpus, ep), verified=False, plan=None),
        ),
        no_help=(NoHelp("seq_len", "the experts alone hold 516 GiB a GPU"),),
        cut_short=("repairs",),
    )
    return dataclasses.replace(found, **changes)


def _flat(text: str) -> str:
    return " ".join(text.replace("│", " ").split())


def test_the_report_has_every_part() -> None:
    """Tests the words of conflicts, repairs with their plan, levers without effect, and limits."""
    text = _flat(str(_diagnosis()))
    for words in (
        "Nothing fits: it is proved",
        "Why Whatever the degrees, no layout fits.",
        "What clashes layout.ep = 2 + the memory of a GPU layout.tp = 3 +",
        "layout.tp = 3 + rule heads-tp 8 heads, tp = 3. (Not proved minimal",
        "Take away any one member",
        "There may be others.",
        "cluster.gpus: 8 instead of 4",
        "tokens/s per GPU, dp 4,",
        "cluster.gpus: 8 instead of 4; layout.ep: free instead of 2 (not verified: the time was",
        "seq_len the experts alone hold 516 GiB a GPU",
        "Cut short by the limit not all repairs were tried",
    ):
        assert words in text


def test_json_of_repairs() -> None:
    """Tests a single change with its field and values, and a pair, which has none of its own."""
    data = _diagnosis().to_json()
    DiagnosisForm.model_validate(data)
    single, pair = data["repairs"]
    assert (single["path"], single["from"], single["to"]) == ("cluster.gpus", 4, 8)
    assert single["verified"] is True
    assert single["result"]["layout"]["dp"] == 4
    assert single["result"]["status"] == "optimal"
    assert (pair["path"], pair["from"], pair["to"], pair["result"]) == (None, None, None, None)
    assert [one["path"] for one in pair["changes"]] == ["cluster.gpus", "layout.ep"]


def test_markdown_has_every_part_and_no_stray_markup() -> None:
    """Tests that names with underscores and pipes stay text."""
    text = _diagnosis().to_markdown()
    assert text.startswith("### small: Nothing fits")
    assert "1. `layout.ep = 2 + the memory of a GPU`\n2. `layout.tp = 3 + rule" in text
    assert "   8 heads, tp = 3. (Not proved minimal" in text
    assert "| cluster.gpus: 8 instead of 4 | yes | " in text
    assert "- seq_len: the experts alone hold 516 GiB a GPU" in text
    assert "<details><summary>Assumed</summary>" in text
    assert text.endswith("</details>\n")


@pytest.mark.parametrize(
    ("complete", "count", "words"),
    [
        (True, 1, "There is no other conflict."),
        (True, 2, "There are no others; each of them has to be resolved."),
        (False, 2, "There may be others."),
        (True, 6, "2 more are in the JSON."),
    ],
)
def test_how_far_the_conflicts_go(complete: bool, count: int, words: str) -> None:
    """Tests what is said of conflicts that are not shown, or not known."""
    one = Conflict(("heads-tp",), ("layout.tp = 3",), "8 heads, tp = 3.", minimal=True)
    found = _diagnosis(conflicts=(one,) * count, complete=complete)
    assert words in _flat(str(found))


def test_repairs_of_a_layout_say_what_is_kept() -> None:
    """Tests that a change to a given layout is told as what of it stays."""
    ep = Change("layout.ep", 2, 4, "layout.ep: 4 instead of 2")
    free = Change("layout", {"ep": 2}, None, "layout: all degrees left to the search")
    found = _diagnosis(
        stated=("layout.ep",),
        repairs=(
            Repair("layout.ep", (ep,), verified=True, plan=_plan()),
            Repair("layout", (free,), verified=True, plan=_plan()),
        ),
    )
    text = _flat(str(found))
    assert "keep all but ep: layout.ep: 4 instead of 2" in text
    assert "layout: all degrees left" in text and "but layout:" not in text


def test_levers_without_effect_are_grouped() -> None:
    """Tests that levers of one reason stand together, and the cause is not said again."""
    found = _diagnosis(
        no_help=(
            NoHelp("hbm", "Whatever the degrees, no layout fits."),
            NoHelp("gpus", "Whatever the degrees, no layout fits."),
            NoHelp("layout.ep", "too few"),
        )
    )
    text = _flat(str(found))
    assert "hbm and gpus what clashes stays as it is layout.ep too few" in text
    assert (
        "- hbm and gpus: what clashes stays as it is\n- layout.ep: too few" in found.to_markdown()
    )


def test_notebooks_get_html() -> None:
    """Tests the HTML of a notebook."""
    found = _diagnosis()
    assert "Nothing fits" in found._repr_html_()
