"""Figures of the node types against what was published."""

from __future__ import annotations

import pickle

import pytest
from pydantic import ValidationError

from meshplan.topologies import NodeType, UnknownName, node_type, node_types, presets


def test_all_node_types_are_there() -> None:
    """Tests that every documented preset name has figures."""
    assert {one.name for one in node_types()} == {
        "a100-hgx",
        "h100-hgx",
        "h200-hgx",
        "h800-hgx",
        "b200-hgx",
        "b300-hgx",
        "gb200-nvl72",
        "gb300-nvl72",
    }


@pytest.mark.parametrize(
    ("name", "hbm_gib", "bf16_tflops", "fp8_tflops", "fp4_tflops", "nvlink_gbps", "nic_gbps"),
    [
        ("a100-hgx", 79.1, 312, None, None, 300, 25),
        ("h100-hgx", 79.1, 989, 1979, None, 450, 50),
        ("h200-hgx", 139.8, 989, 1979, None, 450, 50),
        ("h800-hgx", 79.1, 989, 1979, None, 200, 50),
        ("b200-hgx", 178.4, 2250, 4500, 9000, 900, 50),
        ("b300-hgx", 262, 2250, 4500, 13500, 900, 100),
        ("gb200-nvl72", 184.3, 2450, 4900, 9800, 900, 50),
        ("gb300-nvl72", 270, 2450, 4900, 14700, 900, 100),
    ],
)
def test_figures(
    name: str,
    hbm_gib: float,
    bf16_tflops: float,
    fp8_tflops: float | None,
    fp4_tflops: float | None,
    nvlink_gbps: float,
    nic_gbps: float,
) -> None:
    """Tests that peaks and bandwidths are those of the published tables (dense, one direction)."""
    one = node_type(name)
    assert (one.hbm_gib, one.bf16_tflops, one.fp8_tflops) == (hbm_gib, bf16_tflops, fp8_tflops)
    assert (one.fp4_tflops, one.nvlink_gbps, one.nic_gbps) == (fp4_tflops, nvlink_gbps, nic_gbps)


@pytest.mark.parametrize("one", node_types(), ids=lambda one: one.name)
def test_figures_hang_together(one: NodeType) -> None:
    """Tests that domain sizes, formats and node sizes follow from architecture and packaging."""
    rack = one.name.endswith("nvl72")
    assert one.multi_node_nvlink is rack
    assert (one.nvlink_domain_gpus, one.planning_domain_gpus) == ((72, 64) if rack else (8, 8))
    assert one.gpus_per_node == (4 if rack else 8)  # a compute tray has 4, an HGX board 8
    assert one.compute_capability == {"ampere": 8, "hopper": 9, "blackwell": 10}[one.arch]
    assert (one.fp8_tflops is None) == (one.arch == "ampere")  # FP8 came with Hopper
    assert (one.fp4_tflops is None) == (one.arch != "blackwell")  # FP4 came with Blackwell
    assert one.host_link_gbps == (200 if rack else 25 if one.arch == "ampere" else 50)


@pytest.mark.parametrize("one", node_types(), ids=lambda one: one.name)
def test_each_figure_names_its_source(one: NodeType) -> None:
    """Tests that no figure comes without a source: a number nobody can check is worth little."""
    for figure in set(NodeType.model_fields) - {"name", "gpu", "sources"}:
        assert len(one.source(figure)) > 10, figure


def test_a_figure_without_source_is_refused() -> None:
    """Tests that a node type cannot be written down with a figure that lacks its source."""
    data = node_type("h100-hgx").model_dump()
    data["sources"] = tuple(pair for pair in data["sources"] if pair[0] != "hbm_gib")
    with pytest.raises(ValidationError, match="no source for hbm_gib"):
        NodeType.model_validate(data)


def test_planning_domain_cannot_exceed_the_domain() -> None:
    """Tests that no more GPUs of a domain can be planned for (16) than it has (8)."""
    data = node_type("h100-hgx").model_dump() | {"planning_domain_gpus": 16}
    with pytest.raises(ValidationError, match=r"planning_domain_gpus \(16\)"):
        NodeType.model_validate(data)


@pytest.mark.parametrize("bad", [{"hbm_gib": -1}, {"hbm_gib": float("nan")}, {"memory": 80}])
def test_absurd_figures_and_unknown_keys_are_refused(bad: dict[str, float]) -> None:
    """Tests that a mistyped key or an impossible figure in the data file is caught on load."""
    with pytest.raises(ValidationError):
        NodeType.model_validate(node_type("h100-hgx").model_dump() | bad)


def test_node_type_is_hashable_and_frozen() -> None:
    """Tests that caches can be keyed by a node type and that nobody can change a figure."""
    one = node_type("b200-hgx")
    assert hash(pickle.loads(pickle.dumps(one))) == hash(one)
    with pytest.raises(ValidationError, match="frozen"):
        one.hbm_gib = 1.0


def test_unknown_node_type_suggests_the_nearest() -> None:
    """Tests that a short name is answered with the full one first."""
    with pytest.raises(UnknownName) as caught:
        node_type("h100")
    assert caught.value.suggestions[0] == "h100-hgx"
    assert str(caught.value).startswith("unknown node type 'h100'\nMaybe you mean one of: h100-hgx")
    assert isinstance(caught.value, KeyError)


def test_a_name_like_nothing_lists_everything() -> None:
    """Tests that without a near name the message lists all of them."""
    with pytest.raises(UnknownName) as caught:
        node_type("zzzzzz")
    assert caught.value.suggestions == ()
    assert all(one.name in str(caught.value) for one in node_types())


def test_unknown_figure_suggests_the_nearest() -> None:
    """Tests that asking for the source of a figure that does not exist names one that does."""
    with pytest.raises(UnknownName) as caught:
        node_type("h100-hgx").source("hbm_gb")
    assert "hbm_gib" in caught.value.suggestions


def test_presets_describe_each_node_type() -> None:
    """Tests that the description carries the figures: 64 of 72 GPUs, 184.3 GiB on GB200."""
    by_name = {one.name: one for one in presets()}
    assert list(by_name) == [one.name for one in node_types()]
    assert by_name["gb200-nvl72"].description == (
        "GB200, 184.3 GiB usable; 4 GPUs a node; NVLink domain of 72 (64 used) at 900 GB/s; "
        "NIC 50 GB/s per GPU"
    )
