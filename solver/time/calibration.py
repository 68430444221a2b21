"""Efficiency parameters of the step-time model, as data with provenance and error band."""

from __future__ import annotations

import datetime
from functools import lru_cache
from importlib import resources

import yaml
from pydantic import BaseModel, ConfigDict, Field


class Efficiencies(BaseModel):
    """Fractions of data-sheet peaks and a few constants; see ``data/default.yaml``."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    gemm_bf16: float = Field(gt=0, le=1)
    gemm_fp8: float = Field(gt=0, le=1)
    gemm_hopper_bf16_factor: float = Field(gt=0, le=2)
    gemm_nvfp4_factor: float = Field(gt=0, le=2)
    gemm_blockwise_factor: float = Field(gt=0, le=2)
    attention_hopper: float = Field(gt=0, le=1)
    attention_blackwell: float = Field(gt=0, le=1)
    attention_mla_hopper: float = Field(gt=0, le=2)
    attention_mla_blackwell: float = Field(gt=0, le=2)
    memory: float = Field(gt=0, le=1)
    memory_hopper_factor: float = Field(gt=0, le=3)
    memory_stream: float = Field(gt=0, le=1)
    ultra_factor: float = Field(gt=0, le=2)
    expert_overlap: float = Field(ge=0, le=1)
    nvlink: float = Field(gt=0, le=1)
    nic_dispatch: float = Field(gt=0, le=1)
    nic_hybridep: float = Field(gt=0, le=1)
    host_moe_layer_ms: float = Field(ge=0)


class Calibration(BaseModel):
    """One set of efficiencies with where it comes from and how far to trust it.

    ``error_band`` is the relative error of predicted throughput on rows that the fit has not
    seen: two layouts closer than that are ties for all that is known.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    date: datetime.date
    error_band: float = Field(gt=0, lt=1)
    provenance: str
    parameters: Efficiencies


@lru_cache(maxsize=1)
def default_calibration() -> Calibration:
    """The calibration that ships with meshplan."""
    text = resources.files("meshplan.solver.time").joinpath("data/default.yaml").read_text("utf-8")
    return Calibration.model_validate(yaml.safe_load(text))
