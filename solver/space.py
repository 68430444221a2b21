"""The search space of one pipeline degree: which degrees and options may be combined."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from meshplan.constraints.layout import Slot, Value
from meshplan.constraints.memory.activations import exchange_activation
from meshplan.constraints.memory.working import ring_working
from meshplan.constraints.pipeline import even_slots, parse_layout
from meshplan.constraints.problem import Problem
from meshplan.constraints.rule import Rule
from meshplan.constraints.split_rules import split_rule
from meshplan.solver.axes import AXIS_DECISIONS, Axes
from meshplan.solver.meshes import MESH, mesh_table
from meshplan.solver.time.attention import core_us
from meshplan.solver.time.launches import context_calls_us


def build_axes(
    problem: Problem,
    pp: int,
    rules: Sequence[Rule],
    pins: dict[str, tuple[Value, ...]],
    vpp: Sequence[int],
) -> Axes:
    """Axes of one pipeline degree; the mesh axis has legal rows only (maybe none)."""
    meshes = mesh_table(problem, pp, rules, pins)
    names = (*MESH, "cp_comm")
    rows = _with_exchange(problem, meshes.rows, rules, pins)
    others: dict[str, list[tuple[Value, ...]]] = {}
    for axis, decisions in AXIS_DECISIONS.items():
        domains = [pins.get(n, problem.candidates[n]) for n in decisions]
        if axis == "vpp":
            domains = [tuple(vpp)]
        inside = [rule for rule in rules if set(rule.scope) <= set(decisions)]
        others[axis] = [
            values
            for values in itertools.product(*domains)
            if _holds_all(problem, inside, dict(zip(decisions, values, strict=True)))
        ]
    others["recompute"] = _undominated_recompute(others["recompute"], pins)
    return Axes(problem, pp, names, rows, others)


def _holds_all(problem: Problem, rules: Iterable[Rule], named: dict[str, Value]) -> bool:
    return all(rule.holds(problem, *(named[n] for n in rule.scope)) for rule in rules)


def _undominated_recompute(
    choices: list[tuple[Value, ...]], pins: dict[str, tuple[Value, ...]]
) -> list[tuple[Value, ...]]:
    """Leave out choices that recompute a part of what another module of theirs recomputes.

    ``moe`` replays the whole MoE half, so with it ``moe_act`` and ``shared_experts`` change
    neither memory nor time.
    """
    names = AXIS_DECISIONS["recompute"]
    moe, parts = (
        names.index("rc_moe"),
        [names.index("rc_moe_act"), names.index("rc_shared_experts")],
    )
    return [
        choice
        for choice in choices
        if not (choice[moe] and any(choice[p] and names[p] not in pins for p in parts))
    ]


def _with_exchange(
    problem: Problem,
    rows: Sequence[tuple[int, ...]],
    rules: Sequence[Rule],
    pins: dict[str, tuple[Value, ...]],
) -> list[tuple[Value, ...]]:
    """Extend mesh rows by the context-parallel exchanges that are legal and not slower.

    The exchange changes nothing but the time of the attention core, the calls of the host and what
    it keeps, so one that is nowhere better than another, for no layer kind and recompute, is never
    needed.  (A graph that captures the calls takes them all away.)
    """
    known = {"pp", "cp_comm", *MESH}
    inside = [r for r in rules if "cp_comm" in r.scope and set(r.scope) <= known]
    domain = pins.get("cp_comm", problem.candidates["cp_comm"])
    column = {name: i for i, name in enumerate(MESH)}
    cache: dict[tuple[int, int, int], list[Value]] = {}
    extended: list[tuple[Value, ...]] = []
    for row in rows:
        key = (row[column["tp"]], row[column["cp"]], row[column["mbs"]])
        if key not in cache:
            named: dict[str, Value] = dict(zip(MESH, row, strict=True))
            legal = [c for c in domain if _holds_all(problem, inside, named | {"cp_comm": c})]
            cache[key] = _fastest(problem, *key, legal)
        extended += [(*row, choice) for choice in cache[key]]
    return extended


def _fastest(problem: Problem, tp: int, cp: int, mbs: int, legal: list[Value]) -> list[Value]:
    tokens = problem.tokens(cp, mbs)
    times = {
        choice: (
            *(
                core_us(problem, kind, tp, cp, mbs, str(choice), replay, 0)
                for kind in problem.cost_kinds
                for replay in (0, 1)
            ),
            *(
                context_calls_us(problem, kind, tp, cp, str(choice), replay, 0, 0, 0)
                for kind in problem.cost_kinds
                for replay in (0, 1)
            ),
            *(
                exchange_activation(problem, kind, tp, tokens, cp, str(choice), 0)
                for kind in problem.cost_kinds
            ),
            ring_working(problem, tp, tokens, cp, str(choice), 0, 0, 0, 0),
        )
        for choice in legal
    }
    kept: list[Value] = []
    for choice in legal:
        if not any(all(a <= b for a, b in zip(times[k], times[choice], strict=True)) for k in kept):
            kept = [
                k
                for k in kept
                if not all(a <= b for a, b in zip(times[choice], times[k], strict=True))
            ]
            kept.append(choice)
    return kept


def vpp_choices(problem: Problem, pp: int, pins: dict[str, tuple[Value, ...]]) -> list[int]:
    """Virtual pipeline degrees that the split of the layers allows."""
    domain = [int(v) for v in pins.get("vpp", problem.candidates["vpp"])]
    rule = split_rule(problem)
    allowed = [v for v in domain if rule.holds(problem, pp, v)]
    return [v for v in allowed if pp > 1 or v == 1 or "vpp" in pins]


def _even(problem: Problem, pp: int, vpp: int) -> tuple[Slot, ...] | None:
    return even_slots(problem.model.layers, pp, vpp, mtp=problem.model.mtp_layers > 0)


def fixed_slots(problem: Problem, pp: int, vpp: int) -> tuple[Slot, ...] | None:
    """The slots, if the scenario fixes the split."""
    if problem.layout_string is not None:
        return parse_layout(problem.layout_string)
    if problem.even_split or pp * vpp == 1:
        return _even(problem, pp, vpp)
    return None


__all__ = ["build_axes", "fixed_slots", "vpp_choices"]
