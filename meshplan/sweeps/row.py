"""What one scenario of a sweep came to: a row of plain values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from meshplan.solver.results import Infeasible, Plan, Unknown

#: A row without its swept fields: value by column.
Row = Mapping[str, Any]

#: Degrees and batch, as ``layout`` of the JSON has them.
_LAYOUT = ("tp", "cp", "pp", "vpp", "dp", "ep", "etp", "edp", "mbs", "ga", "gbs", "gpus")

#: Type of each column, in their order.  ``_gib`` are GiB on the fullest GPU; ``step_s`` and
#: ``bound_s`` seconds; ``mfu`` and ``gap`` fractions.
COLUMNS: Mapping[str, type] = {
    "status": str,
    "cluster_gpus": int,
    **dict.fromkeys(_LAYOUT, int),
    "cp_comm": str,
    "split": str,
    "recompute": str,
    "optimizer_offload": float,
    "activation_offload": str,
    "dispatcher": str,
    "cuda_graphs": str,
    "peak_gib": float,
    "capacity_gib": float,
    "headroom_gib": float,
    "step_s": float,
    "tokens_per_s_per_gpu": float,
    "tokens_per_s": float,
    "model_tflops_per_gpu": float,
    "mfu": float,
    "bound_s": float,
    "gap": float,
    "conflict": str,
    "error": str,
    "scenario": str,
}


def row_of(result: Plan | Infeasible | Unknown, key: str) -> dict[str, Any]:
    """The row of a result; nothing in it depends on how long the search took."""
    data: dict[str, Any] = result.to_json()
    row: dict[str, Any] = dict.fromkeys(COLUMNS)
    row |= {
        "status": data["status"],
        "cluster_gpus": data["cluster"]["gpus"],
        "bound_s": data["proof"]["bound"] or None,  # nothing is proved by a bound of 0
        "gap": data["proof"]["gap"],
        "conflict": "; ".join(" + ".join(_members(one)) for one in data["conflicts"]) or None,
        "scenario": key,
    }
    return row | _plan_columns(data) if data["layout"] is not None else row


def failed_row(key: str, error: str) -> dict[str, Any]:
    """The row of a scenario that has no answer, by a fault."""
    return dict.fromkeys(COLUMNS) | {"status": "error", "error": error, "scenario": key}


def fault_row(key: str, fault: BaseException) -> dict[str, Any]:
    """The row of a scenario that a fault of ours, or of the cluster, left without an answer."""
    return failed_row(key, f"{type(fault).__name__}: {' '.join(str(fault).split())[:300]}")


def _members(conflict: Mapping[str, Any]) -> list[str]:
    return [*conflict["rules"], *conflict["pins"]]


def _joined(names: Iterable[str]) -> str:
    return ",".join(names) or "none"


def _plan_columns(data: Mapping[str, Any]) -> dict[str, Any]:
    layout, memory, time = data["layout"], data["memory"], data["time"]
    recompute, pipeline = data["recompute"], data["pipeline"]
    full = recompute["granularity"] == "full"
    tokens = layout["gbs"] * data["scenario"]["workload"]["seq_len"]
    return {
        **{name: layout[name] for name in (*_LAYOUT, "cp_comm")},
        "split": pipeline["layout"] if pipeline else None,
        "recompute": "full" if full else _joined(recompute["modules"]),
        "optimizer_offload": data["optimizer_offload"],
        "activation_offload": _joined(data["activation_offload"]),
        "dispatcher": data["dispatcher"],
        "cuda_graphs": _joined(data["cuda_graphs"]),
        "peak_gib": memory["peak_gib"],
        "capacity_gib": memory["capacity_gib"],
        "headroom_gib": round(memory["capacity_gib"] - memory["peak_gib"], 3),
        "step_s": time["step_s"],
        "tokens_per_s_per_gpu": time["tokens_per_s_per_gpu"],
        "tokens_per_s": round(tokens / time["step_s"], 1),
        "model_tflops_per_gpu": time["model_tflops_per_gpu"],
        "mfu": time["mfu"],
    }


__all__ = ["COLUMNS", "Row", "failed_row", "fault_row", "row_of"]
