"""Cluster presets: one for each node type, described from its figures."""

from __future__ import annotations

from dataclasses import dataclass

from meshplan.topologies.node_types import NodeType, node_types


@dataclass(frozen=True)
class Preset:
    """A name that ``cluster.preset`` of a scenario may give.

    Attributes
    ----------
    name
        The same as the name of the node type.
    node_type
        Its figures.
    description
        One line for ``meshplan clusters``, written from the figures so that the two cannot differ.
    """

    name: str
    node_type: NodeType
    description: str


def _describe(one: NodeType) -> str:
    domain = f"NVLink domain of {one.nvlink_domain_gpus}"
    if one.planning_domain_gpus != one.nvlink_domain_gpus:
        domain += f" ({one.planning_domain_gpus} used)"
    return (
        f"{one.gpu}, {one.hbm_gib:g} GiB usable; {one.gpus_per_node} GPUs a node; {domain} at "
        f"{one.nvlink_gbps:g} GB/s; NIC {one.nic_gbps:g} GB/s per GPU"
    )


def presets() -> tuple[Preset, ...]:
    """All cluster presets, in the order of :func:`~meshplan.topologies.node_types`."""
    return tuple(Preset(one.name, one, _describe(one)) for one in node_types())
