from __future__ import annotations

from pathlib import Path

from meshplan.scenarios import load
from meshplan.solver.binding import binding
from meshplan.solver.check import check
from tests.meshplan.results import ROOT, small_file


def test_a_published_layout_is_held_by_its_work_and_links() -> None:
    """Tests DeepSeek-V3 at 128K: attention is most, EP and CP of 32 span 4 nodes of 8."""
    scenario = load(ROOT / "scenarios" / "seed" / "dsv3-h100-128k.yaml")
    report = check(scenario, "tp=1,cp=32,ep=32,pp=8,vpp=4")
    assert report.cost is not None
    lines = binding(report.problem, report.layout, report.cost)
    assert [line.partition(":")[0] for line in lines] == [
        "work", "pipeline", "expert dispatch", "context parallel exchange", "data parallelism",
    ]  # fmt: skip
    assert lines[0].startswith("work: most time goes to attention core, ")
    assert lines[2].endswith(
        "EP groups of 32 span 4 NVLink domains, over the network at 50 GB/s a GPU"
    )


def test_groups_in_one_domain_are_told_so(tmp_path: Path) -> None:
    """Tests a toy on one node: its EP groups stay on NVLink; DP is left, and memory is ample."""
    scenario = load(small_file(tmp_path))
    report = check(scenario, "tp=1,ep=4,mbs=4")
    assert report.cost is not None
    lines = binding(report.problem, report.layout, report.cost)
    assert any("EP groups of 4 stay in one NVLink domain, at 450 GB/s" in line for line in lines)
    assert not any(line.startswith(("memory", "pipeline", "data parallelism")) for line in lines)
