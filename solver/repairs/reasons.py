"""Why a lever cannot help, in the scenario's numbers."""

from __future__ import annotations

from meshplan.constraints.memory.items import itemize
from meshplan.constraints.problem import QUANTA_PER_GIB, Problem
from meshplan.solver.diagnosis.conflict import conflict
from meshplan.solver.found import to_layout
from meshplan.solver.repairs.results import Change
from meshplan.solver.repairs.trials import Trial, Trials
from meshplan.solver.search import Search

#: More memory than any layout needs, quanta.
_AMPLE = 1 << 40
_STATE = ("weights", "gradients", "optimizer")


def reason(trials: Trials, widest: Change, trial: Trial | None) -> str:
    """Why even the widest step of a lever leaves no layout."""
    if trial is None:
        return f"{widest.text}: no scenario may have this"
    if trial.least is None:
        return conflict(trial.problem, trials.deadline).text
    problem = trial.problem
    room = problem.capacity / QUANTA_PER_GIB
    least = trial.least / QUANTA_PER_GIB
    usable = f"{problem.node_type.name} has {room:.1f} GiB usable"
    if trial.least <= problem.capacity:
        return f"even with {widest.text} no split of the layers over the stages fits: {usable}"
    needed = f"each GPU must hold at least {least:.1f} GiB on average, and {usable}"
    return f"even with {widest.text} {needed}{_state(trial.problem)}"


def _state(problem: Problem) -> str:
    """What the state of the leanest layout that was met takes of the fullest rank."""
    search = Search(problem, capacity=_AMPLE)
    if not search.any_plan() or search.best is None:
        return ""
    layout = to_layout(search.best.decisions, search.best.slots)
    held: dict[str, int] = {}
    for rank in range(layout.pp):
        items = [item for item in itemize(problem, layout, rank) if item.part in _STATE]
        experts = sum(item.quanta for item in items if "routed experts" in item.name)
        whole = sum(item.quanta for item in items)
        if whole > sum(held.values()):
            held = {"routed experts": experts, "all else": whole - experts}
    return ""


__all__ = ["reason"]
