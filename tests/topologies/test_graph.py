"""The arithmetic queries are the compressed form of the graph: both must say the same."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshplan.topologies import (
    Cluster,
    ClusterError,
    Tier,
    build_cluster,
    node_type,
    path_tier,
    topology_graph,
)


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """Small clusters: HGX or racks, equal or unequal domains, any number of nodes per leaf."""
    preset = draw(st.sampled_from(["h100-hgx", "gb200-nvl72"]))
    largest = 8 if preset == "h100-hgx" else 20
    size = st.integers(1, largest)
    equal = st.builds(lambda gpus, count: [gpus] * count, size, st.integers(1, 6))
    unequal = st.lists(size, min_size=1, max_size=6)
    # Runs of equal domains behind others are where an off-by-one in the periods would hide.
    domains = draw(st.one_of(equal, unequal, st.builds(lambda a, b: a + b, unequal, equal)))
    leaf = draw(st.integers(1, 6))
    return Cluster("small", node_type(preset), tuple(domains), nodes_per_leaf=leaf)


def _groups(gpus: int, size: int, stride: int) -> list[list[int]]:
    """Groups of ``size`` ranks, ``stride`` apart, as Megatron's rank grid makes them."""
    block = size * stride
    return [
        [rank for rank in range(base + offset, base + block, stride) if rank < gpus]
        for base in range(0, gpus, block)
        for offset in range(stride)
    ]


def _widest(graph: Any, groups: list[list[int]]) -> Tier:
    # Neighbours are enough: the best path between two ranks is never wider than the widest of
    # the steps over the ranks between them.
    pairs = {pair for group in groups for pair in pairwise(group)}
    return max((path_tier(graph, *pair) for pair in pairs), default=Tier.LOCAL)


def _domain_of(cluster: Cluster) -> list[int]:
    return [index for index, gpus in enumerate(cluster.domains) for _ in range(gpus)]


@given(cluster=clusters(), data=st.data())
def test_tier_of_a_block_is_the_widest_path(cluster: Cluster, data: st.DataObject) -> None:
    """Tests that blocks of any length, also cut short or too long, cross what the graph says."""
    block = data.draw(st.integers(1, cluster.gpus + 2))
    graph = topology_graph(cluster)
    assert cluster.tier(block) is _widest(graph, _groups(cluster.gpus, block, 1))


@given(cluster=clusters(), data=st.data())
def test_tier_of_strided_groups_is_the_widest_path(cluster: Cluster, data: st.DataObject) -> None:
    """Tests that the tier of a block is that of all groups in it, whatever their stride."""
    block = data.draw(st.sampled_from([n for n in range(1, 121) if cluster.gpus % n == 0]))
    size = data.draw(st.sampled_from([n for n in range(1, block + 1) if block % n == 0]))
    stride = block // size
    graph = topology_graph(cluster)
    assert cluster.group_tier(size, stride) is _widest(graph, _groups(cluster.gpus, size, stride))


@given(cluster=clusters(), data=st.data())
def test_counts_agree_with_enumeration(cluster: Cluster, data: st.DataObject) -> None:
    """Tests blocks inside, groups inside and ranks per domain against counting every rank."""
    domain = _domain_of(cluster)
    block = data.draw(st.integers(1, cluster.gpus + 2))
    blocks = _groups(cluster.gpus, block, 1)
    inside = sum(len({domain[rank] for rank in one}) == 1 for one in blocks)
    assert cluster.blocks_inside(block) == (inside, len(blocks))
    assert cluster.fits_domain(block) == (inside == len(blocks))

    size, stride = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 12))
    groups = [one for one in _groups(cluster.gpus, size, stride) if one]
    most = max(max(Counter(domain[rank] for rank in one).values()) for one in groups)
    assert cluster.ranks_per_domain(size, stride) == most
    if cluster.gpus % (size * stride) == 0:
        whole = sum(len({domain[rank] for rank in one}) == 1 for one in groups)
        assert cluster.groups_inside(size, stride) == (whole, len(groups))


def test_graph_of_two_leaf_groups() -> None:
    """Tests the vertices and edges of 4 HGX nodes, two to a leaf.

    Each node has 8 GPUs and 8 NICs; each of 2 leaf groups has 8 leaves, one per rail.  Edges: 3
    for each GPU, 1 for each NIC, 1 for each leaf: 96 + 32 + 16.
    """
    cluster = Cluster("four", node_type("h100-hgx"), (8,) * 4, nodes_per_leaf=2)
    graph = topology_graph(cluster)
    kinds = Counter(kind for _, kind in graph.nodes(data="kind"))
    assert kinds == {
        "gpu": 32,
        "rail": 32,
        "node": 4,
        "nvlink_domain": 4,
        "leaf": 16,
        "spine": 1,
    }
    assert graph.number_of_edges() == 144


def test_graph_edges_carry_link_rates() -> None:
    """Tests NVLink 900 and NIC 50 GB/s; a leaf over 2 nodes, 2:1, has 2 x 50 / 2 = 50 upwards."""
    cluster = Cluster(
        "racks", node_type("gb200-nvl72"), (8, 8), nodes_per_leaf=2, oversubscription=2.0
    )
    graph = topology_graph(cluster)
    assert graph.edges[("gpu", 9), ("nvlink_domain", 1)]["gbps"] == 900
    assert graph.edges[("gpu", 9), ("rail", 2, 1)]["gbps"] == 50
    assert graph.edges[("leaf", 1, 1), ("spine", 0)]["gbps"] == 50


def test_one_leaf_group_needs_no_spine() -> None:
    """Tests that 2 nodes under one leaf have no spine, and other rails are reached over NVLink."""
    graph = topology_graph(build_cluster("h100-hgx", gpus=16))
    assert ("spine", 0) not in graph
    assert path_tier(graph, 0, 15) is Tier.LEAF  # rail 0 to rail 7


def test_path_tiers_in_racks() -> None:
    """Tests one rank against itself, its tray, its rack and another rack."""
    graph = topology_graph(build_cluster("gb200-nvl72", domains=[72, 72]))
    tiers = [path_tier(graph, 0, rank) for rank in (0, 3, 4, 71, 72)]
    assert tiers == [Tier.LOCAL, Tier.NODE, Tier.DOMAIN, Tier.DOMAIN, Tier.SPINE]


def test_unknown_rank_is_refused() -> None:
    """Tests that a rank beyond the cluster names itself."""
    graph = topology_graph(build_cluster("h100-hgx", gpus=8))
    with pytest.raises(ClusterError, match=r"rank \(8\)"):
        path_tier(graph, 0, 8)


def test_broken_fabric_has_no_path() -> None:
    """Tests that two racks with the spine cut out are reported as not joined."""
    graph = topology_graph(build_cluster("gb200-nvl72", domains=[72, 72]))
    graph.remove_node(("spine", 0))
    with pytest.raises(ClusterError, match="no path joins ranks 0 and 72"):
        path_tier(graph, 0, 72)


def test_too_large_a_graph_is_refused() -> None:
    """Tests that 65,544 GPUs are over the 65,536 of an explicit graph, while queries still work."""
    cluster = build_cluster("h100-hgx", gpus=65_544)
    with pytest.raises(ClusterError, match=r"gpus \(65544\) exceeds 65536"):
        topology_graph(cluster)
    assert cluster.tier(8) is Tier.NODE


def test_importing_the_package_leaves_networkx_out() -> None:
    """Tests that ``meshplan --help`` need not load networkx: only building a graph does."""
    code = "import sys, meshplan.topologies; print('networkx' in sys.modules)"
    root = Path(__file__).parents[2]  # a plain checkout is importable from its root only
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root
    )
    assert done.stdout.strip() == "False"
