"""Where ranks lie: every rank on one GPU, groups in their domains, files that say the same."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import meshplan
from meshplan.constraints.groups import rank_groups
from meshplan.constraints.parts import on_part, part_for
from meshplan.constraints.problem import Problem
from meshplan.constraints.resolve import resolve
from meshplan.scenarios import InputError, from_mapping
from meshplan.solver.check import check
from meshplan.solver.placement.groups import group_strides
from meshplan.solver.placement.place import Placement, place
from meshplan.solver.placement.report import PlacementReport


def _scenario(domains: list[int], preset: str = "gb200-nvl72", **more: Any) -> Any:
    data = {
        "meshplan": 1,
        "name": "racks",
        "model": "toy-moe",
        "cluster": {"preset": preset, "domains": domains, "use": "best"},
        "workload": {"seq_len": 4096, "global_batch_size": 48},
    }
    return from_mapping({**data, **more})


def _placed(domains: list[int], layout: str) -> Placement:
    report = check(_scenario(domains), layout)
    assert not report.violations
    return place(report.problem, report.layout)


@st.composite
def placements(draw: st.DrawFn) -> Placement:
    """A legal layout on some of the GPUs of up to 6 racks."""
    trays = draw(st.lists(st.integers(1, 18), min_size=1, max_size=6))
    problem: Problem = resolve(_scenario([4 * one for one in trays]))
    degrees = {
        "pp": draw(st.sampled_from([1, 2, 4])),
        "ep": draw(st.sampled_from([1, 2, 4])),
        "dp": draw(st.sampled_from([1, 2, 3, 4, 6, 8, 12, 16, 24])),
        "tp": draw(st.sampled_from([1, 2, 4])),
    }
    part = part_for(problem, degrees)
    gpus = degrees["pp"] * degrees["dp"] * degrees["tp"]
    if part is None or gpus % (degrees["ep"] * degrees["pp"]):
        degrees, part = {"dp": 1}, part_for(problem, {"dp": 1})
    assert part is not None
    report = check(_scenario([4 * one for one in trays]), degrees)
    return place(on_part(problem, part), report.layout)


@settings(max_examples=40)
@given(placements())
def test_every_rank_has_a_gpu_of_its_own(placed: Placement) -> None:
    """Tests that the map is a bijection onto GPUs that the domains have."""
    spots = [placed.spot(rank) for rank in range(placed.layout.gpus)]
    per_node = placed.problem.node_type.gpus_per_node
    gpus = {(one.domain.index, one.node * per_node + one.gpu) for one in spots}
    assert len(gpus) == placed.layout.gpus
    assert all(one.gpu < per_node for one in spots)
    whole = placed.problem.whole
    assert whole is not None
    for domain in placed.domains:
        assert whole.domains[domain.index] == domain.gpus
        assert sum(1 for index, _ in gpus if index == domain.index) == domain.used <= domain.gpus
        assert {place for index, place in gpus if index == domain.index} == set(range(domain.used))
    assert sum(one.used for one in placed.domains) == placed.layout.gpus
    with pytest.raises(IndexError):
        placed.spot(placed.layout.gpus)


@settings(max_examples=40)
@given(placements())
def test_groups_that_fit_a_domain_lie_in_one(placed: Placement) -> None:
    """Tests TP and EP groups rank by rank, wherever the rules hold for the layout."""
    report = check_again(placed)
    groups = rank_groups(placed.layout)
    for kind, rule in (("tp", "tp-within-domain"), ("ep", "ep-within-domain")):
        if rule in report:
            continue
        for group in groups.kind(kind):
            assert len({placed.spot(rank).domain.index for rank in group}) == 1


def check_again(placed: Placement) -> set[str]:
    """Rules that the layout breaks on its part."""
    from meshplan.solver.judge import violations

    return {one.rule for one in violations(placed.problem, placed.layout)}


@settings(max_examples=40)
@given(placements())
def test_the_order_widens_no_link(placed: Placement) -> None:
    """Tests that the placed cluster is as good for each kind of group as the one that was timed."""
    before = placed.problem.cluster
    assert sorted(placed.cluster.domains) == sorted(before.domains)
    for size, stride in group_strides(placed.layout).values():
        assert placed.cluster.group_tier(size, stride) <= before.group_tier(size, stride)
        assert placed.cluster.groups_inside(size, stride) >= before.groups_inside(size, stride)
    assert 0 <= placed.domain_borders.at_borders <= placed.domain_borders.bound
    assert placed.domain_borders.bound <= placed.domain_borders.stages == placed.layout.pp - 1


def test_stages_get_whole_racks() -> None:
    """Tests racks of 64, 32, 32 and 64 GPUs: two stages of 96 are 64 + 32 each."""
    placed = _placed([64, 64, 32, 32], "tp=2,pp=2,ep=4,dp=48")
    assert [domain.used for domain in placed.domains] == [64, 32, 64, 32]
    assert placed.domain_borders.at_borders == placed.domain_borders.bound == 1
    assert [list(placed.stages_of(domain)) for domain in placed.domains] == [[0], [0], [1], [1]]
    assert placed.segment_nodes == 8 and placed.rails_aligned


def test_files_name_the_nodes_in_rank_order(tmp_path: Any) -> None:
    """Tests host file, node list and rank map of two racks of a topology file."""
    (tmp_path / "t.conf").write_text("BlockName=a Nodes=a[1-3]\nBlockName=b Nodes=b[1-2]\n")
    cluster = {"topology": str(tmp_path / "t.conf"), "node_type": "gb200-nvl72"}
    report = check(_scenario([], cluster=cluster), "tp=2,dp=8,ep=4")
    answer = meshplan.place(report)
    assert isinstance(answer, PlacementReport)
    assert answer.nodelist().split() == ["a1", "a2", "b1", "b2"]
    assert answer.hostfile().split() == [one for one in ("a1", "a2", "b1", "b2") for _ in range(4)]
    rows = list(csv.DictReader(io.StringIO(answer.rankmap())))
    assert [row["rank"] for row in rows] == [str(rank) for rank in range(16)]
    assert rows[9] == {
        "rank": "9", "domain": "1", "leaf": "", "node": "b1", "gpu": "1", "tp": "1", "cp": "0",
        "dp": "4", "pp": "0", "etp": "0", "ep": "1", "edp": "2",
    }  # fmt: skip
    text = str(answer)
    assert "--nodes=4 --ntasks-per-node=4 --segment=2" in text
    assert "16 ranks in 2 of 2 NVLink domains, 4 GPUs idle" in text


@pytest.mark.parametrize(
    ("domains", "layout", "options", "host_file"),
    [
        ([8, 8], "dp=16,ep=4", "--nodes=4 --ntasks-per-node=4 --segment=2", False),
        ([8, 6], "dp=12,ep=2", "--nodes=3 --ntasks-per-node=4 --segment=1", False),
        ([8, 6], "dp=2,ep=2", "--nodes=1 --ntasks-per-node=2 --segment=1", False),
        ([6, 6], "dp=12,ep=2", "--nodes=4 --ntasks=12 --segment=1", True),
    ],
)
def test_slurm_starts_as_many_tasks_as_there_are_ranks(
    domains: list[int], layout: str, options: str, host_file: bool
) -> None:
    """Tests whole nodes, a part of one, and nodes with 4, 2, 4 and 2 ranks."""
    text = str(meshplan.place(check(_scenario(domains), layout)))
    assert options in text
    assert ("start them by --hostfile" in text) == host_file


def test_nodes_without_names_have_no_host_file() -> None:
    """Tests that a preset gives a rank map, but no names."""
    answer = meshplan.place(check(_scenario([8, 8]), "dp=16,ep=4"))
    assert answer.rankmap().count("\n") == 17
    with pytest.raises(InputError, match="have no names"):
        answer.hostfile()


def test_illegal_layouts_have_no_place() -> None:
    """Tests that a broken rule is named."""
    with pytest.raises(InputError, match="breaks gbs-divisible"):
        meshplan.place(check(_scenario([8]), "dp=5"))


def test_pictures_are_the_same_on_every_run() -> None:
    """Tests both formats of a picture, and that they say how many GPUs are used."""
    pytest.importorskip("matplotlib")
    answer = meshplan.place(check(_scenario([24, 16]), "tp=2,dp=16,ep=4"))
    assert answer.picture("png").startswith(b"\x89PNG")
    drawn = answer.picture("svg")
    assert drawn == answer.picture("svg")
    assert b"32 of 40 GPUs" in drawn and b"expert groups of 4 GPUs" in drawn
