from __future__ import annotations

import json

from meshplan.constraints.pipeline import balanced_slots, even_slots, even_splits, parse_layout
from meshplan.scenarios import from_mapping
from meshplan.solver.check import check
from meshplan.solver.even import even_split
from meshplan.solver.judge import cost
from meshplan.solver.results import CheckReport


def _report(layers: int, layout: str) -> CheckReport:
    """A dense toy of so many layers on 8 H100s, with all options stated."""
    data = {
        "meshplan": 1,
        "name": "even",
        "model": {"card": "toy-dense", "layers": layers},
        "cluster": {"preset": "h100-hgx", "gpus": 8},
        "workload": {"seq_len": 4096, "global_batch_size": 8},
    }
    return check(from_mapping(data), f"tp=2,recompute=none,offload=0,{layout}")


def _counts(layers: int, pp: int, vpp: int) -> list[list[int]]:
    return [[slot.count for slot in slots] for slots in even_splits(layers, pp, vpp)]


def test_splits_of_the_framework() -> None:
    """Tests the four ways to count the ends: 8/2, (8+2)/2 - 1 at both ends, (7+1)/2 - 1 at one."""
    assert _counts(8, 2, 1) == [[4, 4], [4, 4]]
    assert _counts(7, 2, 1) == [[3, 4], [4, 3]], "embedding or loss counted as a layer"
    assert _counts(6, 2, 2) == [[1, 2, 2, 1]], "both"
    assert _counts(5, 2, 2) == []
    assert even_slots(5, 2, 2) is None


def test_it_costs_what_the_checker_says() -> None:
    """Tests 5 + 3 layers beside 4 + 4: the same decisions, one layer less at the bottleneck."""
    report = _report(8, "pp=2,pipeline=Et*5|t*3L")
    even = even_split(report.problem, report.layout)
    assert even is not None and even.exact and report.cost is not None
    assert even.layout.slots == parse_layout("Et*4|t*4L")
    assert even.cost == cost(report.problem, even.layout)
    assert even.cost.time.step_us < report.cost.time.step_us


def test_the_better_of_two_even_splits_is_taken() -> None:
    """Tests 7 layers over 2 ranks: the loss is the heavier end, so it counts as the layer."""
    report = _report(7, "pp=2")
    assert [slot.count for slot in report.layout.slots] == [3, 4], "the framework's first"
    even = even_split(report.problem, report.layout)
    assert even is not None and report.cost is not None
    assert [slot.count for slot in even.layout.slots] == [4, 3]
    assert even.cost.time.step_us < report.cost.time.step_us


def test_the_nearest_stands_in_where_none_exists() -> None:
    """Tests 5 layers over 2 x 2 slots: 5, 6 and 7 are no multiples of 4."""
    report = _report(5, "pp=2,vpp=2")
    even = even_split(report.problem, report.layout)
    assert even is not None and not even.exact
    assert even.layout.slots == balanced_slots(report.problem, 2, 2)


def test_results_have_it_beside_the_split() -> None:
    """Tests the key ``pipeline.even`` and the line of the report, 4 + 4 beside 5 + 3."""
    report = _report(8, "pp=2,pipeline=Et*5|t*3L")
    even = even_split(report.problem, report.layout)
    assert even is not None
    data = json.loads(json.dumps(report.to_json()))
    assert data["pipeline"]["even"] == {
        "layout": "Et*4|t*4L",
        "exact": True,
        "step_s": even.cost.time.step_us / 1e6,
        "peak_gib": round(even.cost.peak / 4096, 3),
        "verdict": "fits",
    }
    faster = 1 - data["pipeline"]["even"]["step_s"] / data["time"]["step_s"]
    assert f" (-{faster:.1%}), " in _even_line(report)
    assert _even_line(report).endswith(" GiB (would fit)")


def test_a_split_that_is_even_says_so() -> None:
    """Tests the line of the report for 4 + 4, for the nearest to even, and without a pipeline."""
    assert _even_line(_report(8, "pp=2")).endswith(" this is one")
    assert _even_line(_report(5, "pp=2,vpp=2")).endswith("none exists; this is the nearest")
    # Slots for five layers, embedding and loss: 7 of 8.
    report = _report(5, "pp=2,vpp=4")
    assert _even_line(report).endswith("none exists; 1 of 8 slots hold nothing")
    assert any("5 layers on 8 slots, 1 of which hold nothing" in t for t in report.assumed)
    alone = _report(8, "pp=1")
    assert _even_line(alone) == ""
    assert alone.to_json()["pipeline"]["even"] is None


def _even_line(report: CheckReport) -> str:
    lines = (line.strip("│ ") for line in str(report).splitlines())
    return next((line for line in lines if line.startswith("even split")), "")
