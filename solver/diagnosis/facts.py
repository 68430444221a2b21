"""What a conflict is made of: rules, the memory of the GPUs, and fields of the scenario."""

from __future__ import annotations

from dataclasses import dataclass

from meshplan.constraints.problem import Problem
from meshplan.constraints.split_rules import split_rule
from meshplan.solver.judge import active_rules

#: Id of the fact that the layers must fit into the GPUs' memory.
MEMORY = "memory-capacity"
#: Field of the scenario that fixes how the layers are split.
PIPELINE_PIN = "options.pipeline_layout"
#: Rules that are the user's own limits, not the framework's: a memory conflict may rest on them.
LIMIT_RULES = ("tp-within-domain", "etp-within-domain", "ep-within-domain", "min-dp")


@dataclass(frozen=True)
class Fact:
    """One thing that a layout must respect: a rule, the memory, or a field of the scenario."""

    id: str
    is_pin: bool


def facts(problem: Problem) -> list[Fact]:
    """All facts, those a person is least likely to change first."""
    rules = [Fact(rule.id, is_pin=False) for rule in active_rules(problem)]
    rules.append(Fact(split_rule(problem).id, is_pin=False))
    pins = [Fact(path, is_pin=True) for path in dict.fromkeys(p.path for p in problem.pins)]
    if problem.layout_string is not None or problem.even_split:
        pins.append(Fact(PIPELINE_PIN, is_pin=True))
    return [*rules, Fact(MEMORY, is_pin=False), *pins]


def movable_facts(problem: Problem) -> list[Fact]:
    """The facts that a conflict about memory may rest on beside it: pins and the user's limits.

    The framework's own rules always hold there: no memory makes up for them.
    """
    return [fact for fact in facts(problem) if _can_save_memory(problem, fact)]


def _can_save_memory(problem: Problem, fact: Fact) -> bool:
    """Whether leaving a fact out can save memory (graphs that are off give none back)."""
    if fact.id == "options.cuda_graphs":
        return any(1 in pin.values for pin in problem.pins if pin.path == fact.id)
    return fact.is_pin or fact.id in LIMIT_RULES
