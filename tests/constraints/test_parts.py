"""How many GPUs a layout may use, and which, against trying all."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshplan.constraints.parts import on_part, part_for, parts, parts_of
from meshplan.constraints.problem import Problem
from meshplan.constraints.resolve import resolve
from meshplan.scenarios import InputError, from_mapping
from meshplan.topologies.packing import Part, packed_gpus


def _problem(domains: list[int], batch: int = 48, **sections: object) -> Problem:
    data = {
        "meshplan": 1,
        "name": "racks",
        "model": "toy-moe",
        "cluster": {"preset": "gb200-nvl72", "domains": domains, "use": "best"},
        "workload": {"seq_len": 4096, "global_batch_size": batch},
    }
    return resolve(from_mapping({**data, **sections}))


def test_racks_of_18_17_and_14_trays_hold_the_groups_of_the_table() -> None:
    """Tests whole groups by rack: 64 of 72 and 68, none of 56; 16 fill 64, 64 and 48."""
    domains = [72, 68, 56]
    assert packed_gpus(domains, 64) == 128
    assert packed_gpus(domains, 16) == 176
    assert packed_gpus(domains, 8) == 192
    # 48 sequences: dp is 1, 2, 3, 4, 6, 8, 12, 16, 24 or 48, and all else powers of two.
    found = {part.gpus: part.group for part in parts(_problem(domains))}
    assert [gpus for gpus in found if gpus >= 96] == [192, 128, 96]
    assert found[192] == 8 and found[128] == 64 and found[96] == 32


def test_parts_are_the_counts_that_degrees_and_batch_make() -> None:
    """Tests every count against products of powers of two with divisors of the batch."""
    domains = [72, 68, 56]
    powers = [1 << i for i in range(12)]
    wanted = {power * dp for power in powers for dp in (1, 3, 5, 15) if power * dp <= sum(domains)}
    assert {part.gpus for part in parts(_problem(domains, batch=15))} == wanted


def test_least_data_parallelism_and_pins_narrow_the_parts() -> None:
    """Tests min_dp and a pinned dp: 15 sequences leave 5 and 15, or 5 alone."""
    few = _problem([8, 8], batch=15, limits={"min_dp": 4})
    assert [part.gpus for part in parts(few)] == [15, 10, 5]
    one = _problem([8, 8], batch=15, layout={"dp": 5})
    assert [part.gpus for part in parts(one)] == [10, 5]


def test_pins_beside_powers_of_two_give_several_parts() -> None:
    """Tests that EP 36 and EP 16 both get racks where their groups stay whole."""
    problem = _problem([72] * 8, layout={"ep": [16, 36]}, model={"card": "toy-moe", "experts": 144})
    found = parts_of(problem, 288)
    assert {part.group for part in found} == {36 * 2, 32}


@given(
    st.lists(st.integers(1, 18), min_size=1, max_size=6),
    st.sampled_from([8, 12, 15, 24]),
    st.integers(0, 5),
)
def test_each_placeable_group_is_whole_on_its_part(
    trays: list[int], batch: int, power: int
) -> None:
    """Tests that a part has the largest group that any choice of GPUs packs, by brute force."""
    domains = [4 * one for one in trays]
    problem = _problem(domains, batch=batch)
    block = 1 << power
    for part in parts(problem):
        cluster = on_part(problem, part).cluster
        assert cluster.gpus == part.gpus
        assert all(size % part.group == 0 for size in cluster.domains)
        # GPUs of each domain that hold whole blocks: is there a choice with so many GPUs?
        rooms = [range(0, size + 1, block) for size in domains]
        placeable = part.gpus % block == 0 and _sums_to(rooms, part.gpus)
        assert placeable == (part.group % block == 0 and cluster.fits_domain(block))


def _sums_to(rooms: list[range], total: int) -> bool:
    sums = {0}
    for room in rooms:
        sums = {one + more for one, more in itertools.product(sums, room) if one + more <= total}
    return total in sums


def test_a_stated_layout_gets_its_own_gpus() -> None:
    """Tests a layout with dp, with gpus, with neither, and one that is too large."""
    problem = _problem([72, 68, 56])
    assert part_for(problem, {"pp": 2, "dp": 48, "ep": 4}) == Part(96, 32)
    assert part_for(problem, {"gpus": 128}) == Part(128, 64)
    assert part_for(problem, {"ep": 4, "pp": 2}) == Part(192, 8)
    assert part_for(problem, {"tp": 16}) == Part(128, 64)
    assert part_for(problem, {"dp": 48, "pp": 8}) is None
    # 192 GPUs pack groups of 8 only; a group of 24 is packed where it is asked for.
    assert part_for(problem, {"gpus": 168, "ep": 24}) == Part(168, 24)


def test_a_fixed_number_is_packed_and_one_too_large_is_refused(tmp_path: Path) -> None:
    """Tests gpus and nodes beside a topology file."""
    (tmp_path / "c.yaml").write_text(
        "meshplan_cluster: 1\nname: c\nnode_type: gb200-nvl72\n"
        "domains: [{count: 2, gpus: 72}, {count: 1, gpus: 56}]\n"
    )
    base = {"topology": str(tmp_path / "c.yaml")}
    fixed = _problem([], cluster={**base, "gpus": 128})
    assert fixed.part == Part(128, 64) and fixed.cluster.domains == (64, 64)
    assert not fixed.gpus_open
    assert _problem([], cluster={**base, "nodes": 16}).cluster.domains == (64,)
    everything = _problem([], cluster={**base, "use": "all"})
    assert everything.gpus == 200 and everything.whole is None
    assert _problem([], cluster=base).gpus_open
    with pytest.raises(InputError, match=r"cluster\.gpus \(256\) is more than the 200"):
        _problem([], cluster={**base, "gpus": 256})
    with pytest.raises(InputError, match=r"use.*left out next to gpus"):
        _problem([], cluster={**base, "gpus": 64, "use": "best"})
    with pytest.raises(InputError, match=r"nodes.*left out next to gpus"):
        _problem([], cluster={**base, "gpus": 64, "nodes": 16})
