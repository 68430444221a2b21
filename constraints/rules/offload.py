"""Optimizer state on the host."""

from __future__ import annotations

from meshplan.constraints.problem import Problem
from meshplan.constraints.rule import Rule
from meshplan.constraints.rules.sources import VALIDATE_ARGS

_PRECISION_AWARE = "training.precision_aware_optimizer"


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

OFFLOAD_RULES: tuple[Rule, ...] = (OPT_OFFLOAD_PAO,)
