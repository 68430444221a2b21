"""Packing of groups into unequal domains, against trying all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshplan.topologies import Cluster, ClusterError, node_type
from meshplan.topologies.packing import (
    nearest_node_counts,
    packed_cluster,
    packed_gpus,
    segment_nodes,
)


@pytest.mark.parametrize(
    ("domain", "group", "used"),
    [
        (72, 64, 64),
        (72, 32, 64),
        (72, 16, 64),
        (72, 8, 72),
        (72, 72, 72),
        (72, 36, 72),
        (72, 24, 72),
        (72, 18, 72),
        (56, 64, 0),
        (56, 32, 32),
        (56, 16, 48),
    ],
)
def test_racks_of_72_and_14_trays(domain: int, group: int, used: int) -> None:
    """Tests the table of a full rack (64 of 72 for 64, 32 and 16) and of one with 14 trays."""
    assert packed_gpus([domain], group) == used


@given(st.lists(st.integers(1, 12), min_size=1, max_size=6), st.integers(1, 12))
def test_packing_agrees_with_brute_force(domains: list[int], group: int) -> None:
    """Tests against placing groups one by one wherever a domain has room."""
    left = list(domains)
    used = 0
    while any(room >= group for room in left):
        fullest = max(range(len(left)), key=left.__getitem__)
        left[fullest] -= group
        used += group
    assert packed_gpus(domains, group) == used


@given(st.lists(st.integers(1, 72), min_size=1, max_size=6), st.integers(1, 72), st.integers(1, 3))
def test_packed_clusters_hold_whole_groups(domains: list[int], group: int, per_leaf: int) -> None:
    """Tests that a packed cluster keeps the order, the leaves, and the nodes that are touched."""
    kind = node_type("gb200-nvl72")
    leaves = [len(domains[at : at + per_leaf]) for at in range(0, len(domains), per_leaf)]
    names = tuple(f"{d}-{n}" for d, gpus in enumerate(domains) for n in range(-(-gpus // 4)))
    cluster = Cluster("c", kind, tuple(domains), leaf_domains=tuple(leaves), node_names=names)
    if max(domains) < group:
        with pytest.raises(ClusterError, match=f"holds a group of {group} GPUs"):
            packed_cluster(cluster, group)
        return
    packed = packed_cluster(cluster, group)
    assert packed.gpus == packed_gpus(domains, group)
    assert all(gpus % group == 0 for gpus in packed.domains)
    kept = [index for index, gpus in enumerate(domains) if gpus >= group]
    assert len(packed.domains) == len(kept)
    assert dict.fromkeys(int(name.split("-")[0]) for name in packed.node_names) == dict.fromkeys(
        kept
    )
    inside, all_groups = packed.groups_inside(group, 1)
    assert inside == all_groups == packed.gpus // group
    assert sum(packed.leaves) == packed.gpus


def test_groups_are_at_least_one() -> None:
    """Tests that a group of none is refused."""
    with pytest.raises(ClusterError, match=r"group \(0\)"):
        packed_gpus([8], 0)


@pytest.mark.parametrize(
    ("nodes", "segment"), [(64, 16), (72, 18), (34, 17), (38, 2), (46, 2), (19, 1), (1, 1)]
)
def test_segments_of_published_tools(nodes: int, segment: int) -> None:
    """Tests the largest divisor of at most 18, as launchers derive it."""
    assert segment_nodes(nodes, 18) == segment


@given(st.integers(1, 2000), st.integers(1, 18))
def test_better_counts_are_better(nodes: int, most: int) -> None:
    """Tests that each count that is advised divides into segments of half a domain or more."""
    counts = nearest_node_counts(nodes, most)
    assert counts
    for count in counts:
        assert 2 * segment_nodes(count, most) >= min(count, most)
        assert abs(count - nodes) < most


def test_larger_blocks_stay_under_one_leaf() -> None:
    """Tests 60 HGX nodes under leaves of 16, 13, 16 and 15: 384 GPUs in blocks of 64 a leaf."""
    leaves = (16, 13, 16, 15)
    cluster = Cluster("c", node_type("h100-hgx"), (8,) * 60, leaf_domains=leaves)
    assert packed_cluster(cluster, 8, 480) is cluster
    assert packed_cluster(cluster, 8, 448).leaves == (128, 96, 128, 96)
    assert packed_cluster(cluster, 8, 384).leaves == (128, 64, 128, 64)
    assert packed_cluster(cluster, 8, 256).leaves == (128, 128)
    # 3 * 64 GPUs: the largest block that doubles the group is 64, in the two fullest leaves.
    assert packed_cluster(cluster, 8, 192).leaves == (128, 64)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=6), st.integers(1, 3), st.integers(1, 60))
def test_a_part_takes_what_is_asked_for_in_the_largest_blocks(
    domains: list[int], per_leaf: int, wanted: int
) -> None:
    """Tests sizes, leaves and the block of each leaf against all blocks that double the group."""
    sizes = [4 * (one + 1) for one in domains]
    leaves = [len(sizes[at : at + per_leaf]) for at in range(0, len(sizes), per_leaf)]
    cluster = Cluster("c", node_type("gb200-nvl72"), tuple(sizes), leaf_domains=tuple(leaves))
    gpus = 4 * wanted
    if gpus > sum(sizes):
        return
    part = packed_cluster(cluster, 4, gpus)
    assert part.gpus == gpus
    block = 4
    while gpus % (2 * block) == 0 and packed_gpus(cluster.leaves, 2 * block) >= gpus:
        block *= 2
    assert all(leaf % block == 0 for leaf in part.leaves)
