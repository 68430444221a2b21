"""Judge a concrete layout without any solver: rules, memory by stage, step time.

What this module cannot confirm is never printed: every plan that the search returns passes
through :func:`cost` and :func:`violations` first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from meshplan.constraints.layout import Layout
from meshplan.constraints.layout_rules import ALL_LAYOUT_RULES
from meshplan.constraints.memory.stage import RankMemory, rank_memory
from meshplan.constraints.problem import Problem, scope_values
from meshplan.constraints.rule import Rule, Violation
from meshplan.constraints.rules import ALL_RULES
from meshplan.scenarios.flops import flops_per_token
from meshplan.solver.time.step import StepTime, step_time

#: A peak within this share of the capacity must be tested before it is believed.
TIGHT_SHARE = 0.05


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


def violations(
    problem: Problem, layout: Layout, rules: Iterable[Rule] | None = None
) -> list[Violation]:
    """All rules that a layout breaks, each with its numbers and nearest legal values."""
    found: list[Violation] = []
    for rule in active_rules(problem) if rules is None else rules:
        values = scope_values(problem, layout, rule.scope)
        if rule.holds(problem, *values):
            continue
        named = dict(zip(rule.scope, values, strict=True))
        nearest = {
            name: legal for name in rule.scope if (legal := _nearest(problem, rule, layout, name))
        }
        found.append(Violation(rule.id, rule.explain(problem, *values), named, nearest))
    for layout_rule in ALL_LAYOUT_RULES:
        text = layout_rule.check(problem, layout)
        if text is not None:
            found.append(Violation(layout_rule.id, text, {}, {}))
    return found


def _nearest(problem: Problem, rule: Rule, layout: Layout, name: str) -> list[int | str]:
    """Up to two values of one decision, nearest first, that alone would satisfy the rule."""
    now = layout.value(name) if name not in ("attention_tokens", "moe_tokens") else 0
    index = rule.scope.index(name)
    values = list(scope_values(problem, layout, rule.scope))
    if isinstance(now, str):
        options = [v for v in problem.candidates.get(name, ()) if v != now]
    else:
        now = int(now)
        numbers = {now // d for d in range(1, 65)} | {now + d for d in range(-8, 9)}
        numbers |= {now * d for d in range(2, 9)} | {1 << i for i in range(18)}
        if name.startswith(("rc_", "cg_")):
            numbers = {0, 1}
        near = sorted((v for v in numbers if v >= 0 and v != now), key=lambda v: abs(v - now))
        options = list(near)
        if not name.startswith(("rc_", "cg_")) and name != "offload":
            options = [v for v in options if int(v) >= 1]
    legal: list[int | str] = []
    for option in options:
        values[index] = option
        if rule.holds(problem, *values):
            legal.append(option)
        if len(legal) == 2:
            break
    return legal


def model_tflops_per_gpu(problem: Problem, layout: Layout, step_us: int) -> float:
    """Model TFLOP/s of one GPU (Megatron's counting: causal attention counted half)."""
    flops = flops_per_token(problem.model, problem.seq_len).total
    tokens = layout.gbs * problem.seq_len
    return flops * tokens / step_us / problem.gpus / 1e6


def per_sample_us(step_us: int, gbs: int, largest_gbs: int) -> int:
    """Step time scaled to the largest batch that the scenario allows, rounded up."""
    return -(-step_us * largest_gbs // gbs)
