"""Slurm's topology files: published examples, a grammar that round-trips, hostile files."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshplan.topologies.errors import TopologyFileError
from meshplan.topologies.inventory import Inventory
from meshplan.topologies.readers.detect import read_topology_text
from meshplan.topologies.readers.hostlist import fold
from meshplan.topologies.readers.slurm_conf import read_slurm_conf
from meshplan.topologies.readers.slurm_yaml import read_slurm_yaml

DATA = Path(__file__).parent.parent / "data"


def _read(name: str) -> Inventory:
    reading = read_topology_text((DATA / name).read_text("utf-8"))
    assert isinstance(reading, Inventory)
    return reading


def _ids(inventory: Inventory) -> set[str]:
    return {finding.id for finding in inventory.findings}


@pytest.mark.parametrize(
    ("name", "nodes", "blocks", "sizes", "switches", "leaves"),
    [
        ("topograph_dra_12x8.conf", 96, 12, (8, 16, 32), 0, 0),
        ("aws_pcluster_9_18_9.conf", 36, 3, (9, 18), 0, 0),
        ("topograph_oci_sim_tree.conf", 96, 0, (), 19, 12),
        ("azure_cyclecloud_placement_groups.conf", 4, 0, (), 3, 2),
        ("topograph_tree_plus_block.yaml", 2, 2, (1, 2), 5, 2),
    ],
)
def test_published_files_have_their_shape(
    name: str, nodes: int, blocks: int, sizes: tuple[int, ...], switches: int, leaves: int
) -> None:
    """Tests the counts that the files' own projects state."""
    inventory = _read(name)
    assert len(inventory.nodes) == nodes
    assert len(inventory.blocks) == blocks
    assert inventory.block_sizes == sizes
    assert inventory.switches == switches
    assert len(inventory.leaves) == leaves
    assert inventory.findings == ()


def test_comments_give_the_domains() -> None:
    """Tests both known comments: topograph's, and the one of Azure's plug-in."""
    assert [block.domain for block in _read("topograph_dra_12x8.conf").blocks][:2] == [
        "nvl-1-1",
        "nvl-1-2",
    ]
    azure = (
        "# Number of Nodes in block1: 18\n"
        "# ClusterUUID and CliqueID: b78ed242-7b98-426f-b194-b76b8899f4ec 32766\n"
        "BlockName=block1 Nodes=n[1-18]\nBlockSizes=18\n"
    )
    (block,) = read_slurm_conf(azure).blocks
    assert block.domain == "b78ed242-7b98-426f-b194-b76b8899f4ec 32766"
    assert read_slurm_conf("# other=x\nBlockName=b Nodes=n1\n").blocks[0].domain is None


def test_walk_order_keeps_neighbours_together() -> None:
    """Tests that leaves come in the order of the tree, whatever the order of the file."""
    text = """\
SwitchName=l1 Nodes=a
SwitchName=l2 Nodes=b
SwitchName=l3 Nodes=c
SwitchName=s1 Switches=l1,l3
SwitchName=s2 Switches=l2
SwitchName=top Switches=s[1-2]
"""
    leaves = read_slurm_conf(text).leaves
    assert [leaf.name for leaf in leaves] == ["l1", "l3", "l2"]
    assert leaves[0].above == ("s1", "top")


def test_hand_made_tree_is_told_apart() -> None:
    """Tests a file written by hand: no root, a node twice, a hostlist without its prefix."""
    text = """\
SwitchName=s0 Nodes=gpu-n[001-016],n[019-020]
SwitchName=s1 Nodes=gpu-n[017-018,021-036]
SwitchName=s2 Nodes=gpu-n[037-051]
SwitchName=s3 Nodes=gpu-n[051-052]
"""
    inventory = read_slurm_conf(text)
    assert _ids(inventory) == {"forest", "duplicate-node", "missing-prefix"}
    said = {finding.id: finding for finding in inventory.findings}
    assert "n019, n020 lack the prefix 'gpu-'" in said["missing-prefix"].text
    assert said["duplicate-node"].line == 4
    assert "gpu-n051 is in 's2'" in said["duplicate-node"].text
    assert len(inventory.nodes) == 52


@pytest.mark.parametrize(
    ("text", "id_", "words"),
    [
        ("#BlockName=b2 Nodes=n[3-4]\nBlockName=b1 Nodes=n[1-2]", "commented-out", "b2"),
        ("BlockName=b1 Nodes=n1\nBlockName=pad", "empty-block", "1 of 2 blocks"),
        ("BlockName=b1 Nodes=n[1-4]\nBlockName=b2 Nodes=n[5-7]", "block-below-base", "b2 (3)"),
        ("BlockName=b1 Nodes=n[1-18]\nBlockSizes=16", "spare-nodes", "2 nodes are spare"),
        ("SwitchName=a Nodes=n1\nSwitchName=b Nodes=n2", "forest", "a, b"),
        (
            "SwitchName=s1 Switches=l\nSwitchName=s2 Switches=l\nSwitchName=l Nodes=n1",
            "dag",
            "1 switch hangs below more than one (l)",
        ),
        (
            "SwitchName=t Switches=l,m\nSwitchName=m Switches=k\nSwitchName=[k-k] Nodes=x\n"
            .replace("[k-k]", "k") + "SwitchName=l Nodes=n1",
            "unequal-depth",
            "2 to 3 levels",
        ),
        ("BlockName=b Nodes=n1\nSwitchName=l Nodes=n[1-2]", "in-no-block", "n2"),
        ("BlockName=b Nodes=n[1-2]\nSwitchName=l Nodes=n1", "in-no-leaf", "n2"),
    ],
)  # fmt: skip
def test_findings(text: str, id_: str, words: str) -> None:
    """Tests that what is odd is told with the names."""
    found = [finding for finding in read_slurm_conf(text).findings if finding.id == id_]
    assert len(found) == 1
    assert words in found[0].text


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("BlockName=b Nodes=n1\nTopologyBlockSched=1", 2, "'TopologyBlockSched' is unknown"),
        ("BlockName=b Nodes=n1\nBlockName=b Nodes=n2", 2, "first on line 1"),
        ("SwitchName=b Nodes=n1\nSwitchName=b Nodes=n2", 2, "first on line 1"),
        ("SwitchName=a Switches=b\nSwitchName=b Switches=a", 1, "form a cycle"),
        ("SwitchName=r Switches=a\nSwitchName=a Switches=a\n", 2, "form a cycle"),
        ("SwitchName=a Switches=b", 1, "does not define"),
        ("SwitchName=a", 1, "neither Nodes nor Switches"),
        ("SwitchName=a Nodes=n1 Switches=b", 1, "both Nodes and Switches"),
        ("BlockName=b Nodes=n1\nBlockSizes=4,12", 2, "12 is not the base size 4 times"),
        ("BlockName=b Nodes=n1\nBlockSizes=-1", 2, "'-1'"),
        ("BlockName=b Nodes=n1\nBlockSizes=4\nBlockSizes=8", 3, "given twice"),
        ("BlockSizes=" + ",".join(str(2**k) for k in range(17)), 1, "more than 16"),
        ("BlockName=b Nodes=n1 LinkSpeed=1", 1, "does not belong"),
        ("Nodes=n1\nBlockName=b Nodes=n2", 1, "without SwitchName or BlockName"),
        ("BlockName=b Nodes=n1, n2", 1, "empty entry|not of the form"),
        ("#BlockName=b1 Nodes=n[1-14]\nBlockSizes=20", 1, "commented out"),
    ],
)
def test_refusals_name_line_and_reason(text: str, line: int, words: str) -> None:
    """Tests that a file that contradicts itself is refused where it does."""
    with pytest.raises(TopologyFileError, match=words) as caught:
        read_slurm_conf(text)
    assert caught.value.line == line
    assert caught.value.advice


MANY = """\
- topology: t1
  cluster_default: true
  tree:
    switches:
      - {switch: root, children: "s[1-2]"}
      - {switch: s1, nodes: "n[01-02]"}
      - {switch: s2, nodes: "n[03-04]"}
- topology: t2
  block:
    block_sizes: [2, 4]
    blocks:
      - {block: b1, nodes: "n[01-02]"}
      - {block: b2, nodes: "n[03-04]"}
      - {block: b3, nodes: "n[05-06]"}
- {topology: t3, flat: true}
- topology: t4
  block: {blocks: [{block: other, nodes: n01}]}
"""


def test_topologies_of_one_file_are_overlaid() -> None:
    """Tests that one tree and one block topology are read together, and the others told."""
    inventory = read_topology_text(MANY)
    assert isinstance(inventory, Inventory)
    assert len(inventory.nodes) == 6
    assert [leaf.name for leaf in inventory.leaves] == ["s1", "s2"]
    assert [block.name for block in inventory.blocks] == ["b1", "b2", "b3"]
    texts = [finding.text for finding in inventory.findings]
    assert texts == [
        "of the block topologies 't2' is read, not t4",
        "the topology 't3' is flat, which says nothing about NVLink domains or leaves",
        "2 nodes are in no leaf switch: n05, n06",
    ]


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("[2, 4]", "[4, 12]", 10, "12 is not the base size 4 times"),
        ("block_sizes: [2, 4]", "block_size: [2]", 10, "unknown key 'block_size'"),
        ("children", "nodes: x, children", 5, "either children or nodes"),
        ("cluster_default: true", "cluster_default: 1", 2, "must be true or false"),
        ("flat: true", "cluster_default: false", 15, "no kind"),
        ("b3, nodes", "b1, nodes", 14, "defined twice"),
        ('"n[03-04]"}\n-', '"n[03-"}\n-', 7, "hostlist"),
        ("- topology: t1", "- topology: &a t1", 1, None),
        ("topology: t1", "topology: *a", 1, "alias"),
        ("topology: t1", "topology: !!str t1", 1, "tags"),
        ("topology: t1", "topology: [", 3, "malformed"),
    ],
)
def test_yaml_refusals(old: str, new: str, line: int, words: str | None) -> None:
    """Tests that YAML is refused where it is wrong; an anchor that nothing uses does no harm."""
    text = MANY.replace(old, new, 1)
    if words is None:
        assert len(read_slurm_yaml(text).nodes) == 6
        return
    with pytest.raises(TopologyFileError, match=words) as caught:
        read_slurm_yaml(text)
    assert caught.value.line == line


def test_blocks_written_as_text_are_refused() -> None:
    """Tests the mistake of writing blocks as topology.conf does."""
    text = '- topology: t\n  block:\n    blocks: "b1=n[1-4],b2=n[5-8]"\n'
    with pytest.raises(TopologyFileError, match="must be a list") as caught:
        read_slurm_yaml(text)
    assert caught.value.line == 3


@st.composite
def layouts(draw: st.DrawFn) -> tuple[list[int], int]:
    """Nodes of each block, and blocks under each leaf."""
    sizes = draw(st.lists(st.integers(1, 20), min_size=1, max_size=12))
    return sizes, draw(st.integers(1, 4))


def _named(sizes: list[int]) -> list[list[str]]:
    first, named = 1, []
    for size in sizes:
        named.append([f"n{number}" for number in range(first, first + size)])
        first += size
    return named


@given(layouts(), st.booleans())
@settings(max_examples=60)
def test_grammar_round_trips(layout: tuple[list[int], int], as_yaml: bool) -> None:
    """Tests that blocks and a tree over them come back from either format as they were written."""
    sizes, per_leaf = layout
    blocks = _named(sizes)
    leaves = [
        [node for block in blocks[start : start + per_leaf] for node in block]
        for start in range(0, len(blocks), per_leaf)
    ]
    if as_yaml:
        lines = ["- topology: b", "  block:", "    blocks:"]
        lines += [f"    - {{block: b{i}, nodes: '{fold(b)}'}}" for i, b in enumerate(blocks)]
        lines += ["- topology: t", "  tree:", "    switches:"]
        lines += [f"    - {{switch: l{i}, nodes: '{fold(n)}'}}" for i, n in enumerate(leaves)]
        lines += [f"    - {{switch: top, children: 'l[0-{len(leaves) - 1}]'}}"]
    else:
        lines = [f"# b{i}=d{i}\nBlockName=b{i} Nodes={fold(b)}" for i, b in enumerate(blocks)]
        lines += [f"switchname=l{i} NODES={fold(n)}  # leaf" for i, n in enumerate(leaves)]
        lines += ["SwitchName=top \\", f"  Switches=l[0-{len(leaves) - 1}]"]
    reading = read_topology_text("\n".join(lines))
    assert isinstance(reading, Inventory)
    assert [list(block.nodes) for block in reading.blocks] == blocks
    assert [list(leaf.nodes) for leaf in reading.leaves] == leaves
    assert all(leaf.above == ("top",) for leaf in reading.leaves)
    if not as_yaml:
        assert [block.domain for block in reading.blocks] == [f"d{i}" for i in range(len(blocks))]


def test_deep_trees_and_large_files_are_read() -> None:
    """Tests 20,000 levels of switches: no recursion, and no paths of the square of the depth."""
    depth = 20_000
    lines = [f"SwitchName=s{i} Switches=s{i + 1}" for i in range(depth)]
    inventory = read_slurm_conf("\n".join([*lines, f"SwitchName=s{depth} Nodes=n1"]))
    assert inventory.switches == depth + 1
    assert inventory.leaves[0].above[:2] == (f"s{depth - 1}", f"s{depth - 2}")


def test_repeated_lists_are_bounded() -> None:
    """Tests that switches by the thousand with children by the thousand are refused."""
    text = "SwitchName=a[1-2000] Nodes=n[1-2000]\n"
    with pytest.raises(TopologyFileError, match="more than 1,048,576 names") as caught:
        read_slurm_conf(text)
    assert caught.value.line == 1


def test_deep_yaml_is_refused() -> None:
    """Tests that 100,000 open brackets end at the limit of levels."""
    with pytest.raises(TopologyFileError, match=r"levels|nesting depth"):
        read_slurm_yaml("- topology: " + "[" * 100_000)
