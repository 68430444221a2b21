"""Node labels of Kubernetes and ids of the NVLink fabric."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshplan.topologies import node_type
from meshplan.topologies.assembly import assemble
from meshplan.topologies.errors import TopologyFileError
from meshplan.topologies.inventory import Inventory
from meshplan.topologies.readers.detect import read_topology_text
from meshplan.topologies.readers.fabric_ids import read_fabric_ids
from meshplan.topologies.readers.node_labels import read_node_labels

DATA = Path(__file__).parent.parent / "data"
ONE, OTHER = "b78ed242-7b98-426f-b194-b76b8899f4ec", "0a1b2c3d-0000-4000-8000-0123456789ab"
ZERO = "00000000-0000-0000-0000-000000000000"


def _node(name: str, **labels: str) -> dict[str, Any]:
    keys = {"clique": "nvidia.com/gpu.clique", "count": "nvidia.com/gpu.count",
            "product": "nvidia.com/gpu.product"}  # fmt: skip
    return {"metadata": {"name": name, "labels": {keys.get(k, k): v for k, v in labels.items()}}}


def _labels(*nodes: dict[str, Any]) -> Inventory:
    return read_node_labels(json.dumps({"kind": "List", "items": nodes}))


def _found(inventory: Inventory) -> dict[str, str]:
    return {finding.id: finding.text for finding in inventory.findings}


def test_a_domain_is_uuid_and_clique() -> None:
    """Tests that one clique of two UUIDs is two domains, told, and two cliques of one are two."""
    inventory = _labels(
        _node("a", clique=f"{ONE}.32766", count="4"),
        _node("b", clique=f"{OTHER}.32766", count="4"),
        _node("c", clique=f"{ONE}.1", count="4"),
    )
    cluster = assemble("c", [inventory], node_type("gb300-nvl72")).cluster
    assert cluster.domains == (4, 4, 4)
    assert "clique 32766 occurs with 2 UUIDs" in _found(inventory)["same-clique"]


def test_zero_uuid_is_no_domain() -> None:
    """Tests that nodes with the all-zero UUID do not form one domain, and that this is told."""
    inventory = _labels(*(_node(f"n{i}", clique=f"{ZERO}.0", count="8") for i in range(3)))
    assert set(inventory.ids.values()) == {None}
    assert "3 nodes" in _found(inventory)["zero-uuid"]
    assert assemble("c", [inventory], node_type("h100-hgx")).cluster.domains == (8, 8, 8)


def test_nodes_without_gpus_are_left_out() -> None:
    """Tests that control nodes and nodes of zero GPUs are no part of the cluster, and told."""
    inventory = _labels(
        {"metadata": {"name": "control"}},
        _node("idle", count="0"),
        _node("by-resource") | {"status": {"capacity": {"nvidia.com/gpu": "8"}}},
        _node("by-product", product="NVIDIA-H100-80GB-HBM3"),
    )
    assert inventory.nodes == ("by-resource", "by-product")
    assert inventory.gpus == {"by-resource": 8}
    assert "control, idle" in _found(inventory)["node-without-gpus"]


@pytest.mark.parametrize(
    "keys",
    [
        [f"network.topology.nvidia.com/{level}" for level in ("core", "spine", "leaf")],
        [f"topology.k8s.aws/network-node-layer-{level}" for level in (1, 2, 3)],
        [f"cloud.google.com/gce-topology-{level}" for level in ("block", "subblock")],
    ],
)
def test_leaves_are_named_by_their_path(keys: list[str]) -> None:
    """Tests that rack-1 below two parents is two leaves."""
    places = {"a": ("x", "p", "rack-1"), "b": ("x", "q", "rack-1"), "c": ("x", "p", "rack-1")}
    nodes = [
        _node(name, count="8", **dict(zip(keys, path[-len(keys) :], strict=True)))
        for name, path in places.items()
    ]
    inventory = _labels(*nodes)
    assert [leaf.nodes for leaf in inventory.leaves] == [("a", "c"), ("b",)]
    assert inventory.leaves[0].name.endswith("p/rack-1")
    cluster = assemble("c", [inventory], node_type("h100-hgx")).cluster
    assert cluster.leaf_domains == (2, 1)
    assert cluster.node_names == ("a", "c", "b")


def test_another_product_is_told() -> None:
    """Tests that an H200 in a cluster of H100 nodes is a finding."""
    inventory = _labels(
        _node("a", product="NVIDIA-H100-80GB-HBM3", count="8"),
        _node("b", product="NVIDIA-H200", count="8"),
    )
    findings = assemble("c", [inventory], node_type("h100-hgx")).findings
    (found,) = [one for one in findings if one.id == "other-product"]
    assert found.text == "1 node has 'NVIDIA-H200', not H100 SXM: b"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "malformed JSON"),
        ("{}", "no list of nodes"),
        ('{"items": {}}', "no list of nodes"),
        ('{"items": [1]}', r"items\[0\] has no metadata"),
        ('{"items": [{"metadata": {"name": "a b"}}]}', "'a b' is no name"),
        ('{"items": [{"metadata": {"name": "a", "labels": 3}}]}', "no metadata with a name"),
        (json.dumps({"items": [_node("a", count="-1")]}), "has '-1' GPUs"),
        (json.dumps({"items": [_node("a", count="8")] * 2}), "is there twice"),
        (json.dumps({"items": [_node("a")]}), "none of the 1 nodes has GPUs"),
        ('{"items": ' + "[" * 100_000, "nested too deep|malformed JSON"),
        ('{"items": ' + "9" * 100_000 + "}", "too long|no list"),
    ],
)
def test_labels_refusals(text: str, words: str) -> None:
    """Tests that what is no list of nodes is refused, hostile JSON without a traceback."""
    with pytest.raises(TopologyFileError, match=words):
        read_node_labels(text)


@pytest.mark.parametrize(
    ("name", "gpus", "id_"),
    [
        ("query_fabric_gb200.csv", 4, "00000001-0000-0000-0000-000000000001.2"),
        ("query_fabric_gb300.csv", 4, "00000001-0000-0000-0000-000000000001.32766"),
        ("query_fabric_b200.csv", 8, None),
        ("qx_gb200_trimmed.xml", 4, "00000001-0000-0000-0000-000000000001.2"),
        ("qx_h100_trimmed.xml", 8, None),
    ],
)
def test_captures_of_one_node(name: str, gpus: int, id_: str | None) -> None:
    """Tests published captures: the node is called by its file, GPUs are its lines."""
    reading = read_topology_text((DATA / name).read_text("utf-8"), "n1")
    assert isinstance(reading, Inventory)
    assert reading.nodes == ("n1",)
    assert reading.gpus == {"n1": gpus}
    assert reading.ids == {"n1": id_}
    assert ("zero-uuid" in _found(reading)) is (id_ is None)


def test_product_and_health_of_a_node() -> None:
    """Tests that the product is read, and a fabric that is not healthy told."""
    text = (DATA / "qx_gb200_trimmed.xml").read_text("utf-8")
    reading = read_topology_text(text, "n1")
    assert isinstance(reading, Inventory)
    assert reading.products == {"n1": "NVIDIA GB200"}
    sick = read_topology_text(text.replace("Healthy", "Unhealthy", 1), "n1")
    assert "GPU 0 has a fabric whose health is 'Unhealthy'" in [one.text for one in sick.findings]


@pytest.mark.parametrize(
    "text",
    [
        f"a,{ONE},7\nb,{OTHER},7\n",
        f"node,clusterUuid,cliqueId\na,{ONE},7\nb,{OTHER},7\n",
        f"cliqueId,hostname,fabric.clusterUuid\n7,a,{ONE}\n7,b,{OTHER}\n",
        f"# of a rack\na: {ONE} 7\nb: {OTHER} 7\n",
        f"a: {ONE}.7\r\nb: {OTHER}.7".replace("\r", ""),
    ],
)
def test_forms_of_ids(text: str) -> None:
    """Tests tables with and without header, and lines of host and id."""
    inventory = read_topology_text(text)
    assert isinstance(inventory, Inventory)
    assert inventory.ids == {"a": f"{ONE}.7", "b": f"{OTHER}.7"}
    assert inventory.gpus == {}
    assert "same-clique" in _found(inventory)


def test_header_of_a_query_and_missing_ids() -> None:
    """Tests the header that nvidia-smi prints, and GPUs without a fabric."""
    inventory = read_fabric_ids("fabric.clusterUuid, fabric.cliqueId\n[N/A], [N/A]\n", "n1")
    assert inventory.ids == {"n1": None}
    assert "n1" in _found(inventory)["no-fabric-id"]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (f"a,{ONE},1\na,{OTHER},1", 2, "in two domains, the other on line 1"),
        (f"a,{ONE},1\na,{ONE},2", 2, "in two domains"),
        (f"a,{ONE},1\nb,deadbeef,1", 2, "not of the form"),
        (f"a,{ONE},1\n" + ":" * 5_000_000, 2, "not of the form"),
        (f"a b,{ONE},1", 1, "no name of a node"),
    ],
)
def test_ids_refusals(text: str, line: int, words: str) -> None:
    """Tests that lines that are malformed or contradict others are refused."""
    with pytest.raises(TopologyFileError, match=words) as caught:
        read_fabric_ids(text)
    assert caught.value.line == line


@given(st.lists(st.tuples(st.uuids(version=4), st.integers(0, 99)), min_size=1, max_size=20))
@settings(max_examples=50)
def test_ids_round_trip(domains: list[tuple[object, int]]) -> None:
    """Tests that ids come back alike from a table, from lines and from labels."""
    keys = {f"n{i}": f"{uuid}.{clique}" for i, (uuid, clique) in enumerate(domains)}
    table = "\n".join(f"n{i},{uuid},{clique}" for i, (uuid, clique) in enumerate(domains))
    lines = "\n".join(f"n{i}: {uuid} {clique}" for i, (uuid, clique) in enumerate(domains))
    assert read_fabric_ids(table).ids == keys
    assert read_fabric_ids(lines).ids == keys
    assert _labels(*(_node(name, clique=key) for name, key in keys.items())).ids == keys


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("apiVersion: v1\nkind: HyperNode\n", 2, "object of kind HyperNode"),
        ("switches:\n  a: {}\n", 1, "model of topograph"),
        ("hello\n", 1, "not known"),
        ("", 1, "is empty"),
        ("\n" * 2_000_000, 1, "is empty"),
        ("<html/>", 1, "begins with <html>"),
    ],
)
def test_other_formats_are_refused(text: str, line: int, words: str) -> None:
    """Tests that formats which are known but not read, and all others, are refused with a line."""
    with pytest.raises(TopologyFileError, match=words) as caught:
        read_topology_text(text)
    assert caught.value.line == line
