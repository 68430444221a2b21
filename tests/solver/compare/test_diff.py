from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from meshplan.constraints.resolve import resolve
from meshplan.scenarios import Scenario, from_mapping, load, self_contained
from meshplan.solver.check import check
from meshplan.solver.compare.diff import diff
from meshplan.solver.compare.stored import stored
from meshplan.solver.report.data import dumps
from meshplan.solver.results import Plan
from meshplan.solver.solve import solve
from tests.solver.small import draw, toy_scenario

SCENARIOS = sorted(
    path
    for folder in ("seed", "reports")
    for path in (Path(__file__).parents[3] / "scenarios" / folder).glob("*.yaml")
)


def _scenario(**sections: Any) -> Scenario:
    return toy_scenario(32, **{"name": "diff", **sections})


def test_shipped_scenarios_survive_as_plain_data() -> None:
    """Tests that every shipped scenario, written out and read again, asks the same."""
    assert len(SCENARIOS) > 50
    for path in SCENARIOS:
        scenario = load(path).model_copy(update={"expect": None})
        assert from_mapping(self_contained(scenario)) == scenario, path.name


def test_named_files_are_found_from_anywhere(tmp_path: Path) -> None:
    """Tests that a calibration named from the scenario's folder is named by its whole path."""
    text = (
        "meshplan: 1\nname: a\nmodel: toy-moe\ncluster: {preset: h100-hgx, gpus: 8}\n"
        "workload: {seq_len: 4096, global_batch_size: 32}\ncalibration: mine.yaml\n"
    )
    (tmp_path / "a.yaml").write_text(text, "utf-8")
    data = self_contained(load(tmp_path / "a.yaml"))
    assert data["calibration"] == str((tmp_path / "mine.yaml").resolve())


def test_written_plans_are_read_back(tmp_path: Path) -> None:
    """Tests random plans through JSON and back: the same layout, slot by slot, the same cost."""
    found = 0
    for seed in range(20):
        plan = solve(resolve(from_mapping(draw(seed))))
        if not isinstance(plan, Plan):
            continue
        found += 1
        path = tmp_path / f"{seed}.json"
        path.write_text(dumps(plan.to_json()), "utf-8")
        again = stored(path)
        assert again.report.layout == plan.layout
        assert again.report.cost == plan.cost
        assert again.written_s == plan.cost.time.step_us / 1e6
    assert found >= 5, "for the others nothing fits"


def test_what_differs_between_two_layouts() -> None:
    """Tests tp = 2 against tp = 1 on 8 GPUs: dp and ga follow, so one flip makes the other."""
    first, second = (check(_scenario(), f"tp={tp},etp=1,ep=2,recompute=none") for tp in (2, 1))
    report = diff(first, second)
    own = [one.decision for one in report.differences if not one.follows]
    assert own == ["tp"] and {one.decision for one in report.differences} == {"tp", "dp", "ga"}
    (flip,) = report.flips
    assert flip.report.layout == second.layout
    assert report.times is not None and flip.report.cost is not None and second.cost is not None
    assert flip.report.cost.time == second.cost.time
    assert report.times.difference_us == report.times.first_us - second.cost.time.step_us


def test_scenarios_that_differ_are_told_and_scaled() -> None:
    """Tests twice the tokens: the field is named, and the shorter step counts twice."""
    long = _scenario(workload={"seq_len": 8192, "global_batch_size": 32})
    report = diff(check(long, "tp=2,ep=2"), check(_scenario(), "tp=2,ep=2"))
    assert [(one.path, one.first, one.second) for one in report.fields] == [
        ("workload.seq_len", 8192, 4096)
    ]
    assert report.times is not None and report.times.scale == 2


def test_a_mesh_that_is_not_the_clusters_has_no_time_to_compare() -> None:
    """Tests that a layout of 16 GPUs on 8 is compared by its decisions alone."""
    report = diff(check(_scenario(), "tp=16,ep=2"), check(_scenario(), "tp=2,ep=2"))
    assert report.times is None and report.to_json()["comparison"] is None
    assert "cannot be compared" in str(report)


@pytest.mark.parametrize(
    "layout", ["tp=1,cp=32,ep=32,pp=8,vpp=4", "tp=8,cp=4,ep=32,recompute=full,offload=50"]
)
def test_checked_layouts_are_read_back(layout: str, tmp_path: Path) -> None:
    """Tests judged layouts through JSON, with a pipeline, full recompute and part offload."""
    scenario = load(next(path for path in SCENARIOS if path.name == "dsv3-h100-128k.yaml"))
    report = check(scenario, layout)
    path = tmp_path / "b.json"
    path.write_text(dumps(report.to_json()), "utf-8")
    assert stored(path).report.layout == report.layout
