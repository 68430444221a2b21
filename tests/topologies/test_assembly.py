"""Clusters from several files: which source wins, what is told, and what is refused."""

from __future__ import annotations

import pytest

from meshplan.topologies import Cluster, ClusterError, Tier, node_type, topology_graph
from meshplan.topologies.assembly import ImportedCluster, assemble
from meshplan.topologies.cluster_file import cluster_file, read_cluster_file
from meshplan.topologies.errors import TopologyFileError
from meshplan.topologies.inventory import Inventory
from meshplan.topologies.readers.slurm_conf import read_slurm_conf

GB200, H100 = node_type("gb200-nvl72"), node_type("h100-hgx")

RACKS = """\
# r1=nvl-1
BlockName=r1 Nodes=n[01-18]
# r2=nvl-2
BlockName=r2 Nodes=n[19-36]
# r3=nvl-3
BlockName=r3 Nodes=n[37-50]
BlockSizes=14
"""
TREE = """\
SwitchName=top Switches=l[1-2]
SwitchName=l1 Nodes=n[37-50]
SwitchName=l2 Nodes=n[01-36]
"""


def _ids(imported: ImportedCluster) -> list[str]:
    return [finding.id for finding in imported.findings]


def test_comments_are_the_domains_of_racks() -> None:
    """Tests racks of 18, 18 and 14 trays of four GPUs: 72, 72 and 56 in file order."""
    imported = assemble("c", [read_slurm_conf(RACKS)], GB200)
    assert imported.domain_source == "comment"
    assert imported.cluster.domains == (72, 72, 56)
    assert imported.histogram == {72: 2, 56: 1}
    assert imported.cluster.node_names[:2] == ("n01", "n02")
    assert imported.cluster.leaf_domains == ()
    assert "leaves-unknown" in _ids(imported)
    assert "unequal-domains" in _ids(imported)
    text = next(str(one) for one in imported.findings if one.id == "group-leaves-gpus")
    # 64 of 72 twice and none of 56: 128 of 200; three of 16 in 56 and four in each 72: 176.
    assert "64 use 128 (64.0%)" in text
    assert "16 use 176 (88.0%)" in text
    assert "groups of 16" in text  # 2, 4 and 8 divide 72 and 56, so they leave none idle


def test_one_domain_in_several_blocks_is_one() -> None:
    """Tests that blocks of 9 whose comments give one domain are one rack of 72 GPUs."""
    text = "# a=x\nBlockName=a Nodes=n[1-9]\n# b=x\nBlockName=b Nodes=n[10-18]\nBlockSizes=9,18"
    assert assemble("c", [read_slurm_conf(text)], GB200).cluster.domains == (72,)


def test_blocks_are_domains_of_racks_only() -> None:
    """Tests that blocks of HGX nodes are leaf groups: there the NVLink domain is the node."""
    text = "BlockName=b1 Nodes=n[1-8]\nBlockName=b2 Nodes=n[9-16]\n"
    hgx = assemble("c", [read_slurm_conf(text)], H100)
    assert (hgx.domain_source, hgx.cluster.domains) == ("node", (8,) * 16)
    racks = assemble("c", [read_slurm_conf(text)], GB200)
    assert (racks.domain_source, racks.cluster.domains) == ("block", (32, 32))
    assert "block-as-domain" in _ids(racks)
    trays = assemble("c", [read_slurm_conf(text)], GB200, nvlink_domain="node")
    assert trays.cluster.domains == (4,) * 16


def test_a_tree_alone_does_not_tell_the_domains_of_racks() -> None:
    """Tests that a leaf is no domain unless the user says so."""
    imported = assemble("c", [read_slurm_conf(TREE.replace("01-36", "01-18"))], GB200)
    assert imported.cluster.domains == (4,) * 32
    assert "domains-unknown" in _ids(imported)
    said = assemble(
        "c", [read_slurm_conf(TREE.replace("01-36", "01-18"))], GB200, nvlink_domain="leaf"
    )
    assert said.cluster.domains == (56, 72)


def test_tree_and_blocks_are_overlaid() -> None:
    """Tests that domains follow the leaves, and that ranks under one leaf talk below the spine."""
    imported = assemble("c", [read_slurm_conf(RACKS), read_slurm_conf(TREE)], GB200)
    cluster = imported.cluster
    assert cluster.domains == (56, 72, 72)
    assert cluster.leaf_domains == (1, 2)
    assert cluster.leaves == (56, 144)
    assert cluster.node_names[0] == "n37"
    assert "reordered" in _ids(imported)
    assert cluster.tier(8) is Tier.DOMAIN
    graph = topology_graph(cluster)
    assert graph.nodes[("node", 0)]["name"] == "n37"
    assert sum(1 for vertex in graph if vertex[0] == "leaf") == 2 * 4


def test_a_domain_under_two_leaves_shares_neither() -> None:
    """Tests that such a domain gets a leaf of its own, told."""
    tree = "SwitchName=l1 Nodes=n[01-20]\nSwitchName=l2 Nodes=n[21-50]\n"
    imported = assemble("c", [read_slurm_conf(RACKS), read_slurm_conf(tree)], GB200)
    assert imported.cluster.domains == (72, 72, 56)
    assert imported.cluster.leaf_domains == (1, 1, 1)
    text = next(one.text for one in imported.findings if one.id == "domain-across-leaves")
    assert "nvl-2" in text


def test_nodes_without_leaf_or_domain_are_told() -> None:
    """Tests that nodes which only one file names are kept, alone in domain and leaf."""
    tree = TREE.replace("n[37-50]", "n[37-51]")
    imported = assemble("c", [read_slurm_conf(RACKS), read_slurm_conf(tree)], GB200)
    assert sorted(imported.cluster.domains) == [4, 56, 72, 72]
    assert {"node-without-domain", "in-one-file-only"} <= set(_ids(imported))


@pytest.mark.parametrize(
    ("nodes", "segment", "better"),
    [(38, 2, "36 (segment 18) or 39 (segment 13)"), (46, 2, "45 (segment 15) or 48 (segment 16)")],
)
def test_node_counts_with_a_poor_segment_get_advice(nodes: int, segment: int, better: str) -> None:
    """Tests 38 and 46 nodes of racks of 18, which divide by 2 at most; 36, 39, 45, 48 do better."""
    text = "".join(
        f"# b{first}=d{first}\nBlockName=b{first} Nodes=n[{first}-{min(first + 17, nodes)}]\n"
        for first in range(1, nodes + 1, 18)
    )
    imported = assemble("c", [read_slurm_conf(text)], GB200)
    said = next(one.text for one in imported.findings if one.id == "poor-segment")
    assert f"segments of {segment} at most" in said
    assert better in said


def test_what_makes_no_cluster_is_refused() -> None:
    """Tests sources that are not there, domains beyond NVLink, and nodes to leave out."""
    racks = read_slurm_conf(RACKS)
    with pytest.raises(ClusterError, match="files have no leaf switches"):
        assemble("c", [racks], GB200, nvlink_domain="leaf")
    big = read_slurm_conf("BlockName=b Nodes=n[1-19]")
    with pytest.raises(ClusterError, match="19 nodes and 76 GPUs; NVLink joins 72"):
        assemble("c", [big], GB200)
    assert assemble("c", [big], GB200, exclude=frozenset({"n7"})).cluster.domains == (72,)
    with pytest.raises(ClusterError, match="'n99' to leave out is in no file"):
        assemble("c", [big], GB200, exclude=frozenset({"n99"}))
    with pytest.raises(ClusterError, match="no file names a node"):
        assemble("c", [], GB200)


def test_counts_of_the_files_are_taken() -> None:
    """Tests that a node with seven GPUs is a domain of seven, and a short tray inside is not."""
    nodes = Inventory("labels", ("a", "b"), gpus={"a": 8, "b": 7})
    assert assemble("c", [nodes], H100).cluster.domains == (8, 7)
    trays = Inventory("labels", ("a", "b"), ids={"a": "d", "b": "d"}, gpus={"a": 3, "b": 4})
    with pytest.raises(ClusterError, match="'a' of the NVLink domain 'd' has 3 GPUs instead of 4"):
        assemble("c", [trays], GB200)
    with pytest.raises(ClusterError, match="has 8 GPUs, a node of gb200-nvl72 has 4"):
        assemble("c", [nodes], GB200)


def test_whole_groups_leave_the_rest_idle() -> None:
    """Tests groups of 64 on racks of 72, 72 and 56 GPUs: two of them, 72 GPUs idle, told."""
    imported = assemble("c", [read_slurm_conf(RACKS)], GB200, group=64)
    assert imported.cluster.domains == (64, 64)
    assert imported.histogram == {64: 2}
    assert imported.cluster.nodes == 32
    assert "n17" not in imported.cluster.node_names
    text = next(one.text for one in imported.findings if one.id == "idle-gpus")
    assert text.startswith("72 of 200 GPUs are left idle")
    assert text.endswith("1 domain is not used")
    assert imported.cluster.notes[0].startswith("idle-gpus")


def test_a_count_of_gpus_cuts_the_rest_off() -> None:
    """Tests 96 GPUs of racks of 72, 72 and 56 in groups of 16: 64 and 32; and counts that fail.

    80 GPUs in no groups: each rack, a leaf of its own, gives whole blocks of 16 all the same.
    """
    racks = read_slurm_conf(RACKS)
    assert assemble("c", [racks], GB200, group=16, gpus=96).cluster.domains == (64, 32)
    assert assemble("c", [racks], GB200, gpus=80).cluster.domains == (64, 16)
    with pytest.raises(
        ClusterError, match=r"gpus \(100\) is no multiple of groups of 16"
    ) as caught:
        assemble("c", [racks], GB200, group=16, gpus=100)
    assert caught.value.advice == "use 96."
    with pytest.raises(ClusterError, match="from 16 to 176"):
        assemble("c", [racks], GB200, group=16, gpus=192)


def test_cluster_file_round_trips() -> None:
    """Tests that the written file is read as the same cluster."""
    made = assemble("c", [read_slurm_conf(RACKS), read_slurm_conf(TREE)], GB200).cluster
    read = read_cluster_file(cluster_file(made))
    assert (read.domains, read.leaf_domains) == (made.domains, made.leaf_domains)
    assert (read.name, read.node_type) == (made.name, made.node_type)
    assert read.node_names == made.node_names
    assert read.oversubscription == made.oversubscription


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("meshplan_cluster: 1", "meshplan_cluster: 2", 1, "this version reads 1"),
        ("gb200-nvl72", "gb200-nvl71", 3, "unknown node type"),
        ("gpus: 72", "gpus: 73", 6, "whole number from 1 to 72"),
        ("count: 2, gpus", "count: 9999999, gpus", 7, "'9999999'"),
        ("count: 2, gpus", "kount: 2, gpus", 7, "unknown key 'kount'"),
        ("oversubscription: 1.0", "oversubscription: lots", 4, "must be a number"),
        ("oversubscription: 1.0", "oversubscription: .5", 6, "finite number >= 1"),
        ("count: 1, domains: 1", "count: 2, domains: 1", 6, "the leaves hold 4 NVLink domains"),
        ("n[37-50,", "n[38-50,", 6, "49 nodes have names, the cluster has 50"),
        ("n[37-50,", "n[37-37,37-50,", 11, "names a node twice"),
        ("node_type: gb200-nvl72\n", "", 1, "node_type is missing"),
    ],
)
def test_cluster_file_refusals(old: str, new: str, line: int, words: str) -> None:
    """Tests that a file edited by hand is refused where it is wrong."""
    made = assemble("c", [read_slurm_conf(RACKS), read_slurm_conf(TREE)], GB200).cluster
    text = cluster_file(made)
    assert old in text
    with pytest.raises(TopologyFileError, match=words) as caught:
        read_cluster_file(text.replace(old, new, 1))
    assert caught.value.line == line


def test_leaves_given_by_hand_must_hold_all_domains() -> None:
    """Tests that the cluster itself refuses leaves or names that do not add up."""
    with pytest.raises(ClusterError, match="hold 2 NVLink domains, the cluster has 3"):
        Cluster("c", H100, (8, 8, 8), leaf_domains=(1, 1))
    with pytest.raises(ClusterError, match="1 nodes have names, the cluster has 2"):
        Cluster("c", H100, (8, 8), node_names=("a",))
