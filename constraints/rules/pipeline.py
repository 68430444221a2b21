"""The interleaved pipeline schedule: what VPP asks of PP and of the micro-batches.

Plain 1F1B (``vpp == 1``) asks nothing: ``ga`` may be smaller than ``pp`` and need not be a
multiple of it.  Interleaving runs micro-batches in groups; the group size is the default, ``pp``.
"""

from __future__ import annotations

from meshplan.constraints.problem import Problem
from meshplan.constraints.rule import Rule
from meshplan.constraints.rules.sources import PARALLEL_STATE, SCHEDULES, VALIDATE_ARGS
from meshplan.constraints.rules.wording import nearest_multiples


def _vpp_holds(_: Problem, vpp: int, pp: int) -> bool:
    return vpp == 1 or pp > 1


def _vpp_explain(_: Problem, vpp: int, pp: int) -> str:
    return f"vpp = {vpp} needs a pipeline (pp > 1), but pp = {pp}; use vpp = 1"


def _group_holds(_: Problem, vpp: int, pp: int, ga: int) -> bool:
    return vpp == 1 or ga >= pp


def _group_explain(_: Problem, vpp: int, pp: int, ga: int) -> str:
    return (
        f"vpp = {vpp} runs micro-batches in groups of pp = {pp}, but ga = {ga} is fewer; "
        f"ga = {pp} would do, or vpp = 1"
    )


def _remainder_holds(_: Problem, vpp: int, pp: int, ga: int) -> bool:
    # With fewer micro-batches than a group, interleaved-ga-ge-group already says so.
    return vpp == 1 or ga < pp or ga % pp == 0


def _remainder_explain(_: Problem, vpp: int, pp: int, ga: int) -> str:
    return (
        f"vpp = {vpp} runs micro-batches in groups of pp = {pp}, but ga = {ga} leaves a group of "
        f"{ga % pp}; ga = {nearest_multiples(pp, ga)} would do, or vpp = 1"
    )


VPP_NEEDS_PP = Rule(
    id="vpp-needs-pp",
    scope=("vpp", "pp"),
    holds=_vpp_holds,
    explain=_vpp_explain,
    formula="vpp == 1 or pp > 1",
    why="Virtual stages interleave the chunks of several pipeline ranks.",
    source=f"{VALIDATE_ARGS}; {PARALLEL_STATE}",
    family="pipeline",
    fields=("layout.vpp", "layout.pp"),
)

INTERLEAVED_GA_GE_GROUP = Rule(
    id="interleaved-ga-ge-group",
    scope=("vpp", "pp", "ga"),
    holds=_group_holds,
    explain=_group_explain,
    formula="vpp == 1 or ga >= pp",
    why="The interleaved schedule needs one whole group of micro-batches to start.",
    source=SCHEDULES,
    family="pipeline",
    fields=("layout.ga", "workload.global_batch_size", "layout.vpp", "layout.pp"),
)

INTERLEAVED_GA_REMAINDER = Rule(
    id="interleaved-ga-remainder",
    scope=("vpp", "pp", "ga"),
    holds=_remainder_holds,
    explain=_remainder_explain,
    formula="vpp == 1 or ga % pp == 0 (with ga >= pp)",
    why="The interleaved schedule cannot run a last group that is smaller than the pipeline.",
    source=SCHEDULES,
    family="pipeline",
    fields=("layout.ga", "workload.global_batch_size", "layout.vpp", "layout.pp"),
)

PIPELINE_RULES: tuple[Rule, ...] = (
    VPP_NEEDS_PP,
    INTERLEAVED_GA_GE_GROUP,
    INTERLEAVED_GA_REMAINDER,
)
