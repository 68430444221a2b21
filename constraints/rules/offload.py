"""Optimizer state and activations on the host, and in which formats."""

from __future__ import annotations

from meshplan.constraints.problem import Problem
from meshplan.constraints.rule import Rule
from meshplan.constraints.rules.recompute import DELAYED_SCALING
from meshplan.constraints.rules.sources import OPTIMIZER_CONFIG, TRANSFORMER_CONFIG, VALIDATE_ARGS

_PRECISION_AWARE = "training.precision_aware_optimizer"
_FP8_PARAMETERS = "training.fp8_parameters"
_DISTRIBUTED = "training.distributed_optimizer"
#: Bytes of an Adam moment in fp32.
FP32_BYTES = 4


def _pao_holds(problem: Problem, offload: int) -> bool:
    return offload == 0 or problem.training.precision_aware is not False


def _pao_explain(_: Problem, offload: int) -> str:
    return (
        f"optimizer_offload = {offload} % needs the precision-aware optimizer, but "
        f"{_PRECISION_AWARE} is false; set it to auto"
    )


OPT_OFFLOAD_PAO = Rule(
    id="opt-offload-pao",
    scope=("offload",),
    holds=_pao_holds,
    explain=_pao_explain,
    formula="offload == 0 or precision-aware optimizer",
    why="Offload moves the state of the precision-aware optimizer to the host.",
    source=VALIDATE_ARGS,
    family="offload",
    applies=lambda problem: problem.training.precision_aware is False,
    fields=(_PRECISION_AWARE, "options.optimizer_offload"),
)


def _keeps_fp8(problem: Problem) -> bool:
    """Whether FP8 weights are asked for; ``auto`` keeps them only where that is allowed."""
    return problem.training.fp8_parameters is True and problem.precision not in (
        "bf16",
        "nvfp4",
        DELAYED_SCALING,
    )


def _gather_holds(problem: Problem, offload: int) -> bool:
    return offload == 0 or not _keeps_fp8(problem)


def _gather_explain(problem: Problem, offload: int) -> str:
    return (
        f"optimizer_offload = {offload} % cannot update weights that are kept in FP8 "
        f"({_FP8_PARAMETERS} is true) with {problem.precision}; set it to false or auto, or use "
        f"{DELAYED_SCALING}"
    )


def _small_moments(problem: Problem) -> bool:
    training = problem.training
    return training.precision_aware is False and training.moment_bytes < FP32_BYTES


def _moments_holds(problem: Problem, _: int) -> bool:
    return not _small_moments(problem)


def _moments_explain(problem: Problem, _: int) -> str:
    return (
        f"training.moment_dtype asks for Adam moments of {problem.training.moment_bytes} bytes, "
        f"but {_PRECISION_AWARE} is false and the plain optimizer keeps {FP32_BYTES} bytes (fp32); "
        "set it to auto"
    )


OPT_OFFLOAD_FP8_GATHER = Rule(
    id="opt-offload-fp8-gather",
    scope=("offload",),
    holds=_gather_holds,
    explain=_gather_explain,
    formula="offload == 0 or no FP8 weights or fp8-tensor (delayed scaling)",
    why="The optimizer on the host writes weights back in bf16; only delayed scaling can turn "
    "them into FP8 there.",
    source=VALIDATE_ARGS,
    family="offload",
    applies=_keeps_fp8,
    fields=(_FP8_PARAMETERS, "options.optimizer_offload", "workload.precision"),
)

STATE_DTYPES_NEED_PAO = Rule(
    id="state-dtypes-need-pao",
    scope=("offload",),  # any value is refused: a scope needs a decision, the training decides
    holds=_moments_holds,
    explain=_moments_explain,
    formula="Adam moments below fp32 => precision-aware optimizer",
    why="Only the precision-aware optimizer stores its moments in other formats than fp32.",
    source=OPTIMIZER_CONFIG,
    family="offload",
    applies=_small_moments,
    fields=(_PRECISION_AWARE, "training.moment_dtype"),
)


def _is_shared(problem: Problem) -> bool:
    return problem.training.distributed_optimizer


def _aware_shared_holds(problem: Problem, offload: int) -> bool:
    return _is_shared(problem) or not problem.precision_aware(offload)


def _aware_shared_explain(problem: Problem, offload: int) -> str:
    cause = f"optimizer_offload = {offload} %" if offload else "training.moment_dtype below fp32"
    if problem.training.precision_aware:
        cause = f"{_PRECISION_AWARE} = true"
    return (
        f"{cause} takes the precision-aware optimizer, which needs "
        f"{_DISTRIBUTED}, but that is false; set it to true"
    )


PAO_NEEDS_DISTRIBUTED = Rule(
    id="pao-needs-distributed-optimizer",
    scope=("offload",),
    holds=_aware_shared_holds,
    explain=_aware_shared_explain,
    formula="precision-aware optimizer => distributed optimizer",
    why="The precision-aware optimizer is a part of the distributed one.",
    source=OPTIMIZER_CONFIG,
    family="offload",
    applies=lambda problem: not _is_shared(problem),
    fields=(_DISTRIBUTED, _PRECISION_AWARE, "training.moment_dtype", "options.optimizer_offload"),
)


def _fp8_shared_holds(problem: Problem, _: int) -> bool:
    return _is_shared(problem) or not problem.fp8_parameters


def _fp8_shared_explain(problem: Problem, _: int) -> str:
    return (
        f"weights kept in {problem.precision} need {_DISTRIBUTED}, but that is false; set it to "
        f"true, or {_FP8_PARAMETERS} to false"
    )


FP8_PARAMETERS_NEED_DISTRIBUTED = Rule(
    id="fp8-params-need-distributed-optimizer",
    scope=("offload",),  # any value is refused: a scope needs a decision, the training decides
    holds=_fp8_shared_holds,
    explain=_fp8_shared_explain,
    formula="FP8 weights => distributed optimizer",
    why="Weights are gathered in FP8 after the step, which the distributed optimizer does.",
    source=VALIDATE_ARGS,
    family="offload",
    applies=lambda problem: not _is_shared(problem) and problem.fp8_parameters,
    fields=(_DISTRIBUTED, _FP8_PARAMETERS, "workload.precision"),
)

#: Modules inside the part that ``moe`` recomputes.
_INSIDE_MOE = ("expert_fc1", "moe_act")
_ACTIVATIONS = "options.activation_offload"


def offloaded_inside_moe(problem: Problem) -> list[str]:
    """Modules of ``options.activation_offload`` that recompute of ``moe`` does not go with."""
    return [name for name in _INSIDE_MOE if name in problem.training.activation_offload]


def _offload_recompute_holds(problem: Problem, rc_moe: int) -> bool:
    return not rc_moe or not offloaded_inside_moe(problem)


def _offload_recompute_explain(problem: Problem, _: int) -> str:
    named = ", ".join(offloaded_inside_moe(problem))
    return (
        f"recompute of moe replays the whole MoE layer, so {_ACTIVATIONS} = [{named}] inside it is "
        "refused; leave out one of the two"
    )


FG_OFFLOAD_MOE_RECOMPUTE = Rule(
    id="fg-offload-moe-recompute",
    scope=("rc_moe",),
    holds=_offload_recompute_holds,
    explain=_offload_recompute_explain,
    formula="recompute of moe => no activation offload of expert_fc1 and moe_act",
    why="What is recomputed is not saved, so there is nothing to offload inside it; Megatron-Core "
    "refuses it beside the module moe, and takes it without effect beside full recompute.",
    source=TRANSFORMER_CONFIG,
    family="offload",
    applies=lambda problem: bool(offloaded_inside_moe(problem)),
    fields=("options.recompute", _ACTIVATIONS),
)


def _offload_graph_holds(problem: Problem, cg_moe: int) -> bool:
    return not cg_moe or not problem.training.activation_offload


def _offload_graph_explain(problem: Problem, _: int) -> str:
    return (
        f"a CUDA graph of moe cannot be combined with {_ACTIVATIONS} = "
        f"[{', '.join(problem.training.activation_offload)}]; leave out one of the two"
    )


FG_OFFLOAD_GRAPH_MOE = Rule(
    id="fg-offload-graph-moe",
    scope=("cg_moe",),
    holds=_offload_graph_holds,
    explain=_offload_graph_explain,
    formula="activation offload => no CUDA graph of moe",
    why="Megatron-Core does not support the two together, whatever module is offloaded.",
    source=TRANSFORMER_CONFIG,
    family="offload",
    applies=lambda problem: bool(problem.training.activation_offload),
    fields=("options.cuda_graphs", _ACTIVATIONS),
)

OFFLOAD_RULES: tuple[Rule, ...] = (
    OPT_OFFLOAD_PAO,
    OPT_OFFLOAD_FP8_GATHER,
    STATE_DTYPES_NEED_PAO,
    PAO_NEEDS_DISTRIBUTED,
    FP8_PARAMETERS_NEED_DISTRIBUTED,
    FG_OFFLOAD_MOE_RECOMPUTE,
    FG_OFFLOAD_GRAPH_MOE,
)
