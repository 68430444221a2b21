"""Whether a conflict is one, and irreducible: judged apart from the procedure that found it.

Rules and pins are judged by enumerating all decisions.  Memory is judged by costing every layout
of a tiny problem; where these are too many, by a search of its own for each question.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from meshplan.constraints.layout_rules import ALL_LAYOUT_RULES
from meshplan.constraints.memory.stage import rank_memory
from meshplan.constraints.memory.verdict import has_room
from meshplan.constraints.problem import Problem
from meshplan.constraints.rules import ALL_RULES
from meshplan.constraints.split_rules import SLOTS_HOLD_LAYERS, SPLIT_RULES, split_rule
from meshplan.solver.diagnosis.facts import LIMIT_RULES, MEMORY
from meshplan.solver.diagnosis.words import broken_layout_rules
from meshplan.solver.judge import active_rules
from meshplan.solver.results import Conflict
from meshplan.solver.search import Search
from tests.solver.oracle import cells, splits, to_layout
from tests.solver.small import with_capacity

#: Layouts that are costed one by one, at most.
MOST_LAYOUTS = 400
_PIPELINE = "options.pipeline_layout"


def faults(problem: Problem, found: Conflict) -> list[str]:
    """What is wrong with a conflict that is said to be minimal; nothing, if all is well."""
    facts = {*found.rules, *(pin.split(" = ")[0] for pin in found.pins)}
    wrong = [] if facts else ["no facts"]
    if possible(problem, facts):
        wrong.append("the facts can hold together")
    for fact in sorted(facts):
        if fact == MEMORY:
            # Without the limit of memory the same pins and limits have a legal layout.
            limits = {rule.id for rule in active_rules(problem)} - (set(LIMIT_RULES) - facts)
            needed = not possible(with_capacity(_on_large_hosts(problem), 1 << 30), facts | limits)
        else:
            needed = not possible(problem, facts - {fact})
        if needed:
            wrong.append(f"without {fact} the rest still clashes")
    return wrong


def possible(problem: Problem, facts: set[str]) -> bool:
    """Whether any layout respects these facts."""
    active = active_rules(problem)
    paths = {fact for fact in facts if "." in fact}
    where = _restricted(problem, paths)
    if MEMORY in facts:
        return _fits(where, facts)
    named = {rule.id for rule in (*active, *ALL_RULES, *SPLIT_RULES)}
    layout_rules = facts - named - paths
    if layout_rules:  # a layout string breaks rules on slots whatever the degrees
        broken = {rule.id for rule in broken_layout_rules(where)}
        return not layout_rules & broken
    rules = [rule for rule in active if rule.id in facts]
    split = split_rule(problem)
    if split.id in facts and (split.id == SLOTS_HOLD_LAYERS.id or _PIPELINE in facts):
        rules.append(split)
    return next(cells(where, rules, read_only=True), None) is not None


def _fits(where: Problem, facts: set[str]) -> bool:
    """Whether any layout fits in memory; the framework's own rules hold anyway."""
    rules = [r for r in active_rules(where) if r.id in facts or r.id not in LIMIT_RULES]
    costed = 0
    for cell in cells(where, rules):
        for slots in splits(where, int(cell["pp"]), int(cell["vpp"])):
            layout = to_layout(cell, slots)
            if any(rule.check(where, layout) is not None for rule in ALL_LAYOUT_RULES):
                continue
            if has_room(where, [rank_memory(where, layout, rank) for rank in range(layout.pp)]):
                return True
            costed += 1
            if costed > MOST_LAYOUTS:
                return Search(where, rules=rules, pins=where.pinned).any_plan()
    return False


def _on_large_hosts(problem: Problem) -> Problem:
    node = problem.node_type.model_copy(update={"host_memory_gib": 1e6})
    cluster = dataclasses.replace(problem.cluster, node_type=node)
    return dataclasses.replace(problem, cluster=cluster)


def _restricted(problem: Problem, paths: set[str]) -> Problem:
    """The problem with the pins at these paths only; others may take any known value."""
    candidates = dict(problem.candidates)
    for pin in problem.pins:
        if pin.decision in candidates:
            candidates[pin.decision] = tuple(
                dict.fromkeys((*candidates[pin.decision], *pin.values))
            )
    kept: dict[str, Any] = {
        "pins": tuple(pin for pin in problem.pins if pin.path in paths),
        "candidates": candidates,
    }
    if _PIPELINE not in paths:
        kept |= {"layout_string": None, "even_split": False}
    return dataclasses.replace(problem, **kept)


__all__ = ["faults", "possible"]
