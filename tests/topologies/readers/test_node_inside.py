"""The inside of a node: nvidia-smi topo -m and NCCL's XML."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshplan.topologies import ClusterError, node_type
from meshplan.topologies.assembly import assemble
from meshplan.topologies.errors import TopologyFileError
from meshplan.topologies.inventory import Inventory, NodeReading
from meshplan.topologies.readers.detect import read_topology_text
from meshplan.topologies.readers.smi_topo import read_smi_topo

DATA = Path(__file__).parent.parent / "data"


def _matrix(cells: list[list[str]], nics: list[list[str]] | None = None, glued: int = 99) -> str:
    """The text of a matrix, as nvidia-smi prints it; columns from ``glued`` on run together."""
    gpus = len(cells)
    cards = len(nics[0]) if nics else 0
    names = [f"GPU{i}" for i in range(gpus)] + [f"NIC{i}" for i in range(cards)]
    wide = [f"{name:8}" if i < glued else name for i, name in enumerate(names)]
    lines = ["        " + "".join(wide) + "    CPU Affinity    NUMA Affinity   GPU NUMA ID"]
    for i, row in enumerate(cells):
        row = row + (nics[i] if nics else [])
        lines.append(f"GPU{i}    " + "".join(f"{cell:8}" for cell in row) + "0-31    0       N/A")
    lines += ["", "Legend:", "", "  X    = Self", "  NV#  = bonded NVLinks", "", "NIC Legend:", ""]
    lines += [f"  NIC{i}: mlx5_{i + 4}" for i in range(cards)]
    return "\n".join(lines)


def _switched(gpus: int, cell: str) -> list[list[str]]:
    return [["X" if a == b else cell for b in range(gpus)] for a in range(gpus)]


def _read(text: str) -> NodeReading:
    reading = read_topology_text(text)
    assert isinstance(reading, NodeReading)
    return reading


def _ids(reading: NodeReading) -> list[str]:
    return [finding.id for finding in reading.findings]


def test_a_healthy_hgx_node() -> None:
    """Tests 8 GPUs of NV18, each with the card on its own switch, named by the legend."""
    rails = [["PXB" if a == b else "SYS" for b in range(8)] for a in range(8)]
    reading = _read(_matrix(_switched(8, "NV18"), rails))
    assert reading.islands == (tuple(range(8)),)
    assert reading.nvlinks == (18,) * 8
    assert reading.rails == tuple((f"mlx5_{i + 4}",) for i in range(8))
    assert reading.findings == ()


def test_a_tray_has_no_card_near() -> None:
    """Tests a GB200 tray: one island of NV18, all cards at SYS, so all are shared."""
    reading = _read(_matrix(_switched(4, "NV18"), [["SYS"] * 6] * 4))
    assert reading.islands == ((0, 1, 2, 3),)
    assert _ids(reading) == ["gpu-without-rail"]
    assert len(reading.rails[0]) == 6


def test_bridge_pairs_are_islands_of_two() -> None:
    """Tests four pairs of NV12."""
    cells = [
        ["X" if a == b else "NV12" if a // 2 == b // 2 else "SYS" for b in range(8)]
        for a in range(8)
    ]
    reading = _read(_matrix(cells))
    assert reading.islands == ((0, 1), (2, 3), (4, 5), (6, 7))
    assert reading.rails == ()
    assert reading.findings == ()
    with pytest.raises(ClusterError, match="islands of 2, 2, 2, 2 GPUs"):
        assemble("c", [Inventory("x", ("a",))], node_type("a100-hgx"), nodes=[reading])


def test_a_lost_gpu_is_told() -> None:
    """Tests a node where GPU 3 lost its NVLink: islands of 7 and 1."""
    cells = _switched(8, "NV18")
    for other in range(8):
        if other != 3:
            cells[3][other] = cells[other][3] = "NODE"
    reading = _read(_matrix(cells))
    assert [len(island) for island in reading.islands] == [7, 1]
    assert _ids(reading) == ["lost-nvlink", "nvlink-unequal"]
    assert "GPU 3 cannot reach another" in reading.findings[0].text


def test_nvlink_hidden_in_a_virtual_machine_is_told() -> None:
    """Tests that the type's NVLink is taken where the file shows none, and that this is said."""
    reading = _read(_matrix(_switched(8, "SYS")))
    assert [len(island) for island in reading.islands] == [1] * 8
    imported = assemble("c", [Inventory("x", ("a",))], node_type("h100-hgx"), nodes=[reading])
    assert imported.cluster.domains == (8,)
    assert "nvlink-not-shown" in [one.id for one in imported.findings]


def test_fewer_links_than_the_type_are_told() -> None:
    """Tests NV8 (an H800) against an H100, 200 against 450 GB/s, and NV18 that agrees."""
    inventory = Inventory("x", ("a",))
    fewer = _read(_matrix(_switched(8, "NV8")))
    found = assemble("c", [inventory], node_type("h100-hgx"), nodes=[fewer]).findings
    (text,) = [one.text for one in found if one.id == "nvlink-rate-differs"]
    assert "8 NVLinks a GPU, 200 GB/s" in text
    for kind, links in (("h100-hgx", 18), ("h800-hgx", 8), ("a100-hgx", 12), ("b200-hgx", 18)):
        same = _read(_matrix(_switched(8, f"NV{links}")))
        found = assemble("c", [inventory], node_type(kind), nodes=[same]).findings
        assert "nvlink-rate-differs" not in [one.id for one in found]


def test_odd_ways_of_printing_are_read() -> None:
    """Tests underlined headers, tabs, names of cards in the header, and columns run together."""
    plain = _matrix(_switched(2, "NV4"), [["PIX", "SYS"], ["SYS", "PIX"]])
    reading = _read(plain)
    header, rest = plain.split("\n", 1)
    assert _read(f"\x1b[4m{header}\x1b[0m\n{rest}") == reading
    tabs = (
        "GPU0\tGPU1\tmlx5_4\tmlx5_5\tCPU Affinity\n"
        "GPU0\t X \tNV4\tPIX\tSYS\t0-63\nGPU1\tNV4\t X \tSYS\tPIX\t0-63\n"
        "mlx5_4\tPIX\tSYS\t X \tSYS\t\nmlx5_5\tSYS\tPIX\tSYS\t X \t\n"
    )
    assert _read(tabs) == reading
    many = [["NODE"] * 12 + ["PIX"]] * 4
    glued = _read(_matrix(_switched(4, "NV18"), many, glued=15))
    assert glued.rails == (("mlx5_16",),) * 4


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("GPU3    ", "GPUx    ", 4, "row GPU3 is missing"),
        ("NV18    X       NV18    NV18    0-31    0       N/A", "NV18", 3, "GPU1 to GPU1 is"),
        ("GPU1    NV18    X ", "GPU1    NV17    X ", 3, "but back it is NV1"),
        ("GPU1    NV18    X       NV18", "GPU1    NV18    X       FAST", 3, "GPU2 is 'FAST'"),
        ("GPU1    NV18    X       NV18", "GPU1    NV18    X       X   ", 3, "GPU1 to GPU2 is X"),
        ("GPU2    ", "GPU1    ", 4, "row GPU1 is there twice"),
    ],
)
def test_cut_or_made_up_matrices_are_refused(old: str, new: str, line: int, words: str) -> None:
    """Tests that pastes that were cut, and matrices that are not symmetric, are refused."""
    text = _matrix(_switched(4, "NV18"))
    header, rest = text.split("\n", 1)
    assert old in rest
    with pytest.raises(TopologyFileError, match=words) as caught:
        read_smi_topo(header + "\n" + rest.replace(old, new, 1))
    assert caught.value.line == line


@given(st.data())
@settings(max_examples=60)
def test_matrices_round_trip(data: st.DataObject) -> None:
    """Tests that islands and rails drawn at random come back from the printed matrix."""
    gpus = data.draw(st.integers(1, 16))
    island = data.draw(st.lists(st.integers(0, 3), min_size=gpus, max_size=gpus))
    cards = data.draw(st.integers(0, 9))
    cells = [
        ["X" if a == b else "NV4" if island[a] == island[b] else "SYS" for b in range(gpus)]
        for a in range(gpus)
    ]
    near = data.draw(st.lists(st.integers(0, max(0, cards - 1)), min_size=gpus, max_size=gpus))
    nics = [["PIX" if near[a] == c else "NODE" for c in range(cards)] for a in range(gpus)]
    reading = _read(_matrix(cells, nics if cards else None))
    groups = {key: tuple(g for g in range(gpus) if island[g] == key) for key in set(island)}
    assert set(reading.islands) == set(groups.values())
    assert reading.rails == (tuple((f"mlx5_{one + 4}",) for one in near) if cards else ())


@pytest.mark.parametrize(
    ("name", "gpus", "cards", "found"),
    [
        ("azure_ndv5-topo.xml", 8, [1] * 8, ["nvlink-not-in-file"]),
        ("aws_p4d-24xl-topo.xml", 8, [1] * 8, ["nvlink-not-in-file"]),
        ("azure_ndv2-topo.xml", 8, [1] * 8, ["nvlink-not-in-file", "gpu-without-rail"]),
    ],
)
def test_skeletons_give_rails_only(
    name: str, gpus: int, cards: list[int], found: list[str]
) -> None:
    """Tests vendors' files: GPU to card, and nothing about NVLink."""
    reading = _read((DATA / name).read_text("utf-8"))
    assert reading.gpus == gpus
    assert [len(rail) for rail in reading.rails] == cards
    assert reading.islands == ()
    assert _ids(reading) == found


def _dump(gpus: list[int], *, host: str = "0x1", extra: str = "") -> str:
    """A dump with a GPU for each number of NVLinks."""
    body = "".join(
        f'<pci busid="0000:1{i}:00.0" class="0x060400" link_speed="32.0 GT/s PCIe">'
        f'<pci busid="0000:2{i}:00.0" class="0x030200"><gpu dev="{i}" sm="90">'
        + (f'<nvlink target="0000:05:00.0" count="{n}" tclass="0x068000"/>' if n else "")
        + '<nvlink target="0000:00:00.0" count="4" tclass="0x068001"/></gpu></pci>'
        f'<pci busid="0000:3{i}:00.0" class="0x020700"><nic><net name="mlx5_{i}"/></nic></pci>'
        "</pci>"
        for i, n in enumerate(gpus)
    )
    return f'<system version="1"><cpu host_hash="{host}" numaid="0">{body}</cpu>{extra}</system>'


def test_dumps_give_islands_and_rails() -> None:
    """Tests a dump: all GPUs at the switch are one island, links to the CPU are none."""
    reading = _read(_dump([18, 18, 18]))
    assert reading.islands == ((0, 1, 2),)
    assert reading.nvlinks == (18, 18, 18)
    assert reading.rails == (("mlx5_0",), ("mlx5_1",), ("mlx5_2",))
    assert reading.compute_capability == 9
    assert reading.findings == ()


def test_a_dump_shows_what_a_healthy_fabric_hides() -> None:
    """Tests a GPU without an NVLink record and one with fewer links."""
    reading = _read(_dump([18, 0, 17]))
    assert reading.islands == ((0, 2), (1,))
    assert _ids(reading) == ["lost-nvlink", "nvlink-unequal"]
    assert "fewer NVLinks than 18: 0, 17 on GPUs 1, 2" in reading.findings[1].text


def test_peers_are_direct_edges() -> None:
    """Tests bridges: a link to another GPU's address joins the two."""
    text = _dump([0, 0]).replace(
        '<gpu dev="0" sm="90">',
        '<gpu dev="0" sm="90"><nvlink target="0000:21:00.0" count="4" tclass="0x030200"/>',
    )
    assert _read(text).islands == ((0, 1),)


def test_virtual_machines_and_odd_speeds_are_told() -> None:
    """Tests the marks of a virtual machine and a link speed that NCCL does not know."""
    text = _dump([18, 18])
    assert _ids(_read(text.replace('target="0000:05', 'target="fffffff:ff'))) == ["virtual-machine"]
    assert _ids(_read(text.replace('numaid="0"', 'numaid="-1"'))) == ["virtual-machine"]
    assert _ids(_read(text.replace("32.0 GT/s PCIe", "32 GT/s PCIe/s", 1))) == [
        "link-speed-unknown"
    ]


BOMB = """<?xml version="1.0"?>
<!DOCTYPE system [
<!ENTITY a "aaaaaaaaaa">
<!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">
]>
<system>&b;</system>
"""


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (BOMB, 3, "entities are not read"),
        ('<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]>\n<system>&x;</system>', 1,
         "entities are not read"),
        ('<!DOCTYPE system SYSTEM "http://example.com/x.dtd">\n<system>&x;</system>', 2,
         "entities are not read"),
        ("<system>" + "<cpu>" * 200 + "</cpu>" * 200 + "</system>", 1, "levels"),
        ("<system>\n<cpu>", 2, "malformed XML"),
        ("<system/>", 1, "has 0 GPUs"),
        (_dump([18]).replace('count="18"', 'count="many"'), 1, "count 'many'"),
        (_dump([18], extra='<cpu host_hash="0x2"/>'), 1, "holds 2 hosts"),
    ],
)  # fmt: skip
def test_xml_refusals(text: str, line: int, words: str) -> None:
    """Tests entities of any kind, depth, and files of no node or of several."""
    with pytest.raises(TopologyFileError, match=words) as caught:
        read_topology_text(text)
    assert caught.value.line == line


def test_a_doctype_alone_does_no_harm() -> None:
    """Tests the document type that nvidia-smi prints, which is never fetched."""
    text = (DATA / "qx_h100_trimmed.xml").read_text("utf-8")
    doctype = '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">\n'
    assert isinstance(read_topology_text(doctype + text), Inventory)
