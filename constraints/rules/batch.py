"""The batch: micro-batches on all data-parallel ranks add up to the global batch."""

from __future__ import annotations

from meshplan.constraints.problem import Problem
from meshplan.constraints.rule import Rule
from meshplan.constraints.rules.sources import MICROBATCHES
from meshplan.constraints.rules.wording import nearest_multiples


def _gbs_holds(_: Problem, gbs: int, mbs: int, dp: int, ga: int) -> bool:
    return gbs == mbs * dp * ga


def _gbs_explain(_: Problem, gbs: int, mbs: int, dp: int, ga: int) -> str:
    step = mbs * dp
    if gbs % step == 0:
        return (
            f"gbs = {gbs} over mbs*dp = {mbs}*{dp} = {step} makes ga = {gbs // step}, "
            f"but ga is {ga}, which makes gbs = {step * ga}"
        )
    return (
        f"gbs = {gbs} is not a multiple of mbs*dp = {mbs}*{dp} = {step} (remainder "
        f"{gbs % step}); gbs = {nearest_multiples(step, gbs)} would be"
    )


def _min_dp_holds(problem: Problem, dp: int) -> bool:
    return dp >= problem.limits.min_dp


def _min_dp_explain(problem: Problem, dp: int) -> str:
    return f"dp = {dp} is below limits.min_dp = {problem.limits.min_dp}"


GBS_DIVISIBLE = Rule(
    id="gbs-divisible",
    scope=("gbs", "mbs", "dp", "ga"),
    holds=_gbs_holds,
    explain=_gbs_explain,
    formula="gbs == mbs*dp*ga",
    why="Each optimizer step runs ga micro-batches of mbs sequences on every data-parallel rank.",
    source=MICROBATCHES,
    family="batch",
    fields=("workload.global_batch_size", "layout.mbs", "layout.dp", "layout.ga"),
)

MIN_DP = Rule(
    id="min-dp",
    scope=("dp",),
    holds=_min_dp_holds,
    explain=_min_dp_explain,
    formula="dp >= limits.min_dp",
    why="The scenario asks for at least this much data parallelism.",
    source="the scenario (limits.min_dp)",
    family="batch",
    applies=lambda problem: problem.limits.min_dp > 1,
    fields=("limits.min_dp", "layout.dp"),
)

BATCH_RULES: tuple[Rule, ...] = (GBS_DIVISIBLE, MIN_DP)
