"""InfiniBand networks: leaves, rails and real uplinks."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshplan.topologies import node_type
from meshplan.topologies.assembly import assemble
from meshplan.topologies.errors import TopologyFileError
from meshplan.topologies.inventory import Fabric, Inventory
from meshplan.topologies.readers.detect import read_topology_text


def _network(leaves: list[tuple[int, int]], rails: int = 2, rate: str = "4xNDR") -> str:
    """Racks of hosts: for each the number of hosts and of uplinks, a leaf for each rail."""
    lines = ["#", "# Topology file: generated", "#", "vendid=0x2c9", "devid=0xd2f2"]
    ports = []
    for rack, (hosts, uplinks) in enumerate(leaves):
        for rail in range(rails):
            guid = f"S-{rack:08x}{rail:08x}"
            lines.append(
                f'Switch\t65 "{guid}"\t\t# "MF0;leaf-{rack}-{rail}:MQM9700/U1" enhanced port 0'
            )
            for host in range(hosts):
                peer = f"H-{rack:04x}{host:04x}{rail:08x}"
                ports.append((peer, f"r{rack}-n{host} mlx5_{rail}", guid))
                lines.append(
                    f'[{host + 1}]\t"{peer}"[1]({peer[2:]}) \t\t# "r{rack}-n{host} mlx5_{rail}" '
                    f"lid 7 {rate}"
                )
            for up in range(uplinks):
                lines.append(
                    f'[{hosts + up + 1}]\t"S-ffffffff00000000"[{up + 1}]\t\t# '
                    f'"MF0;spine-0:MQM9700/U1" lid 9 {rate}'
                )
            lines.append(f'[65]\t"H-aa{rack:06x}{rail:08x}"[1](aa) \t\t# "Mellanox Technologies '
                         f'Aggregation Node" lid 3 {rate}')  # fmt: skip
    lines.append('Switch\t65 "S-ffffffff00000000"\t\t# "MF0;spine-0:MQM9700/U1" enhanced port 0')
    lines.append(f'[1]\t"S-{0:08x}{0:08x}"[5]\t\t# "MF0;leaf-0-0:MQM9700/U1" lid 2 {rate}')
    for peer, description, guid in ports:
        lines.append(f'Ca\t1 "{peer}"\t\t# "{description}"')
        lines.append(f'[1]({peer[2:]}) \t"{guid}"[1]\t\t# lid 7 lmc 0 "MF0;leaf" lid 2 {rate}')
    return "\n".join(lines) + "\n"


def _read(text: str) -> Fabric:
    reading = read_topology_text(text)
    assert isinstance(reading, Fabric)
    return reading


def test_leaves_rails_and_uplinks() -> None:
    """Tests two racks with two rails: 18 hosts of 400 Gb/s, 14 and 18 uplinks."""
    fabric = _read(_network([(18, 14), (18, 18)]))
    assert fabric.spines == 1
    assert [leaf.name for leaf in fabric.leaves] == ["leaf-0-0", "leaf-0-1", "leaf-1-0", "leaf-1-1"]
    first = fabric.leaves[0]
    assert (first.card, len(first.hosts)) == ("mlx5_0", 18)
    assert (first.down_gbit, first.up_gbit) == (18 * 400, 14 * 400)
    assert [one.id for one in fabric.findings] == ["leaf-degraded"]
    assert "leaf-0-0 (5600)" in fabric.findings[0].text


def test_oversubscription_and_leaves_of_a_cluster() -> None:
    """Tests that the worst leaf, 18 to 14 = 1.29, is the cluster's, and racks are leaf groups."""
    fabric = _read(_network([(18, 14), (12, 18)]))
    names = tuple(host for leaf in fabric.leaves[::2] for host in leaf.hosts)
    ids = {name: name.split("-")[0] for name in names}
    imported = assemble(
        "c", [Inventory("ids", names, ids=ids)], node_type("gb200-nvl72"), fabrics=[fabric]
    )
    cluster = imported.cluster
    assert cluster.oversubscription == pytest.approx(18 / 14, abs=1e-4)
    assert cluster.domains == (72, 48)
    assert cluster.leaf_domains == (1, 1)
    found = [one.id for one in imported.findings]
    assert "oversubscription" in found
    assert "leaves-unknown" not in found


@pytest.mark.parametrize(("rate", "gbit"), [("4xHDR", 200), ("4xXDR", 800), ("4xEDR", 100)])
def test_speeds_of_ports(rate: str, gbit: int) -> None:
    """Tests the nominal speeds of four lanes."""
    assert _read(_network([(1, 1)], 1, rate)).leaves[0].down_gbit == gbit


def test_hosts_without_a_name_are_told() -> None:
    """Tests that unresolved descriptions count as downlinks, and are told."""
    text = _network([(3, 3)], 1).replace('"r0-n1 mlx5_0" lid', '"MT4129 ConnectX7" lid', 1)
    fabric = _read(text)
    assert fabric.leaves[0].hosts == ("r0-n0", "r0-n2")
    assert fabric.leaves[0].down_gbit == 1200
    assert [one.id for one in fabric.findings] == ["host-unresolved"]


def test_swapped_cables_are_told() -> None:
    """Tests a leaf that holds two cards of hosts."""
    text = _network([(3, 3)], 1).replace('"r0-n1 mlx5_0" lid', '"r0-n1 mlx5_1" lid', 1)
    assert [one.id for one in _read(text).findings] == ["leaf-not-rail"]


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ('lid 7 4xNDR', "lid 7", 7, "no speed"),
        ('[1]\t"H', '[1]\tH', 7, "not understood"),
        ('Switch\t65 "S-ffffffff00000000"', 'Switch\t65 "S-0000000000000000"', 11, "twice"),
        ("vendid", '[1]\t"H-1"[1](1) # "a mlx5_0" lid 1 4xNDR\nvendid', 4, "not understood"),
    ],
)  # fmt: skip
def test_refusals(old: str, new: str, line: int, words: str) -> None:
    """Tests that ports that are not understood are refused with their line."""
    text = _network([(2, 1)], 1)
    assert old in text
    with pytest.raises(TopologyFileError, match=words) as caught:
        read_topology_text(text.replace(old, new, 1))
    assert caught.value.line == line


def test_a_network_without_hosts_is_refused() -> None:
    """Tests spines alone."""
    text = 'Switch\t65 "S-1"\t\t# "MF0;spine:MQM/U1" port 0\n[1]\t"S-2"[1]\t# "x" lid 1 4xNDR\n'
    with pytest.raises(TopologyFileError, match="none of the 1 switches has a host") as caught:
        read_topology_text(text)
    assert caught.value.line == 1


@given(
    st.lists(st.tuples(st.integers(1, 20), st.integers(0, 20)), min_size=1, max_size=6),
    st.integers(1, 4),
)
@settings(max_examples=40)
def test_networks_round_trip(racks: list[tuple[int, int]], rails: int) -> None:
    """Tests that hosts, cards and speeds of racks drawn at random come back."""
    fabric = _read(_network(racks, rails))
    assert [(len(leaf.hosts), leaf.up_gbit / 400) for leaf in fabric.leaves] == [
        rack for rack in racks for _ in range(rails)
    ]
    assert [leaf.card for leaf in fabric.leaves] == [
        f"mlx5_{rail}" for _ in racks for rail in range(rails)
    ]
