"""Efficiency parameters of the step-time model, as data with provenance and error band."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PositiveInt,
    ValidationError,
    model_validator,
)

from meshplan.scenarios.checks import refusal
from meshplan.scenarios.model_card import ModelCard

#: The calibration that ships with meshplan.
DEFAULT_FILE = Path(__file__).parent / "calibrations" / "default.yaml"

#: Factors on the host time of a layer that are counted now, call by call.
_REPLACED = ("host_tensor_factor", "host_mla_factor")


class Efficiencies(BaseModel):
    """Fractions of data-sheet peaks and a few constants; see ``calibrations/default.yaml``."""

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
    attention_kernels: float = Field(default=1.0, gt=0, le=1.5)
    memory: float = Field(gt=0, le=1)
    memory_hopper_factor: float = Field(gt=0, le=3)
    memory_stream: float = Field(gt=0, le=1)
    ultra_factor: float = Field(gt=0, le=2)
    expert_overlap: float = Field(ge=0, le=1)
    tensor_overlap: float = Field(default=0.70, ge=0, le=1)
    fused_mlp: float = Field(default=0.46, gt=0, le=1)
    nvlink: float = Field(gt=0, le=1)
    nic_dispatch: float = Field(gt=0, le=1)
    nic_hybridep: float = Field(gt=0, le=1)
    host_moe_layer_ms: float = Field(ge=0)
    host_collective_us: float = Field(default=600.0, ge=0, le=5000)
    expert_gemm_us: float = Field(default=0.0, ge=0, le=200)

    @model_validator(mode="before")
    @classmethod
    def _without_replaced(cls, data: object) -> object:
        """Say what took the place of factors that older files name."""
        for name in _REPLACED:
            if isinstance(data, Mapping) and name in data:
                raise refusal(
                    "was replaced by host_collective_us, the time of each collective that the host "
                    "calls",
                    f"remove {name}, and run meshplan calibrate again.",
                    (name,),
                )
        return data


class Covered(BaseModel):
    """What the runs of a fit were like: far outside, nothing has held the prediction to a run.

    Ranges are least and most.  ``layers`` are kinds of decoder layers, such as ``gqa+moe``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    runs: int = Field(ge=1)
    seq_len: tuple[PositiveInt, PositiveInt]
    gpus: tuple[PositiveInt, PositiveInt]
    precisions: tuple[str, ...] = Field(min_length=1)
    gpu_types: tuple[str, ...] = Field(min_length=1)
    layers: tuple[str, ...] = Field(min_length=1)


class Calibration(BaseModel):
    """One set of efficiencies with where it comes from and how far to trust it.

    ``error_band`` is the relative error of predicted throughput on rows that the fit has not
    seen: two layouts closer than that are ties for all that is known.  ``covers`` says what the
    rows were like, if that is known.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    date: datetime.date
    error_band: float = Field(gt=0, lt=1)
    provenance: str
    covers: Covered | None = None
    parameters: Efficiencies

    def with_parameters(self, changes: Mapping[str, float]) -> Calibration:
        """The same with other values of some efficiencies, which are not checked."""
        parameters = self.parameters.model_copy(update=dict(changes))
        changed: Calibration = self.model_copy(update={"parameters": parameters})
        return changed


#: Linear attention whose predicted times nothing holds: on published runs of Qwen3-Next on GB200
#: they are off by a factor of 1.5 at 8K tokens to 5 at 64K (Megatron-Bridge, long-context card).
UNTRUSTED_ATTENTION = "gdn"
#: Linear attention that is a guess as well, but whose 35 published runs (three Nemotron-H models,
#: none with context parallelism), each model left out of the fit, are met within 15 %, but for one
#: in ten: the band of models with softmax attention, so much wider.
WIDENED_ATTENTION, WIDENING = "mamba", 1.5


def error_band(card: ModelCard, calibration: Calibration) -> float | None:
    """Relative error of the predicted step time of a model; None where nothing is known about it.

    Layers of linear attention are a guess that no fit covers: with Mamba the calibration's band is
    widened by :data:`WIDENING`, with gated delta net there is none.
    """
    attentions = {kind.attention for kind in card.kinds}
    if UNTRUSTED_ATTENTION in attentions:
        return None
    if WIDENED_ATTENTION in attentions:
        return min(1.0, WIDENING * calibration.error_band)
    return calibration.error_band


@lru_cache(maxsize=1)
def default_calibration() -> Calibration:
    """The calibration that ships with meshplan."""
    return Calibration.model_validate(yaml.safe_load(DEFAULT_FILE.read_text(encoding="utf-8")))


def read_calibration(path: Path) -> Calibration:
    """A calibration in a file, such as ``meshplan calibrate`` writes.

    Raises
    ------
    InputError
        If it cannot be read, or a value is not allowed.
    """
    from meshplan.scenarios.complaints import input_error
    from meshplan.scenarios.source_map import SourceMap
    from meshplan.scenarios.yaml_reader import read_yaml_file

    document = read_yaml_file(path)
    source = SourceMap(str(path), dict(document.lines))
    if not isinstance(document.value, Mapping):
        raise source.error((), "the calibration is no mapping", "write it with meshplan calibrate.")
    try:
        return Calibration.model_validate(dict(document.value))
    except ValidationError as error:
        raise input_error(error, Calibration, source) from None
