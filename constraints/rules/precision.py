"""What 8-bit GEMMs ask of the shapes on a rank: tokens and widths in whole tiles.

Tokens of the routed experts are padded by the framework and need no rule.
"""

from __future__ import annotations

from collections.abc import Callable

from meshplan.constraints.problem import Problem
from meshplan.constraints.rule import Rule
from meshplan.constraints.rules.sources import TE_GEMM, TE_MXFP8

#: Precisions with one scale per tensor or per block of 128.
FP8_PRECISIONS = ("fp8-tensor", "fp8-current", "fp8-block")
#: Tokens and widths per rank must be multiples of these.
FP8_TOKENS, FP8_WIDTH, MXFP8_TILE = 8, 16, 32


def _is_fp8(problem: Problem) -> bool:
    return problem.precision in FP8_PRECISIONS


def _is_mxfp8(problem: Problem) -> bool:
    return problem.precision == "mxfp8"


def _split_widths(problem: Problem) -> dict[str, int]:
    """Widths that TP splits: inputs of the row-parallel linears, by their name."""
    model = problem.model
    widths = {"attention output": model.value_width}
    if any(kind.mlp == "dense" for kind in problem.kinds):
        widths["ffn"] = model.ffn or 0
    if model.shared_ffn is not None:
        widths["shared_ffn"] = model.shared_ffn
    return widths


def _tokens_rule(rule_id: str, tile: int, applies: Callable[[Problem], bool], source: str) -> Rule:
    """Rule that the tokens of a micro-batch on one rank are a multiple of ``tile``."""

    def holds(problem: Problem, tp: int, cp: int, mbs: int) -> bool:
        return problem.seq_len * mbs % (cp * tp * tile) == 0

    def explain(problem: Problem, tp: int, cp: int, mbs: int) -> str:
        tokens = problem.seq_len * mbs / (cp * tp)
        return (
            f"tokens per rank seq_len*mbs/(cp*tp) = {problem.seq_len}*{mbs}/({cp}*{tp}) = "
            f"{tokens:g} is not a multiple of {tile}, which {problem.precision} needs"
        )

    return Rule(
        id=rule_id,
        scope=("tp", "cp", "mbs"),
        holds=holds,
        explain=explain,
        formula=f"(seq_len*mbs / (cp*tp)) % {tile} == 0",
        why=f"8-bit GEMMs work on whole tiles of {tile} tokens of the rank's own shard.",
        source=source,
        family="precision",
        applies=applies,
        fields=("layout.mbs", "layout.cp", "layout.tp", "workload.seq_len"),
    )


def _width_rule(rule_id: str, tile: int, applies: Callable[[Problem], bool], source: str) -> Rule:
    """Rule that every width split over TP is a multiple of ``tile`` on each rank."""

    def holds(problem: Problem, tp: int) -> bool:
        return all(width % (tp * tile) == 0 for width in _split_widths(problem).values())

    def explain(problem: Problem, tp: int) -> str:
        name, width = next(
            (name, width) for name, width in _split_widths(problem).items() if width % (tp * tile)
        )
        return (
            f"{name} width per rank {width}/{tp} = {width / tp:g} is not a multiple of {tile}, "
            f"which {problem.precision} needs; lower tp"
        )

    return Rule(
        id=rule_id,
        scope=("tp",),
        holds=holds,
        explain=explain,
        formula=f"(ffn, shared_ffn, attention output) / tp % {tile} == 0",
        why=f"8-bit GEMMs work on whole tiles of {tile} elements of the width.",
        source=source,
        family="precision",
        applies=applies,
        fields=("layout.tp", "workload.precision"),
    )


def _expert_width_rule(
    rule_id: str, tile: int, applies: Callable[[Problem], bool], source: str
) -> Rule:
    """Rule that the width of a routed expert is a multiple of ``tile`` on each rank."""

    def holds(problem: Problem, etp: int) -> bool:
        return problem.model.moe_ffn % (etp * tile) == 0

    def explain(problem: Problem, etp: int) -> str:
        width = problem.model.moe_ffn
        return (
            f"moe_ffn per rank {width}/{etp} = {width / etp:g} is not a multiple of {tile}, "
            f"which {problem.precision} needs; lower etp"
        )

    return Rule(
        id=rule_id,
        scope=("etp",),
        holds=holds,
        explain=explain,
        formula=f"(moe_ffn / etp) % {tile} == 0",
        why=f"8-bit GEMMs work on whole tiles of {tile} elements of the width.",
        source=source,
        family="precision",
        applies=lambda problem: applies(problem) and problem.model.is_moe,
        fields=("layout.etp", "workload.precision"),
    )


PRECISION_RULES: tuple[Rule, ...] = (
    _tokens_rule("fp8-token-align", FP8_TOKENS, _is_fp8, TE_GEMM),
    _tokens_rule("mxfp8-token-align", MXFP8_TILE, _is_mxfp8, TE_MXFP8),
    _width_rule("fp8-width-align", FP8_WIDTH, _is_fp8, TE_GEMM),
    _width_rule("mxfp8-width-align", MXFP8_TILE, _is_mxfp8, TE_MXFP8),
    _expert_width_rule("fp8-expert-width-align", FP8_WIDTH, _is_fp8, TE_GEMM),
    _expert_width_rule("mxfp8-expert-width-align", MXFP8_TILE, _is_mxfp8, TE_MXFP8),
)
