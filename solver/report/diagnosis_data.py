"""A diagnosis as plain data: ``meshplan_result: 1`` with the keys of a diagnosis."""

from __future__ import annotations

from typing import Any

from meshplan.solver.diagnosis.result import Diagnosis
from meshplan.solver.repairs import Repair
from meshplan.solver.report.data import conflict_data, plan_data, search_data, without_plan
from meshplan.solver.results import Plan

#: Keys of a plan that the result of a repair keeps.
_OF_PLAN = ("status", "layout", "pipeline", "recompute", "optimizer_offload", "dispatcher")
_OF_TIME = ("step_s", "tokens_per_s_per_gpu", "model_tflops_per_gpu")
_OF_MEMORY = ("peak_gib", "capacity_gib", "verdict")


def diagnosis_data(found: Diagnosis) -> dict[str, Any]:
    """A diagnosis as plain data; where a plan exists, with the keys of the plan."""
    if found.plan is None:
        data = without_plan(found.problem, found.status)
        data["proof"] = search_data(found.wall_s, None, None)
    else:
        data = {**plan_data(found.plan), "status": found.status}
    data["conflicts"] = [conflict_data(one) for one in found.conflicts]
    data["repairs"] = [repair_data(one) for one in found.repairs]
    return data | {
        "cause": found.cause,
        "facts": dict(found.facts),
        "arithmetic": [
            {
                "rule": one.rule,
                "needed": one.needed,
                "available": one.available,
                "unit": one.unit,
                "text": one.text,
            }
            for one in found.findings
        ],
        "complete": found.complete,
        "no_help": [{"lever": one.lever, "reason": one.reason} for one in found.no_help],
        "near_misses": list(found.near_misses),
        "cut_short": list(found.cut_short),
        "stated": list(found.stated),
    }


def repair_data(repair: Repair) -> dict[str, Any]:
    """A repair as plain data; ``path``, ``from`` and ``to`` only where one thing is changed."""
    single = repair.changes[0] if len(repair.changes) == 1 else None
    return {
        "lever": repair.lever,
        "change": "; ".join(change.text for change in repair.changes),
        "path": None if single is None else single.path,
        "from": None if single is None else single.before,
        "to": None if single is None else single.after,
        "changes": [
            {"path": one.path, "from": one.before, "to": one.after, "change": one.text}
            for one in repair.changes
        ],
        "verified": repair.verified,
        "result": None if repair.plan is None else plan_figures(repair.plan),
    }


def plan_figures(plan: Plan) -> dict[str, Any]:
    """What a plan is, in the few figures by which repairs are compared."""
    data = plan_data(plan)
    return {
        **{key: data[key] for key in _OF_PLAN},
        **{key: data["time"][key] for key in _OF_TIME},
        **{key: data["memory"][key] for key in _OF_MEMORY},
    }
