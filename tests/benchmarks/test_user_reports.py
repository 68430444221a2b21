from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks import user_reports
from benchmarks.report_cases import OutOfScope, Report

DATA: dict[str, Any] = yaml.safe_load(user_reports.DATA.read_text("utf-8"))
MEMORY: dict[str, float] = DATA["meta"]["gpu_mem_gb"]
#: Reports that are judged wrongly.
KNOWN: set[str] = set()


def case(**parts: Any) -> dict[str, Any]:
    """A report on 8 H100s; ``parts`` are added or replaced."""
    return {
        "id": "X",
        "source": {"repo": "a/b", "ref": "issue 1"},
        "complete": "full",
        "model": {"name": "any", "layers": 32},
        "cluster": {"gpu": "H100", "count": 8, "gpus_per_node": 8},
        "layout": {"tp": 1},
        "expect": {"verdict": "feasible", "rules": ["R01"]},
    } | parts


def test_public_reports_get_their_verdict() -> None:
    """Tests that each report in scope gets the right verdict with the right rule."""
    rows = user_reports.judge_file(user_reports.DATA)
    assert {row.id for row in rows if row.agree is False} <= KNOWN
    assert len(rows) == len(DATA["cases"])
    assert sum(row.agree is not None for row in rows) >= 60


def test_reasons_are_given_for_what_is_left_out() -> None:
    """Tests that no report is passed over in silence."""
    for row in user_reports.judge_file(user_reports.DATA):
        if row.agree is None:
            assert row.note.startswith("out of scope: ") and len(row.note) > 20


def test_an_infeasible_verdict_needs_the_right_rule() -> None:
    """Tests TP3 on 8 GPUs: the mesh rule agrees with R01, not with R03."""
    wrong = {"verdict": "infeasible", "rules": ["R03"]}
    right = {"verdict": "infeasible", "rules": ["R01"]}
    layout = {"tp": 3}
    assert user_reports.judge(case(layout=layout, expect=right), MEMORY).agree
    assert user_reports.judge(case(layout=layout, expect=wrong), MEMORY).agree is False


@pytest.mark.parametrize(
    ("layout", "string"),
    [
        ({"pp": 4, "first": 7}, "Et*7|t*8|t*8|t*8L"),
        ({"pp": 2, "first": 11, "last": 13}, "Et*11|t*13L"),
        ({"pp": 4, "split": [1, 2, 2, 3]}, "Et*1|t*2|t*2|t*3L"),
        ({"pp": 2, "pp_layout": "Et|tL"}, "Et|tL"),
        ({"pp": 2}, None),
    ],
)
def test_splits_become_layout_strings(layout: dict[str, Any], string: str | None) -> None:
    """Tests the ways to split layers; what the first stage leaves is shared: (31 - 7)/3 = 8."""
    report = Report(case(model={"name": "any", "layers": 31}, layout=layout), MEMORY)
    assert report.string == string


def test_unset_expert_tensor_parallelism_is_the_frameworks() -> None:
    """Tests that etp: unset is TP for Megatron-LM, 1 for Bridge, and 1 where nothing is said."""
    layout, unset = {"tp": 4, "ep": 2}, {"etp": "unset"}
    bridge = {"repo": "NVIDIA-NeMo/Megatron-Bridge"}
    assert Report(case(layout=layout, other=unset), MEMORY).degrees["etp"] == 4
    assert Report(case(layout=layout, other=unset, source=bridge), MEMORY).degrees["etp"] == 1
    assert Report(case(layout=layout), MEMORY).degrees["etp"] == 1


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({"layout": {"dp": 8, "zero_stage": 3}}, "fully sharded"),
        ({"cluster": {"gpu": "H100"}}, "number of GPUs"),
        ({"layout": {"ep": [8, 32]}}, "not one layout"),
        ({"expect": {"verdict": "warn", "rules": ["R18"]}}, "host memory"),
        ({"out_of_scope": "a reason of its own"}, "a reason of its own"),
    ],
)
def test_out_of_scope(parts: dict[str, Any], reason: str) -> None:
    """Tests reports that are no question about one layout."""
    with pytest.raises(OutOfScope, match=reason):
        Report(case(**parts), MEMORY)


def test_scenarios_are_shipped_for_all_kinds_of_rule() -> None:
    """Tests that the scenario files from reports cover each rule of legality that reports break."""
    folder = Path(user_reports.ROOT) / "scenarios" / "reports"
    written = [yaml.safe_load(file.read_text("utf-8")) for file in sorted(folder.glob("*.yaml"))]
    broken = {rule for one in written for rule in one["expect"].get("conflict", ())}
    for kind in (
        "R01",
        "R02",
        "R03",
        "R04",
        "R05",
        "R06",
        "R07",
        "R08",
        "R09",
        "R10",
        "R11",
        "R23",
    ):
        pattern = user_reports.RULES[kind]
        assert any(re.fullmatch(pattern, rule) for rule in broken), kind
