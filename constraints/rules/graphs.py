"""Partial CUDA graphs (``cuda_graph_impl: transformer_engine``): which scopes go together."""

from __future__ import annotations

from meshplan.constraints.decisions import GRAPH_FLAGS, GRAPH_SCOPES
from meshplan.constraints.problem import Problem
from meshplan.constraints.rule import Rule
from meshplan.constraints.rules.sources import GRAPH_REPLAY, TRANSFORMER_CONFIG
from meshplan.constraints.rules.wording import chosen

_FIELDS = ("options.cuda_graphs",)


def _all_moe(problem: Problem) -> bool:
    """Whether the model is MoE without a single dense MLP."""
    return problem.model.is_moe and not any(kind.mlp == "dense" for kind in problem.kinds)


def _static_holds(problem: Problem, *scopes: int) -> bool:
    return not (problem.variable_length and any(scopes))


def _static_explain(_: Problem, *scopes: int) -> str:
    return (
        f"CUDA graphs capture [{chosen(GRAPH_SCOPES, scopes)}], but workload.variable_length is "
        "true and a graph replays fixed shapes; set cuda_graphs: none, or pad to one length"
    )


def _xor_holds(_: Problem, moe: int, router: int) -> bool:
    return not (moe and router)


def _xor_explain(_: Problem, moe: int, router: int) -> str:
    return "graph scopes moe and moe_router overlap (moe contains the router); keep moe_router"


def _preprocess_holds(_: Problem, preprocess: int, router: int) -> bool:
    return not preprocess or bool(router)


def _preprocess_explain(_: Problem, preprocess: int, router: int) -> str:
    return "graph scope moe_preprocess is captured together with the router; add moe_router"


def _experts_holds(problem: Problem, moe: int, router: int) -> bool:
    return not (moe or router) or problem.model.experts > 1


def _experts_explain(problem: Problem, moe: int, router: int) -> str:
    scopes = chosen(("moe", "moe_router"), (moe, router))
    return (
        f"graph scopes [{scopes}] need more than one expert, but {problem.model.name} has "
        f"{problem.model.experts}; leave them out"
    )


def _mlp_holds(problem: Problem, mlp: int) -> bool:
    return not (mlp and _all_moe(problem))


def _mlp_explain(problem: Problem, mlp: int) -> str:
    return (
        f"graph scope mlp captures dense MLPs, but all {problem.model.layers} layers of "
        f"{problem.model.name} are MoE; leave it out"
    )


def _drop_pad_holds(problem: Problem, moe: int) -> bool:
    return not (moe and problem.model.is_moe)


def _drop_pad_explain(_: Problem, moe: int) -> str:
    return (
        "graph scope moe needs experts padded to a fixed capacity, and dropless routing has none; "
        "capture moe_router and moe_preprocess instead"
    )


def _full_holds(_: Problem, full: int, *scopes: int) -> bool:
    return not (full and any(scopes))


def _full_explain(_: Problem, full: int, *scopes: int) -> str:
    return (
        f"full recompute cannot be combined with the partial graphs "
        f"[{chosen(GRAPH_SCOPES, scopes)}]; recompute selected modules, or set cuda_graphs: none"
    )


def _router_holds(_: Problem, rc_moe: int, router: int) -> bool:
    return not (rc_moe and router)


def _router_explain(_: Problem, rc_moe: int, router: int) -> str:
    return (
        "recompute module moe replays the router, which graph scope moe_router has captured; "
        "recompute moe_act instead, or leave moe_router out"
    )


GRAPHS_NEED_STATIC_SHAPES = Rule(
    id="graphs-need-static-shapes",
    scope=GRAPH_FLAGS,
    holds=_static_holds,
    explain=_static_explain,
    formula="variable_length => no graph scope",
    why="A graph replays kernels with the shapes it was captured with, and takes tensors only: "
    "packed sequences of varying length (packed_seq_params, cg-packed-seq) are refused.",
    source=GRAPH_REPLAY,
    family="cuda-graph",
    applies=lambda problem: problem.variable_length,
    fields=("options.cuda_graphs", "workload.variable_length"),
)

CG_MOE_XOR_ROUTER = Rule(
    id="cg-moe-xor-router",
    scope=("cg_moe", "cg_moe_router"),
    holds=_xor_holds,
    explain=_xor_explain,
    formula="not (moe and moe_router)",
    why="The scope moe captures the whole MoE layer, router included.",
    source=TRANSFORMER_CONFIG,
    family="cuda-graph",
    fields=_FIELDS,
)

CG_PREPROCESS_NEEDS_ROUTER = Rule(
    id="cg-preprocess-needs-router",
    scope=("cg_moe_preprocess", "cg_moe_router"),
    holds=_preprocess_holds,
    explain=_preprocess_explain,
    formula="moe_preprocess => moe_router",
    why="The preprocessing of the dispatch follows the router within one graph.",
    source=TRANSFORMER_CONFIG,
    family="cuda-graph",
    fields=_FIELDS,
)

CG_MOE_NEEDS_EXPERTS = Rule(
    id="cg-moe-needs-experts",
    scope=("cg_moe", "cg_moe_router"),
    holds=_experts_holds,
    explain=_experts_explain,
    formula="moe or moe_router => experts > 1",
    why="The scopes capture parts of a MoE layer.",
    source=TRANSFORMER_CONFIG,
    family="cuda-graph",
    applies=lambda problem: problem.model.experts <= 1,
    fields=_FIELDS,
)

CG_MLP_NEEDS_DENSE = Rule(
    id="cg-mlp-needs-dense",
    scope=("cg_mlp",),
    holds=_mlp_holds,
    explain=_mlp_explain,
    formula="mlp => the model has dense layers",
    why="The scope mlp captures dense MLPs; where every layer is MoE it would capture none.",
    source=TRANSFORMER_CONFIG,
    family="cuda-graph",
    applies=_all_moe,
    fields=_FIELDS,
)

CG_MOE_DROP_PAD = Rule(
    id="cg-moe-drop-pad",
    scope=("cg_moe",),
    holds=_drop_pad_holds,
    explain=_drop_pad_explain,
    formula="moe => capacity factor and padding to capacity (not planned here, so never)",
    why="Dropless routing gives each expert another number of tokens in each step, which a graph "
    "cannot replay.",
    source=TRANSFORMER_CONFIG,
    family="cuda-graph",
    applies=lambda problem: problem.model.is_moe,
    fields=_FIELDS,
)

CG_FULL_RECOMPUTE = Rule(
    id="cg-full-recompute",
    scope=("rc_full", *GRAPH_FLAGS),
    holds=_full_holds,
    explain=_full_explain,
    formula="full recompute => no partial graph",
    why="Full recompute is allowed with a graph of the full iteration only.",
    source=TRANSFORMER_CONFIG,
    family="cuda-graph",
    fields=("options.recompute", "options.cuda_graphs"),
)

CG_MOE_RECOMPUTE_ROUTER = Rule(
    id="cg-moe-recompute-router",
    scope=("rc_moe", "cg_moe_router"),
    holds=_router_holds,
    explain=_router_explain,
    formula="not (recompute moe and graph moe_router)",
    why="The checkpointed MoE layer would replay a part that a graph has captured.",
    source=TRANSFORMER_CONFIG,
    family="cuda-graph",
    fields=("options.recompute", "options.cuda_graphs"),
)

GRAPH_RULES: tuple[Rule, ...] = (
    GRAPHS_NEED_STATIC_SHAPES,
    CG_MOE_XOR_ROUTER,
    CG_PREPROCESS_NEEDS_ROUTER,
    CG_MOE_NEEDS_EXPERTS,
    CG_MLP_NEEDS_DENSE,
    CG_MOE_DROP_PAD,
    CG_FULL_RECOMPUTE,
    CG_MOE_RECOMPUTE_ROUTER,
)
