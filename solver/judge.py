"""Judge a concrete layout without any solver: rules, memory by stage, step time.

What this module cannot confirm is never printed: every plan that the search returns passes
through :func:`cost` and :func:`violations` first.
"""

from __future__ import annotations

from dataclasses import dataclass

from meshplan.constraints.layout import Layout
from meshplan.constraints.layout_rules import ALL_LAYOUT_RULES
from meshplan.constraints.memory.stage import RankMemory, rank_memory
from meshplan.constraints.problem import Problem, scope_values
from meshplan.constraints.rule import Rule, Violation
from meshplan.constraints.rules import ALL_RULES
from meshplan.scenarios.flops import flops_per_token
from meshplan.solver.time.step import StepTime, step_time


@dataclass(frozen=True)
class Cost:
    """What a layout costs: memory of each pipeline rank and the step time."""

    ranks: tuple[RankMemory, ...]
    time: StepTime

    @property
    def peak(self) -> int:
        """Peak of the heaviest rank, in quanta."""
        return max(rank.peak for rank in self.ranks)


def cost(problem: Problem, layout: Layout) -> Cost:
    """Memory and step time of a layout whose slots are set."""
    ranks = tuple(rank_memory(problem, layout, rank) for rank in range(layout.pp))
    return Cost(ranks, step_time(problem, layout))


def active_rules(problem: Problem) -> tuple[Rule, ...]:
    """Rules that can bite in this problem, in catalogue order."""
    return tuple(rule for rule in ALL_RULES if rule.applies(problem))


def violations(problem: Problem, layout: Layout) -> list[Violation]:
    """All rules that a layout breaks, each with its numbers; :mod:`.nearest` adds remedies."""
    found: list[Violation] = []
    for rule in active_rules(problem):
        values = scope_values(problem, layout, rule.scope)
        if rule.holds(problem, *values):
            continue
        named = dict(zip(rule.scope, values, strict=True))
        found.append(Violation(rule.id, rule.explain(problem, *values), named, {}))
    for layout_rule in ALL_LAYOUT_RULES:
        text = layout_rule.check(problem, layout)
        if text is not None:
            found.append(Violation(layout_rule.id, text, {}, {}))
    return found


def model_tflops_per_gpu(problem: Problem, layout: Layout, step_us: int) -> float:
    """Model TFLOP/s of one GPU (Megatron's counting: causal attention counted half)."""
    flops = flops_per_token(problem.model, problem.seq_len).total
    tokens = layout.gbs * problem.seq_len
    return flops * tokens / step_us / problem.gpus / 1e6


def peak_tflops(problem: Problem) -> tuple[str, float]:
    """Peak that the utilisation is measured against: that of the compute precision."""
    node = problem.node_type
    if problem.precision == "nvfp4" and node.fp4_tflops is not None:
        return "fp4", node.fp4_tflops
    if problem.is_fp8 and node.fp8_tflops is not None:
        return "fp8", node.fp8_tflops
    return "bf16", node.bf16_tflops
