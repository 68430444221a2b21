"""The form of a diagnosis as JSON: its own keys one by one, those of other results as they are."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from meshplan.solver.diagnosis.result import Part


class _Exact(BaseModel):
    """No other keys, no other types."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class ConflictForm(_Exact):
    """Facts that cannot hold together."""

    rules: list[str]
    pins: list[str]
    text: str
    minimal: bool


class FindingForm(_Exact):
    """A floor that is too high."""

    rule: str
    needed: float
    available: float
    unit: str
    text: str


class ChangeForm(_Exact):
    """One field changed."""

    path: str
    before: Any = Field(alias="from")
    after: Any = Field(alias="to")
    change: str


class RepairResultForm(_Exact):
    """The plan that a repair buys."""

    status: Literal["optimal", "feasible"]
    layout: dict[str, Any]
    pipeline: dict[str, Any] | None
    recompute: dict[str, Any]
    optimizer_offload: float
    dispatcher: str
    step_s: float
    tokens_per_s_per_gpu: float
    model_tflops_per_gpu: float
    peak_gib: float
    capacity_gib: float
    verdict: Literal["fits", "tight", "overfull"]


class RepairForm(_Exact):
    """Changes that make a layout possible; ``path``, ``from``, ``to`` where it is one."""

    lever: str
    change: str
    path: str | None
    before: Any = Field(alias="from")
    after: Any = Field(alias="to")
    changes: list[ChangeForm] = Field(min_length=1)
    verified: bool
    result: RepairResultForm | None


class NoHelpForm(_Exact):
    """A lever that cannot help by itself."""

    lever: str
    reason: str


class DiagnosisForm(BaseModel):
    """What ``meshplan diagnose --json`` writes; keys of a plan are those of ``meshplan solve``."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True, title="meshplan diagnosis")

    meshplan_result: Literal[1]
    name: str
    status: Literal["infeasible", "possible", "unknown"]
    cause: str
    facts: dict[str, float]
    arithmetic: list[FindingForm]
    conflicts: list[ConflictForm]
    complete: bool
    repairs: list[RepairForm]
    no_help: list[NoHelpForm]
    near_misses: list[str]
    cut_short: list[Part]
    stated: list[str]
    assumed: list[str]
    scenario: dict[str, Any]


def diagnosis_schema() -> dict[str, Any]:
    """JSON Schema of a diagnosis."""
    return DiagnosisForm.model_json_schema(by_alias=True)


__all__ = ["DiagnosisForm", "diagnosis_schema"]
