"""Activation recompute: granularities exclude each other, and modules need their parts.

``moe``, ``mlp``, ``shared_experts`` and ``layernorm`` are accepted where the model has no such
part: they are legal without effect, so no rule forbids them.
"""

from __future__ import annotations

from meshplan.constraints.decisions import RECOMPUTE_FLAGS, RECOMPUTE_MODULES
from meshplan.constraints.problem import Problem
from meshplan.constraints.rule import Rule
from meshplan.constraints.rules.sources import TRANSFORMER_CONFIG
from meshplan.constraints.rules.wording import chosen

_FIELDS = ("options.recompute",)
#: The precision with delayed scaling (``fp8_recipe: delayed``).
DELAYED_SCALING = "fp8-tensor"


def _has_mla(problem: Problem) -> bool:
    return any(kind.attention == "mla" for kind in problem.kinds)


def _xor_holds(_: Problem, full: int, *modules: int) -> bool:
    return not (full and any(modules))


def _xor_explain(_: Problem, full: int, *modules: int) -> str:
    return (
        f"full recompute and the modules [{chosen(RECOMPUTE_MODULES, modules)}] are asked for at "
        "once; recompute_granularity is either full or selective"
    )


def _mla_holds(problem: Problem, mla_up_proj: int) -> bool:
    return not mla_up_proj or _has_mla(problem)


def _mla_explain(problem: Problem, mla_up_proj: int) -> str:
    return (
        f"recompute module mla_up_proj needs MLA, but {problem.model.name} has "
        f"{problem.model.attention} attention; leave it out"
    )


def _moe_act_holds(problem: Problem, moe_act: int) -> bool:
    return not moe_act or problem.model.is_moe


def _moe_act_explain(problem: Problem, moe_act: int) -> str:
    return (
        f"recompute module moe_act needs grouped experts, but {problem.model.name} has none; "
        "leave it out"
    )


def _delayed_holds(problem: Problem, moe_act: int, layernorm: int) -> bool:
    return problem.precision != DELAYED_SCALING or not (moe_act or layernorm)


def _delayed_explain(problem: Problem, moe_act: int, layernorm: int) -> str:
    modules = chosen(("moe_act", "layernorm"), (moe_act, layernorm))
    return (
        f"recompute modules [{modules}] do not work with {problem.precision}, whose scaling is "
        "delayed; leave them out, or use fp8-current or fp8-block"
    )


RECOMPUTE_FULL_XOR_SELECTIVE = Rule(
    id="recompute-full-xor-selective",
    scope=("rc_full", *RECOMPUTE_FLAGS),
    holds=_xor_holds,
    explain=_xor_explain,
    formula="not (full and any module)",
    why="recompute_granularity has one value: full checkpoints whole layers, selective the "
    "named modules.",
    source=TRANSFORMER_CONFIG,
    family="recompute",
    fields=_FIELDS,
)

RECOMPUTE_MLA_UP = Rule(
    id="recompute-mla-up",
    scope=("rc_mla_up_proj",),
    holds=_mla_holds,
    explain=_mla_explain,
    formula="mla_up_proj => multi-latent attention",
    why="The module recomputes the up-projections of multi-latent attention.",
    source=TRANSFORMER_CONFIG,
    family="recompute",
    applies=lambda problem: not _has_mla(problem),
    fields=_FIELDS,
)

RECOMPUTE_MOE_ACT = Rule(
    id="recompute-moe-act",
    scope=("rc_moe_act",),
    holds=_moe_act_holds,
    explain=_moe_act_explain,
    formula="moe_act => grouped experts (moe_grouped_gemm)",
    why="The module recomputes the activation between the grouped GEMMs of the experts.",
    source=TRANSFORMER_CONFIG,
    family="recompute",
    applies=lambda problem: not problem.model.is_moe,
    fields=_FIELDS,
)

RECOMPUTE_FP8_DELAYED = Rule(
    id="recompute-fp8-delayed",
    scope=("rc_moe_act", "rc_layernorm"),
    holds=_delayed_holds,
    explain=_delayed_explain,
    formula="fp8-tensor (delayed scaling) => neither moe_act nor layernorm",
    why="Both modules discard their output and make it again, which would record its largest "
    "value twice in the history that delayed scaling works from.",
    source=TRANSFORMER_CONFIG,
    family="recompute",
    applies=lambda problem: problem.precision == DELAYED_SCALING,
    fields=("options.recompute", "workload.precision"),
)

RECOMPUTE_RULES: tuple[Rule, ...] = (
    RECOMPUTE_FULL_XOR_SELECTIVE,
    RECOMPUTE_MLA_UP,
    RECOMPUTE_MOE_ACT,
    RECOMPUTE_FP8_DELAYED,
)
