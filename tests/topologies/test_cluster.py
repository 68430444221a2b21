"""Clusters built from counts, and the queries on them, against published tables."""

from __future__ import annotations

import math
import pickle
from dataclasses import replace

import pytest

from meshplan.topologies import Cluster, ClusterError, Tier, UnknownName, build_cluster, node_type


def _domains_of(gpus: int, domain: int) -> Cluster:
    """Cluster of NVL72 racks that are cut into domains of ``domain`` GPUs, the last one shorter."""
    full, rest = divmod(gpus, domain)
    return build_cluster("gb200-nvl72", domains=[domain] * full + [rest] * (rest > 0))


@pytest.mark.parametrize(
    ("preset", "gpus", "domains"),
    [
        ("h100-hgx", 256, (8,) * 32),
        ("h100-hgx", 8, (8,)),
        ("h100-hgx", 5, (5,)),  # part of one node
        ("gb200-nvl72", 3, (3,)),  # part of one tray
        ("gb200-nvl72", 72, (72,)),  # one rack holds all
        ("gb200-nvl72", 128, (64, 64)),  # 64 of 72
        ("gb200-nvl72", 256, (64,) * 4),
        ("gb200-nvl72", 144, (72, 72)),  # no multiple of 64
        ("gb300-nvl72", 100, (72, 28)),
    ],
)
def test_gpus_fall_into_domains(preset: str, gpus: int, domains: tuple[int, ...]) -> None:
    """Tests that HGX nodes are domains of 8 and racks give 64 GPUs where the count allows it."""
    cluster = build_cluster(preset, gpus=gpus)
    assert cluster.domains == domains
    assert cluster.gpus == gpus
    assert cluster.domain_gpus == min(domains)


def test_nodes_are_gpus_over_node_size() -> None:
    """Tests that 32 HGX nodes are 256 GPUs and 32 trays are 128 GPUs in two domains."""
    assert build_cluster("h100-hgx", nodes=32).gpus == 256
    trays = build_cluster("gb200-nvl72", nodes=32)
    assert trays.domains == (64, 64)
    assert trays.nodes == 32


def test_notes_say_what_was_decided() -> None:
    """Tests that a reader learns why 64 of 72 GPUs are used, or that full racks break blocks."""
    assert "64 of the 72" in build_cluster("gb200-nvl72", gpus=256).notes[0]
    assert "Megatron-Bridge" in build_cluster("gb200-nvl72", gpus=256).notes[0]
    assert "straddle" in build_cluster("gb200-nvl72", gpus=144).notes[0]
    assert build_cluster("gb200-nvl72", gpus=72).notes == ()
    assert build_cluster("h100-hgx", gpus=256).notes == ()


def test_explicit_domains_are_kept_in_order() -> None:
    """Tests that racks with failed trays stay as they are: 72 + 68 + 56 = 196 GPUs, 49 nodes."""
    cluster = build_cluster("gb200-nvl72", domains=[72, 68, 56])
    assert (cluster.domains, cluster.gpus, cluster.nodes) == ((72, 68, 56), 196, 49)
    assert cluster.domain_gpus == 56
    assert cluster.leaves == (72, 68, 56)  # 18, 17 and 14 nodes: no two fit under 16


def test_leaves_take_whole_domains() -> None:
    """Tests that 16 HGX nodes share a leaf and that a domain never straddles two leaves."""
    assert build_cluster("h100-hgx", nodes=40).leaves == (128, 128, 64)
    assert build_cluster("gb200-nvl72", domains=[32, 32, 8, 32]).leaves == (64, 40)


@pytest.mark.parametrize(
    ("gpus", "domain", "block", "expected"),
    [
        (256, 8, 32, (0, 8)),  # DeepSeek-V3 cp32 and ep32 on HGX: over 4 nodes each
        (256, 64, 32, (8, 8)),
        (256, 72, 32, (5, 8)),
        (256, 64, 64, (4, 4)),  # ep64
        (256, 72, 64, (1, 4)),
        (128, 8, 4, (32, 32)),  # Qwen3-235B tp4
        (128, 8, 16, (0, 8)),  # its tp4 x cp4
        (128, 8, 32, (0, 4)),  # its ep32
        (64, 8, 8, (8, 8)),  # ep8 etp1
        (64, 8, 16, (0, 4)),  # ep8 etp2: 16 > 8
        (576, 72, 64, (2, 9)),  # one period of full racks: 2 of 9 groups of EP64,
        (288, 72, 32, (6, 9)),  # 6 of 9 of EP32,
        (144, 72, 16, (8, 9)),  # 8 of 9 of EP16,
        (72, 72, 8, (9, 9)),  # all of EP8
    ],
)
def test_blocks_inside(gpus: int, domain: int, block: int, expected: tuple[int, int]) -> None:
    """Tests the blocks inside a domain against what Megatron's own groups give (d98e8a64)."""
    cluster = _domains_of(gpus, domain)
    assert cluster.blocks_inside(block) == expected
    assert cluster.fits_domain(block) == (expected[0] == expected[1])


@pytest.mark.parametrize(
    ("gpus", "domain", "size", "stride", "expected"),
    [
        (256, 8, 8, 32, (0, 32)),  # pp8 of DeepSeek-V3 at 256 GPUs, stride 256/8
        (256, 72, 8, 32, (0, 32)),
        (256, 72, 32, 1, (5, 8)),  # its cp, ep and dp_cp
        (256, 72, 1, 32, (256, 256)),  # its edp: singletons
        (128, 8, 4, 4, (0, 32)),  # cp4 of Qwen3-235B with tp4
        (128, 8, 8, 4, (0, 16)),  # its dp_cp
        (256, 64, 4, 64, (0, 64)),  # pp4 with ep64
        (64, 8, 8, 2, (0, 8)),  # dp_cp of tp2 dp8 pp4
        (64, 8, 2, 8, (0, 32)),  # its edp with ep8
        (64, 8, 4, 16, (0, 16)),  # its pp
    ],
)
def test_groups_inside(
    gpus: int, domain: int, size: int, stride: int, expected: tuple[int, int]
) -> None:
    """Tests strided groups inside a domain against what Megatron's own groups give (d98e8a64)."""
    assert _domains_of(gpus, domain).groups_inside(size, stride) == expected


def test_a_straddling_block_can_hold_whole_groups() -> None:
    """Tests a stride that does not divide the domains.

    Groups {0, 3}, {1, 4}, {2, 5} in domains of 4 and 2: only the first stays below rank 4.
    """
    cluster = build_cluster("gb200-nvl72", domains=[4, 2])
    assert cluster.blocks_inside(6) == (0, 1)
    assert cluster.groups_inside(2, 3) == (1, 3)


def test_tiers_of_an_hgx_cluster() -> None:
    """Tests the ladder of 40 nodes: 8 in a node, 128 under a leaf of 16 nodes, then the spine."""
    cluster = build_cluster("h100-hgx", nodes=40)
    assert [cluster.tier(block) for block in (1, 2, 8)] == [Tier.LOCAL, Tier.NODE, Tier.NODE]
    assert [cluster.tier(block) for block in (16, 128)] == [Tier.LEAF, Tier.LEAF]
    assert [cluster.tier(block) for block in (256, 320)] == [Tier.SPINE, Tier.SPINE]
    assert cluster.tier(3) is Tier.SPINE  # ranks 126-128 straddle the border of the first leaf


def test_tiers_of_racks() -> None:
    """Tests that blocks of 4 stay in a tray and blocks up to 64 in a domain of 64."""
    cluster = build_cluster("gb200-nvl72", gpus=256)
    assert [cluster.tier(block) for block in (4, 8, 64)] == [Tier.NODE, Tier.DOMAIN, Tier.DOMAIN]
    assert cluster.tier(128) is Tier.SPINE  # each rack has a leaf of its own (16 nodes)
    assert build_cluster("gb200-nvl72", domains=[72, 72]).tier(64) is Tier.SPINE


def test_tiers_of_unequal_domains() -> None:
    """Tests that 72, 68, 56 keep blocks of 4 in a tray, while blocks of 8 straddle at rank 140."""
    cluster = build_cluster("gb200-nvl72", domains=[72, 68, 56])
    assert cluster.tier(4) is Tier.NODE
    assert cluster.blocks_inside(8) == (24, 25)  # ranks 136-143 straddle 72 + 68 = 140
    assert not cluster.fits_domain(8)


def test_small_domains_share_a_leaf() -> None:
    """Tests that two domains of 8 nodes under one leaf of 16 are joined below the spine."""
    assert build_cluster("gb200-nvl72", domains=[32, 32]).tier(64) is Tier.LEAF


def test_blocks_beyond_the_cluster_mean_all_of_it() -> None:
    """Tests that a span wider than the cluster crosses what the cluster crosses."""
    assert build_cluster("h100-hgx", gpus=16).tier(1024) is Tier.LEAF
    assert build_cluster("h100-hgx", gpus=16).blocks_inside(1024) == (0, 1)
    assert build_cluster("h100-hgx", gpus=1).tier(8) is Tier.LOCAL


def test_group_tier_of_one_rank_is_local() -> None:
    """Tests that a group of one rank crosses nothing however wide its stride."""
    cluster = build_cluster("h100-hgx", gpus=256)
    assert cluster.group_tier(1, 64) is Tier.LOCAL
    assert cluster.group_tier(2, 4) is Tier.NODE
    assert cluster.group_tier(2, 8) is Tier.LEAF


@pytest.mark.parametrize(
    ("preset", "gpus", "size", "stride", "expected"),
    [
        ("h100-hgx", 256, 32, 1, 8),  # ep32: 8 members a node
        ("h100-hgx", 256, 8, 4, 2),  # stride 4: ranks 0 and 4
        ("h100-hgx", 256, 8, 8, 1),
        ("gb200-nvl72", 256, 64, 1, 64),
        ("gb200-nvl72", 144, 4, 36, 2),  # racks of 72: ranks 0 and 36
        ("gb200-nvl72", 144, 2, 64, 2),  # ranks 0 and 64 of a rack of 72
        ("h100-hgx", 256, 1, 64, 1),
    ],
)
def test_ranks_per_domain(preset: str, gpus: int, size: int, stride: int, expected: int) -> None:
    """Tests how many members of a group NVLink joins, counted by hand."""
    assert build_cluster(preset, gpus=gpus).ranks_per_domain(size, stride) == expected


def test_link_rates() -> None:
    """Tests NVLink 900, NIC 50 and, with half the uplinks, 25 GB/s on GB200."""
    cluster = replace(build_cluster("gb200-nvl72", gpus=256), oversubscription=2.0)
    assert [cluster.link_gbps(tier) for tier in Tier] == [math.inf, 900, 900, 50, 25]


def test_largest_cluster_is_answered() -> None:
    """Tests the bound: 1,048,576 GPUs are 131,072 domains and 8,192 leaves of 128."""
    cluster = build_cluster("h100-hgx", gpus=1_048_576)
    assert len(cluster.leaves) == 8_192
    assert cluster.tier(128) is Tier.LEAF
    assert cluster.blocks_inside(8) == (131_072, 131_072)
    assert cluster.ranks_per_domain(1024, 2) == 4


def test_hash_survives_pickling() -> None:
    """Tests that a cluster found in a cache is found again after a trip to another process."""
    cluster = build_cluster("h100-hgx", gpus=64)
    copy = pickle.loads(pickle.dumps(cluster))
    assert (copy, hash(copy)) == (cluster, hash(cluster))


@pytest.mark.parametrize(
    ("counts", "text"),
    [
        ({"gpus": 12}, r"gpus \(12\) is not a multiple of the 8.*\nMaybe use 8 or 16"),
        ({"gpus": 0}, r"gpus \(0\) is not a whole number from 1 to 1048576"),
        ({"gpus": -8}, r"gpus \(-8\)"),
        ({"gpus": 10**12}, r"gpus \(1000000000000\).*\nMaybe"),
        ({"gpus": True}, r"gpus \(True\)"),
        ({"gpus": 8.0}, r"gpus \(8\.0\)"),
        ({"nodes": 0}, r"nodes \(0\)"),
        ({"nodes": 131_073}, r"nodes \(131073\) is not a whole number from 1 to 131072"),
        ({}, "has no count: exactly one of gpus, nodes, domains"),
        ({"gpus": 8, "nodes": 1}, "has gpus and nodes: exactly one"),
        ({"domains": []}, "is empty"),
        ({"domains": [8, 0]}, r"domains\[1\] \(0\)"),
        ({"domains": [16]}, r"domains\[0\] \(16\) is not a whole number from 1 to 8"),
        ({"domains": [8] * 131_073}, r"gpus \(1048584\)"),
    ],
)
def test_bad_counts_are_refused(counts: dict[str, int], text: str) -> None:
    """Tests that each impossible count names itself and its value."""
    with pytest.raises(ClusterError, match=text):
        build_cluster("h100-hgx", **counts)  # type: ignore[arg-type]


def test_partial_trays_are_refused() -> None:
    """Tests that 6 GPUs of NVL72 are refused, as a tray has 4, but 3 of one tray are fine."""
    with pytest.raises(ClusterError, match="Maybe use 4 or 8"):
        build_cluster("gb200-nvl72", gpus=6)


def test_unknown_preset_suggests() -> None:
    """Tests that a preset that does not exist is answered with one that does."""
    with pytest.raises(UnknownName) as caught:
        build_cluster("gb200", gpus=64)
    assert "gb200-nvl72" in caught.value.suggestions


@pytest.mark.parametrize(
    "figures", [{"oversubscription": 0.5}, {"oversubscription": math.nan}, {"nodes_per_leaf": 0}]
)
def test_bad_fabric_is_refused(figures: dict[str, float]) -> None:
    """Tests that a fabric figure out of bounds names itself."""
    with pytest.raises(ClusterError, match=next(iter(figures))):
        Cluster("x", node_type("h100-hgx"), (8,), **figures)  # type: ignore[arg-type]


def test_bad_queries_are_refused() -> None:
    """Tests that a block of 0 ranks, or groups that do not tile the cluster, are errors."""
    cluster = build_cluster("h100-hgx", gpus=16)
    with pytest.raises(ClusterError, match=r"block \(0\)"):
        cluster.tier(0)
    with pytest.raises(ClusterError, match=r"stride \(0\)"):
        cluster.ranks_per_domain(2, 0)
    with pytest.raises(ClusterError, match=r"\(3 \* 1\) does not divide the 16 GPUs"):
        cluster.groups_inside(3, 1)


def _hgx(leaves: tuple[int, ...], oversubscription: float) -> Cluster:
    """Nodes of 8 GPUs, so many under each leaf."""
    return Cluster(
        "c",
        node_type("h100-hgx"),
        (8,) * sum(leaves),
        oversubscription=oversubscription,
        leaf_domains=leaves,
    )


def test_rings_leave_a_leaf_once() -> None:
    """Tests rings over 16 nodes a leaf: one hop of 16 goes up, so 4:1 uplinks do not slow them."""
    cluster = _hgx((16, 16), 4.0)
    assert cluster.ranks_per_leaf(256, 1) == 128
    assert cluster.ring_gbps(256, 1) == 50.0
    # Uplinks for one NIC in 32: the one hop that goes up has half of what a NIC has.
    assert _hgx((16, 16), 32.0).ring_gbps(256, 1) == 25.0
    # Two members in different leaves: all that they send goes up.
    assert cluster.ring_gbps(2, 128) == 50.0 / 4
    assert cluster.ring_gbps(128, 1) == 50.0 and cluster.ring_gbps(8, 1) == 450.0


def test_exchanges_pass_the_spine_with_what_leaves_the_leaf() -> None:
    """Tests 32 nodes: 128 of the 248 ranks outside a rank's node are under another leaf."""
    assert _hgx((16, 16), 1.0).exchange_gbps(256, 1) == 50.0
    assert _hgx((16, 16), 4.0).exchange_gbps(256, 1) == pytest.approx(50 / (4 * 128 / 248))
    assert _hgx((16, 16), 4.0).exchange_gbps(128, 1) == 50.0
    # Every rank is under a leaf of its own: all goes up.
    assert _hgx((1,) * 8, 2.0).exchange_gbps(8, 8) == 25.0
