"""GPU and node types with their figures, read from ``data/node_types.yaml``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from meshplan.topologies.errors import UnknownName

_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Count = Annotated[int, Field(ge=1)]

#: Fields that say what the type is rather than give a figure; they need no source.
_LABELS = frozenset({"name", "gpu", "sources"})


class NodeType(BaseModel):
    """What one GPU and its node can do.

    Bandwidths are GB/s (1e9 bytes) per GPU and direction; peaks are dense TFLOP/s.

    Attributes
    ----------
    name
        Also the name of the cluster preset: ``h100-hgx``.
    gpu
        Product name: ``H100 SXM``.
    arch, compute_capability
        Architecture and major compute capability: they gate FP8, FP4 and kernel support.
    gpus_per_node
        GPUs under one operating system.
    hbm_gib
        GPU memory that programs can use, GiB (the nominal size is larger).
    hbm_tbps
        GPU memory bandwidth, TB/s.
    bf16_tflops, fp8_tflops, fp4_tflops
        Dense peaks, TFLOP/s; None where the hardware lacks the format.
    nvlink_gbps, nic_gbps
        Specified NVLink and network bandwidth per GPU and direction, GB/s.
    nvlink_domain_gpus
        GPUs that NVLink joins all-to-all: 8 in an HGX node, 72 in an NVL72 rack.
    planning_domain_gpus
        GPUs of a domain that jobs use in practice: 64 of 72, so that power-of-two groups fit.
    host_link_gbps
        Effective bandwidth between one GPU and host memory, per direction, GB/s.
    host_memory_gib
        Host memory of one node, GiB.
    multi_node_nvlink
        Whether NVLink reaches beyond the node.
    sources
        Pairs (figure, where it comes from).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    gpu: str
    arch: Literal["ampere", "hopper", "blackwell"]
    compute_capability: Literal[8, 9, 10]
    gpus_per_node: _Count
    hbm_gib: _Positive
    hbm_tbps: _Positive
    bf16_tflops: _Positive
    fp8_tflops: _Positive | None
    fp4_tflops: _Positive | None
    nvlink_gbps: _Positive
    nvlink_domain_gpus: _Count
    planning_domain_gpus: _Count
    nic_gbps: _Positive
    host_link_gbps: _Positive
    host_memory_gib: _Positive
    multi_node_nvlink: bool
    # Pairs instead of a mapping keep the model hashable, so caches can be keyed by a cluster.
    sources: tuple[tuple[str, str], ...] = Field(repr=False)

    @field_validator("sources", mode="before")
    @classmethod
    def _mapping_to_pairs(cls, value: object) -> object:
        return tuple(value.items()) if isinstance(value, Mapping) else value

    @model_validator(mode="after")
    def _figures_agree(self) -> NodeType:
        missing = set(type(self).model_fields) - _LABELS - {figure for figure, _ in self.sources}
        if missing:
            raise ValueError(f"node type {self.name}: no source for {', '.join(sorted(missing))}")
        if self.planning_domain_gpus > self.nvlink_domain_gpus:
            raise ValueError(
                f"node type {self.name}: planning_domain_gpus ({self.planning_domain_gpus}) "
                f"exceeds nvlink_domain_gpus ({self.nvlink_domain_gpus})"
            )
        return self

    def source(self, figure: str) -> str:
        """Where the figure (a field name such as ``hbm_gib``) comes from.

        Raises
        ------
        UnknownName
            If the node type has no such figure.
        """
        sources = dict(self.sources)
        if figure not in sources:
            raise UnknownName("figure", figure, sources)
        return sources[figure]


@cache
def _by_name() -> dict[str, NodeType]:
    text = files("meshplan.topologies").joinpath("data/node_types.yaml").read_text("utf-8")
    data: dict[str, Any] = yaml.safe_load(text)
    types = [NodeType.model_validate(entry) for entry in data["node_types"]]
    return {one.name: one for one in types}


def node_types() -> tuple[NodeType, ...]:
    """All node types, oldest architecture first."""
    return tuple(_by_name().values())


def node_type(name: str) -> NodeType:
    """The node type called ``name``, such as ``h100-hgx``.

    Raises
    ------
    UnknownName
        If there is none; ``suggestions`` holds the nearest names.
    """
    known = _by_name()
    if name not in known:
        raise UnknownName("node type", name, known)
    return known[name]
