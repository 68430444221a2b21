"""Results as plain data: the JSON contract ``meshplan_result: 1``.

All kinds of result have the same top-level keys; what a result has not got is None or empty.
Memory is in GiB (three decimals), time in seconds (six decimals).
"""

from __future__ import annotations

import json
from typing import Any

from meshplan.constraints.calibrated import beyond_calibration
from meshplan.constraints.idle import offloaded_modules
from meshplan.constraints.layout import Layout
from meshplan.constraints.memory.stage import PARTS, RankMemory
from meshplan.constraints.memory.verdict import verdict
from meshplan.constraints.pipeline import format_layout
from meshplan.constraints.problem import QUANTA_PER_GIB, Problem
from meshplan.constraints.schedule import warmup_microbatches
from meshplan.solver.breakdown import step_breakdown_us
from meshplan.solver.even import even_split
from meshplan.solver.judge import Cost, model_tflops_per_gpu, peak_tflops
from meshplan.solver.report.cluster import cluster_data
from meshplan.solver.report.placement import placement_data
from meshplan.solver.results import (
    Alternative,
    CheckReport,
    Conflict,
    Infeasible,
    Plan,
    Proof,
    Relaxation,
    Unknown,
)
from meshplan.solver.time.step import slots_us
from meshplan.solver.time.trust import error_band

#: Version of the contract.
RESULT_VERSION = 1
#: Key of ``time.note``: why a step time has no error band.
NOT_CALIBRATED = "not-calibrated-for-gated-delta-net"

_DEGREES = ("tp", "cp", "pp", "vpp", "ep", "etp", "dp", "edp", "mbs", "ga", "gbs")


def plan_data(plan: Plan) -> dict[str, Any]:
    """A plan as plain data."""
    return {
        **_head(plan.problem, plan.status),
        **_layout_part(plan.problem, plan.layout, plan.cost),
        **_cost_part(plan.problem, plan.layout, plan.cost),
        "proof": _proof_data(plan.proof, _stopped_by(plan)),
        "advisories": _advisory_data(plan.advisories),
        "placement": placement_data(plan.problem, plan.layout),
        "cluster": cluster_data(plan.problem, plan.parts),
        "conflicts": [],
        "repairs": [],
        "assumed": list(plan.problem.assumed),
        "binding": list(plan.binding),
        "near_misses": list(plan.near_misses),
        "alternatives": _alternatives_data(plan),
        "top": [_other_data(plan.problem, one) for one in plan.top],
        "pareto": [_other_data(plan.problem, one) for one in plan.pareto],
        "relaxations": [_relaxation_data(plan.problem, one) for one in plan.relaxations],
        "unfinished": list(plan.unfinished),
        "scenario": dict(plan.problem.asked),
    }


def infeasible_data(result: Infeasible) -> dict[str, Any]:
    """A proof of infeasibility as plain data."""
    data = without_plan(result.problem, result.status)
    data["proof"] = search_data(result.wall_s, None, None)
    data["conflicts"] = [conflict_data(conflict) for conflict in result.conflicts]
    return data


def conflict_data(conflict: Conflict) -> dict[str, Any]:
    """A conflict as plain data."""
    return {
        "rules": list(conflict.rules),
        "pins": list(conflict.pins),
        "text": conflict.text,
        "minimal": conflict.minimal,
    }


def unknown_data(result: Unknown) -> dict[str, Any]:
    """An answer that a limit cut short, as plain data."""
    data = without_plan(result.problem, result.status)
    data["proof"] = search_data(result.wall_s, result.bound, result.stopped_by)
    return data


def check_data(report: CheckReport) -> dict[str, Any]:
    """A judgement of a layout as plain data; it has ``violations`` and no ``proof``."""
    problem, layout = report.problem, report.layout
    return {
        **_head(problem, report.status),
        "violations": [
            {
                "rule": one.rule,
                "text": one.text,
                "values": dict(one.values),
                "nearest": {name: list(values) for name, values in one.nearest.items()},
            }
            for one in report.violations
        ],
        **_layout_part(problem, layout, report.cost),
        **_cost_part(problem, layout, report.cost),
        "advisories": _advisory_data(report.advisories),
        "placement": placement_data(problem, layout),
        "cluster": cluster_data(problem),
        "assumed": list(report.assumed),
        "scenario": dict(problem.asked),
    }


def dumps(data: dict[str, Any]) -> str:
    """``data`` as JSON text with a line end: two spaces, keys in the order of the contract.

    Raises
    ------
    ValueError
        If a number is not finite: JSON has none such.
    """
    return json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


# -- parts -------------------------------------------------------------------------------------


def _head(problem: Problem, status: str) -> dict[str, Any]:
    return {
        "meshplan_result": RESULT_VERSION,
        "name": problem.name,
        "status": status,
    }


def without_plan(problem: Problem, status: str) -> dict[str, Any]:
    """All keys of a result that has no plan."""
    return {
        **_head(problem, status),
        "layout": None,
        "pipeline": None,
        "recompute": None,
        "optimizer_offload": None,
        "activation_offload": None,
        "dispatcher": None,
        "cuda_graphs": None,
        "memory": None,
        "time": None,
        "proof": None,
        "advisories": [],
        "placement": None,
        "cluster": cluster_data(problem),
        "conflicts": [],
        "repairs": [],
        "assumed": list(problem.assumed),
        "binding": [],
        "near_misses": [],
        "alternatives": [],
        "top": [],
        "pareto": [],
        "relaxations": [],
        "unfinished": [],
        "scenario": dict(problem.asked),
    }


def _layout_part(problem: Problem, layout: Layout, cost: Cost | None = None) -> dict[str, Any]:
    """All decisions; what the even split would cost only beside a ``cost``."""
    return {
        "layout": {
            **{name: getattr(layout, name) for name in _DEGREES},
            "gpus": layout.gpus,
            "cp_comm": layout.cp_comm,
        },
        "pipeline": _pipeline_data(problem, layout, cost) if layout.slots else None,
        "recompute": {"granularity": layout.granularity, "modules": list(layout.recompute)},
        "optimizer_offload": layout.offload / 100,
        "activation_offload": list(offloaded_modules(problem, layout)),
        "dispatcher": layout.dispatcher,
        "cuda_graphs": _graphs(problem, layout),
    }


def _graphs(problem: Problem, layout: Layout) -> list[str]:
    return ["full_iteration"] if problem.training.full_iteration_graph else list(layout.cuda_graphs)


def _pipeline_data(problem: Problem, layout: Layout, cost: Cost | None) -> dict[str, Any]:
    return {
        "layout": format_layout(layout.slots, problem.model.mtp_layers),
        "slots": [
            {
                "rank": index % layout.pp,
                "chunk": index // layout.pp,
                "layers": slot.count,
                "embedding": slot.embedding,
                "mtp": slot.mtp,
                "loss": slot.loss,
            }
            for index, slot in enumerate(layout.slots)
        ],
        "even": None if cost is None else _even_data(problem, layout),
        "slot_s": None if cost is None else _slot_seconds(problem, layout),
        "warm_up": [
            warmup_microbatches(layout.pp, layout.vpp, layout.ga, rank, problem.extra_warmup)
            for rank in range(layout.pp)
        ],
    }


def _slot_seconds(problem: Problem, layout: Layout) -> list[float]:
    return [_seconds(time_us / 1e6) for time_us in slots_us(problem, layout)]


def _even_data(problem: Problem, layout: Layout) -> dict[str, Any] | None:
    even = even_split(problem, layout)
    if even is None:
        return None
    return {
        "layout": format_layout(even.layout.slots, problem.model.mtp_layers),
        "exact": even.exact,
        "step_s": _seconds(even.cost.time.step_us / 1e6),
        "peak_gib": gib(even.cost.peak),
        "verdict": verdict(problem, even.cost.ranks),
    }


def _cost_part(problem: Problem, layout: Layout, cost: Cost | None) -> dict[str, Any]:
    if cost is None:
        return {"memory": None, "time": None}
    return {
        "memory": _memory_data(problem, layout, cost),
        "time": _time_data(problem, layout, cost),
    }


def _memory_data(problem: Problem, layout: Layout, cost: Cost) -> dict[str, Any]:
    fullest = max(cost.ranks, key=lambda rank: rank.peak)
    node_gpus = min(problem.cluster.node_gpus, layout.gpus)
    return {
        "capacity_gib": gib(problem.capacity),
        "peak_gib": gib(cost.peak),
        "verdict": verdict(problem, cost.ranks),
        "allocated_gib": gib(fullest.allocated),
        "reserved_gib": gib(fullest.reserved),
        "host_gpus": node_gpus,
        "host_capacity_gib": gib(problem.host_capacity * node_gpus),
        "host_gib": gib(max(rank.host for rank in cost.ranks) * node_gpus),
        "stages": [stage_data(rank) for rank in cost.ranks],
    }


def stage_data(rank: RankMemory) -> dict[str, Any]:
    """Memory of one pipeline rank as plain data."""
    return {
        "rank": rank.rank,
        **{f"{part}_gib": gib(getattr(rank, part)) for part in PARTS},
        "peak_gib": gib(rank.peak),
        "peak_event": rank.event,
        "events": {
            event.name: gib(rank.peak - rank.peak_event.total + event.total)
            for event in rank.events
        },
        "host_gib": gib(rank.host),
    }


def _time_data(problem: Problem, layout: Layout, cost: Cost) -> dict[str, Any]:
    step_us = cost.time.step_us
    # A mesh larger than the cluster is illegal; its rates are those of the GPUs that it would take.
    gpus = max(problem.gpus, layout.gpus)
    tflops = model_tflops_per_gpu(problem, layout, step_us) * problem.gpus / gpus
    label, peak = peak_tflops(problem)
    calibration, band = problem.calibration, error_band(problem)
    breakdown = step_breakdown_us(problem, layout, cost.time)
    return {
        "step_s": _seconds(step_us / 1e6),
        "tokens_per_s_per_gpu": round(layout.gbs * problem.seq_len / (step_us / 1e6) / gpus, 3),
        "model_tflops_per_gpu": round(tflops, 3),
        "mfu": _seconds(tflops / peak),
        "mfu_of": f"{label} peak of {peak:g} TFLOP/s",
        "breakdown": {name: _seconds(part / 1e6) for name, part in breakdown.items()},
        "error_band": band,
        "note": None if band is not None else NOT_CALIBRATED,
        "calibration": {
            "name": calibration.name,
            "date": calibration.date.isoformat(),
            "provenance": calibration.provenance,
            "beyond": [one.to_json() for one in beyond_calibration(problem)],
        },
    }


def _alternatives_data(plan: Plan) -> list[dict[str, Any]]:
    """Other layouts, the fastest first: by time per sequence, as batches may differ."""
    per_sequence_s = plan.cost.time.step_us / 1e6 / plan.layout.gbs
    ordered = sorted(plan.alternatives, key=lambda other: other.step_s / other.layout.gbs)
    return [
        {
            **_other_data(plan.problem, other),
            "note": _alternative_note(other, per_sequence_s),
        }
        for other in ordered
    ]


def _relaxation_data(problem: Problem, one: Relaxation) -> dict[str, Any]:
    layout = None if one.layout is None else _layout_part(problem, one.layout)["layout"]
    return {
        "key": one.key,
        "change": one.change,
        "path": one.path,
        "status": one.status,
        "step_s": None if one.step_s is None else _seconds(one.step_s),
        "gain": None if one.gain is None else _seconds(one.gain),
        "layout": layout,
    }


def _other_data(problem: Problem, other: Alternative) -> dict[str, Any]:
    return {
        **_layout_part(problem, other.layout),
        "step_s": _seconds(other.step_s),
        "peak_gib": round(other.peak_gib, 3),
    }


def _alternative_note(other: Alternative, plan_s: float) -> str:
    """The note of an alternative; one without a merit of its own is called slower if it is."""
    if other.note in ("", "within the tolerance") and other.step_s / other.layout.gbs > plan_s:
        return "slower, other degrees"
    return other.note


def _stopped_by(plan: Plan) -> str | None:
    if plan.status == "optimal":
        return None
    return plan.stopped_by or "limit"


def _proof_data(proof: Proof, stopped_by: str | None) -> dict[str, Any]:
    return {
        "objective": _seconds(proof.objective),
        "bound": _seconds(proof.bound),
        "gap": _seconds(proof.gap),
        "wall_s": round(proof.wall_s, 3),
        "cells": proof.cells,
        "programs": proof.programs,
        "stopped_by": stopped_by,
    }


def search_data(wall_s: float, bound: float | None, stopped_by: str | None) -> dict[str, Any]:
    """The proof of a search without a plan."""
    return {
        "objective": None,
        "bound": None if bound is None else _seconds(bound),
        "gap": None,
        "wall_s": round(wall_s, 3),
        "cells": None,
        "programs": None,
        "stopped_by": stopped_by,
    }


def _advisory_data(advisories: tuple[tuple[str, str], ...]) -> list[dict[str, str]]:
    return [{"id": name, "text": text} for name, text in advisories]


def gib(quanta: int) -> float:
    """Quanta in GiB, as results give them."""
    return round(quanta / QUANTA_PER_GIB, 3)


def _seconds(value: float) -> float:
    return round(value, 6)


__all__ = [
    "NOT_CALIBRATED",
    "RESULT_VERSION",
    "check_data",
    "conflict_data",
    "dumps",
    "gib",
    "infeasible_data",
    "plan_data",
    "search_data",
    "unknown_data",
    "without_plan",
]
