"""Overlap of expert communication with compute (``overlap_moe_expert_parallel_comm``).

All rules here apply only where ``training.overlap_expert_communication`` is true.
"""

from __future__ import annotations

from meshplan.constraints.problem import Problem
from meshplan.constraints.rule import Rule
from meshplan.constraints.rules.sources import TRANSFORMER_CONFIG
from meshplan.constraints.rules.wording import chosen

_OVERLAP = "training.overlap_expert_communication"
#: Most MTP layers that the combined forward and backward schedule can run.
OVERLAP_MTP_LAYERS = 1


def _overlaps(problem: Problem) -> bool:
    return problem.training.overlap_expert_communication


def _ep_holds(problem: Problem, ep: int) -> bool:
    return not _overlaps(problem) or ep > 1


def _ep_explain(_: Problem, ep: int) -> str:
    return f"{_OVERLAP} has nothing to overlap with ep = {ep}; use ep > 1 or set it to false"


def _vpp_holds(problem: Problem, pp: int, vpp: int) -> bool:
    return not _overlaps(problem) or pp == 1 or vpp > 1


def _vpp_explain(_: Problem, pp: int, vpp: int) -> str:
    return (
        f"{_OVERLAP} needs the interleaved schedule, but pp = {pp} and vpp = {vpp}; "
        "use vpp > 1 or pp = 1"
    )


def _mtp_holds(problem: Problem, _: int) -> bool:
    return not _overlaps(problem) or problem.model.mtp_layers <= OVERLAP_MTP_LAYERS


def _mtp_explain(problem: Problem, _: int) -> str:
    return (
        f"{_OVERLAP} allows {OVERLAP_MTP_LAYERS} MTP layer, but {problem.model.name} trains "
        f"{problem.model.mtp_layers}; set it to false"
    )


def _recompute_holds(problem: Problem, full: int, moe: int) -> bool:
    return not (_overlaps(problem) and (full or moe))


def _recompute_explain(_: Problem, full: int, moe: int) -> str:
    what = chosen(("full", "moe"), (full, moe))
    return (
        f"{_OVERLAP} cannot replay the dispatch, but recompute has [{what}]; "
        "recompute moe_act and layernorm instead"
    )


def _graph_holds(problem: Problem, moe: int, mlp: int) -> bool:
    return not (_overlaps(problem) and (moe or mlp))


def _graph_explain(_: Problem, moe: int, mlp: int) -> str:
    what = chosen(("moe", "mlp"), (moe, mlp))
    return (
        f"{_OVERLAP} schedules MLPs and experts by parts, but CUDA graphs capture [{what}]; "
        "leave it out"
    )


EP_OVERLAP_EP = Rule(
    id="ep-overlap-ep",
    scope=("ep",),
    holds=_ep_holds,
    explain=_ep_explain,
    formula="overlap => ep > 1",
    why="Without expert parallelism there is no dispatch to hide.",
    source=TRANSFORMER_CONFIG,
    family="overlap",
    applies=_overlaps,
    fields=("layout.ep", _OVERLAP),
)

EP_OVERLAP_VPP = Rule(
    id="ep-overlap-vpp",
    scope=("pp", "vpp"),
    holds=_vpp_holds,
    explain=_vpp_explain,
    formula="overlap and pp > 1 => vpp > 1",
    why="The dispatch of one micro-batch hides behind the compute of another, which only the "
    "interleaved schedule has at hand.",
    source=TRANSFORMER_CONFIG,
    family="overlap",
    applies=_overlaps,
    fields=("layout.vpp", "layout.pp", _OVERLAP),
)

EP_OVERLAP_MTP = Rule(
    id="ep-overlap-mtp",
    scope=("ep",),  # any value is refused: a scope needs a decision, the model decides
    holds=_mtp_holds,
    explain=_mtp_explain,
    formula="overlap => mtp_layers <= 1",
    why="The combined schedule of forward and backward knows at most one MTP layer.",
    source=TRANSFORMER_CONFIG,
    family="overlap",
    applies=lambda problem: _overlaps(problem) and problem.model.mtp_layers > OVERLAP_MTP_LAYERS,
    fields=(_OVERLAP, "model.mtp_layers"),
)

EP_OVERLAP_RECOMPUTE = Rule(
    id="ep-overlap-recompute",
    scope=("rc_full", "rc_moe"),
    holds=_recompute_holds,
    explain=_recompute_explain,
    formula="overlap => neither full recompute nor module moe",
    why="Recompute of a whole MoE layer would repeat the communication that is being overlapped.",
    source=TRANSFORMER_CONFIG,
    family="overlap",
    applies=_overlaps,
    fields=("options.recompute", _OVERLAP),
)

CG_EP_OVERLAP = Rule(
    id="cg-ep-overlap",
    scope=("cg_moe", "cg_mlp"),
    holds=_graph_holds,
    explain=_graph_explain,
    formula="overlap => graph scopes without moe and mlp",
    why="A captured MLP or MoE layer runs as one piece and cannot be interleaved.",
    source=TRANSFORMER_CONFIG,
    family="cuda-graph",
    applies=_overlaps,
    fields=("options.cuda_graphs", _OVERLAP),
)

OVERLAP_RULES: tuple[Rule, ...] = (
    EP_OVERLAP_EP,
    EP_OVERLAP_VPP,
    EP_OVERLAP_MTP,
    EP_OVERLAP_RECOMPUTE,
    CG_EP_OVERLAP,
)
