"""Experts: which EP and ETP a model allows.

Not rules, though often stated: ``ep`` need not divide ``dp`` nor ``dp*cp``, and may exceed both.
"""

from __future__ import annotations

from meshplan.constraints.problem import Problem
from meshplan.constraints.rule import Rule
from meshplan.constraints.rules.division import divides
from meshplan.constraints.rules.sources import (
    MOE_LAYER,
    PARALLEL_STATE,
    SHARED_EXPERTS,
    TRANSFORMER_CONFIG,
    VALIDATE_ARGS,
)


def _is_moe(problem: Problem) -> bool:
    return problem.model.is_moe


def _is_dense(problem: Problem) -> bool:
    return not problem.model.is_moe


def _ep_holds(problem: Problem, ep: int) -> bool:
    return ep == 1 or problem.model.is_moe


def _ep_explain(problem: Problem, ep: int) -> str:
    return f"ep = {ep}, but {problem.model.name} has no routed experts; use ep = 1"


def _dense_grid_holds(problem: Problem, tp: int, etp: int) -> bool:
    return problem.model.is_moe or etp == tp


def _dense_grid_explain(problem: Problem, tp: int, etp: int) -> str:
    return (
        f"etp = {etp} differs from tp = {tp}, but {problem.model.name} has no routed experts, so "
        f"its expert grid is the attention mesh; use etp = {tp}"
    )


def _bias_holds(problem: Problem, etp: int) -> bool:
    return etp == 1 or not (problem.model.is_moe and problem.model.mlp_bias)


def _bias_explain(problem: Problem, etp: int) -> str:
    return f"etp = {etp}, but the experts of {problem.model.name} have biases; use etp = 1"


def _has_biased_shared_experts(problem: Problem) -> bool:
    return problem.model.shared_ffn is not None and problem.model.mlp_bias


def _shared_bias_holds(problem: Problem, _: int) -> bool:
    return not _has_biased_shared_experts(problem)


def _shared_bias_explain(problem: Problem, _: int) -> str:
    return (
        f"{problem.model.name} has shared experts (shared_ffn = {problem.model.shared_ffn}) and "
        "biases in its MLPs (mlp_bias), but shared experts have none; set mlp_bias to false"
    )


EP_NEEDS_MOE = Rule(
    id="ep-needs-moe",
    scope=("ep",),
    holds=_ep_holds,
    explain=_ep_explain,
    formula="ep == 1 or experts > 0",
    why="Expert parallelism spreads routed experts; a dense model has none.",
    source=f"{VALIDATE_ARGS}; {TRANSFORMER_CONFIG}",
    family="moe",
    applies=_is_dense,
    fields=("layout.ep",),
)

DENSE_EXPERT_GRID = Rule(
    id="dense-expert-grid",
    scope=("tp", "etp"),
    holds=_dense_grid_holds,
    explain=_dense_grid_explain,
    formula="experts > 0 or etp == tp",
    why="Megatron-LM builds the expert grid of a dense model, too, with etp = tp and ep = 1, so "
    "that edp = dp*cp.",
    source=PARALLEL_STATE,
    family="moe",
    applies=_is_dense,
    fields=("layout.etp", "layout.tp"),
)

EXPERTS_EP = divides(
    "experts-ep",
    "ep",
    lambda problem: problem.model.experts,
    what="experts",
    why="Every expert-parallel rank holds the same number of whole experts.",
    source=f"{VALIDATE_ARGS}; {MOE_LAYER}",
    family="moe",
    applies=_is_moe,
)

MOE_BIAS_NEEDS_ETP1 = Rule(
    id="moe-bias-needs-etp1",
    scope=("etp",),
    holds=_bias_holds,
    explain=_bias_explain,
    formula="etp == 1 or not mlp_bias",
    why="Experts with biases cannot be split over expert tensor parallelism.",
    source=TRANSFORMER_CONFIG,
    family="moe",
    applies=lambda problem: problem.model.is_moe and problem.model.mlp_bias,
    fields=("layout.etp",),
)

SHARED_EXPERTS_NO_BIAS = Rule(
    id="shared-experts-no-bias",
    scope=("tp",),  # any value is refused: a scope needs a decision, the model decides
    holds=_shared_bias_holds,
    explain=_shared_bias_explain,
    formula="shared experts => not mlp_bias",
    why="Shared experts are written without biases.",
    source=SHARED_EXPERTS,
    family="moe",
    applies=_has_biased_shared_experts,
    fields=("model.mlp_bias", "model.shared_ffn"),
)


def _sequence_holds(problem: Problem, tp: int) -> bool:
    return tp == 1 or problem.training.sequence_parallel or not problem.model.is_moe


def _sequence_explain(_: Problem, tp: int) -> str:
    return (
        f"a mixture of experts with tp = {tp} needs training.sequence_parallel, which is false; "
        "set it to true or use tp = 1"
    )


MOE_TP_NEEDS_SP = Rule(
    id="moe-tp-needs-sp",
    scope=("tp",),
    holds=_sequence_holds,
    explain=_sequence_explain,
    formula="tp == 1 or sequence_parallel",
    why="Without sequence parallelism every TP rank would send the same tokens to the experts.",
    source=MOE_LAYER,
    family="moe",
    applies=lambda problem: problem.model.is_moe and not problem.training.sequence_parallel,
    fields=("layout.tp", "training.sequence_parallel"),
)

MOE_RULES: tuple[Rule, ...] = (
    MOE_TP_NEEDS_SP,
    EP_NEEDS_MOE,
    DENSE_EXPERT_GRID,
    EXPERTS_EP,
    MOE_BIAS_NEEDS_ETP1,
    SHARED_EXPERTS_NO_BIAS,
)
