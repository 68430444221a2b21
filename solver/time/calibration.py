"""Efficiency parameters of the step-time model, as data with provenance and error band."""

from __future__ import annotations

import datetime
from functools import lru_cache
from importlib import resources
from typing import TYPE_CHECKING

import yaml
from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    from meshplan.constraints.problem import Problem

#: Attention that the fit does not cover.  On published runs of Qwen3-Next on GB200 the model is off
#: by a factor of 1.7 at 8K tokens to 6 at 64K (Megatron-Bridge, long-context card).
LINEAR_ATTENTION = frozenset(("gdn", "mamba"))


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


def error_band(problem: Problem) -> float | None:
    """Relative error of the predicted step time; None where nothing is known about it.

    That is so for models with linear attention (gated delta net, Mamba): their layers are a guess,
    and the band of the calibration says nothing about them.
    """
    if any(kind.attention in LINEAR_ATTENTION for kind in problem.kinds):
        return None
    return default_calibration().error_band
