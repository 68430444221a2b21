"""What TP, ETP and CP must divide: heads, widths of the layers, and the sequence.

Degrees need not be powers of two; they need to divide.
"""

from __future__ import annotations

from meshplan.constraints.problem import Problem
from meshplan.constraints.rule import Rule
from meshplan.constraints.rules.division import divides
from meshplan.constraints.rules.sources import (
    EXPERTS,
    MAMBA_MIXER,
    SELF_ATTENTION,
    SHARED_EXPERTS,
    TP_LAYERS,
    TP_MAPPINGS,
    TRANSFORMER_CONFIG,
)
from meshplan.constraints.rules.wording import nearest_divisors

#: First release that replicates KV heads when there are fewer of them than TP ranks.
KV_REPLICATION_VERSION = (0, 16)


def _has_dense_mlp(problem: Problem) -> bool:
    return any(kind.mlp == "dense" for kind in problem.kinds)


def _has_gdn(problem: Problem) -> bool:
    return any(kind.attention == "gdn" for kind in problem.kinds)


def _is_gqa(problem: Problem) -> bool:
    return problem.model.attention == "gqa"


def _kv_groups(problem: Problem) -> int:
    # MLA decompresses its latent into a K and a V for each query head.
    return problem.model.kv_groups if _is_gqa(problem) else problem.model.heads


def _replicates(problem: Problem) -> bool:
    return problem.version >= KV_REPLICATION_VERSION


def _kv_holds(problem: Problem, tp: int) -> bool:
    groups = _kv_groups(problem)
    return groups % tp == 0 or (_replicates(problem) and tp % groups == 0)


def _kv_explain(problem: Problem, tp: int) -> str:
    groups = _kv_groups(problem)
    divisors = nearest_divisors(groups, tp)
    if _replicates(problem) or tp % groups:
        return (
            f"kv_groups = {groups} is not divisible by tp = {tp}, nor tp by it; "
            f"tp = {divisors} divides it"
        )
    version = ".".join(map(str, problem.version))
    return (
        f"kv_groups = {groups} is not divisible by tp = {tp}, and megatron-core {version} cannot "
        f"replicate KV heads (0.16 can); tp = {divisors} divides it"
    )


def _qkv_width(problem: Problem) -> int:
    model = problem.model
    query_parts = 2 if model.attention_output_gate else 1
    return (query_parts * model.heads + 2 * model.kv_groups) * model.head_dim


def _gdn_holds(problem: Problem, tp: int, cp: int) -> bool:
    model = problem.model
    return model.gdn_key_heads % (tp * cp) == 0 and model.gdn_value_heads % (tp * cp) == 0


def _gdn_explain(problem: Problem, tp: int, cp: int) -> str:
    model = problem.model
    return (
        f"the gated delta net has {model.gdn_key_heads} key and {model.gdn_value_heads} value "
        f"heads, which tp*cp = {tp}*{cp} = {tp * cp} does not divide; "
        f"tp*cp = {nearest_divisors(model.gdn_key_heads, tp * cp)} would"
    )


def _has_mamba(problem: Problem) -> bool:
    return any(kind.attention == "mamba" for kind in problem.kinds)


def _mamba_holds(problem: Problem, tp: int, cp: int) -> bool:
    model = problem.model
    if model.mamba_heads % (tp * cp) or model.mamba_groups % tp:
        return False
    groups = model.mamba_groups // tp
    return groups % cp == 0 or cp % groups == 0  # fewer groups than CP ranks are repeated


def _mamba_explain(problem: Problem, tp: int, cp: int) -> str:
    model = problem.model
    return (
        f"the Mamba layers have {model.mamba_heads} heads in {model.mamba_groups} groups, which "
        f"tp = {tp} and cp = {cp} do not divide; tp = {nearest_divisors(model.mamba_groups, tp)} "
        f"and tp*cp = {nearest_divisors(model.mamba_heads, tp * cp)} would"
    )


def _sp_holds(problem: Problem, tp: int, cp: int) -> bool:
    return problem.sequence_shards(tp) == 1 or problem.seq_len % (cp * tp) == 0


def _sp_explain(problem: Problem, tp: int, cp: int) -> str:
    shards = cp * tp
    return (
        f"seq_len = {problem.seq_len} does not split into cp*tp = {cp}*{tp} = {shards} equal "
        f"shards (remainder {problem.seq_len % shards}); "
        f"cp*tp = {nearest_divisors(problem.seq_len, shards)} divides it"
    )


HEADS_TP = divides(
    "heads-tp",
    "tp",
    lambda problem: problem.model.heads,
    what="heads",
    why="Tensor parallelism gives every rank the same number of whole query heads.",
    source=TRANSFORMER_CONFIG,
)

KV_GROUPS_TP = Rule(
    id="kv-groups-tp",
    scope=("tp",),
    holds=_kv_holds,
    explain=_kv_explain,
    formula="kv_groups % tp == 0 or tp % kv_groups == 0 (before 0.16: kv_groups % tp == 0)",
    why="A rank holds whole KV heads; since 0.16 one KV head may be replicated on several ranks.",
    source=TRANSFORMER_CONFIG,
    family="divisibility",
    fields=("layout.tp", "framework.version"),
)

QKV_OUT_TP = divides(
    "qkv-out-tp",
    "tp",
    _qkv_width,
    what="QKV width (heads + 2*kv_groups)*head_dim",
    why="The fused QKV projection is split by columns; with KV heads replicated the heads alone "
    "do not guarantee that.",
    source=SELF_ATTENTION,
    applies=_is_gqa,
)

FFN_TP = divides(
    "ffn-tp",
    "tp",
    lambda problem: problem.model.ffn or 0,
    what="ffn",
    why="Tensor parallelism splits the width of the dense MLP.",
    source=TP_LAYERS,
    applies=_has_dense_mlp,
)

MOE_FFN_ETP = divides(
    "moe-ffn-etp",
    "etp",
    lambda problem: problem.model.moe_ffn,
    what="moe_ffn",
    why="Expert tensor parallelism splits the width of each routed expert.",
    source=EXPERTS,
    applies=lambda problem: problem.model.is_moe,
)

SHARED_FFN_TP = divides(
    "shared-ffn-tp",
    "tp",
    lambda problem: problem.model.shared_ffn or 0,
    what="shared_ffn",
    why="Shared experts are split over the attention mesh's TP, not over ETP.",
    source=SHARED_EXPERTS,
    applies=lambda problem: problem.model.shared_ffn is not None,
)

GDN_HEADS_TPCP = Rule(
    id="gdn-heads-tpcp",
    scope=("tp", "cp"),
    holds=_gdn_holds,
    explain=_gdn_explain,
    formula="gdn_key_heads % (tp*cp) == 0 and gdn_value_heads % (tp*cp) == 0",
    why="Gated-delta-net layers see the whole sequence and split their heads over TP and CP.",
    source=TRANSFORMER_CONFIG,
    family="divisibility",
    applies=_has_gdn,
    fields=("layout.cp", "layout.tp"),
)

MAMBA_HEADS_TPCP = Rule(
    id="mamba-heads-tpcp",
    scope=("tp", "cp"),
    holds=_mamba_holds,
    explain=_mamba_explain,
    formula="mamba_heads % (tp*cp) == 0 and mamba_groups % tp == 0",
    why="Mamba layers see the whole sequence and split their heads over TP and CP.",
    source=MAMBA_MIXER,
    family="divisibility",
    applies=_has_mamba,
    fields=("layout.cp", "layout.tp"),
)

SP_SEQ_DIVISIBLE = Rule(
    id="sp-seq-divisible",
    scope=("tp", "cp"),
    holds=_sp_holds,
    explain=_sp_explain,
    formula="tp == 1 or no sequence_parallel or seq_len % (cp*tp) == 0",
    why="Sequence parallelism (with tp > 1) splits a CP rank's tokens over TP evenly.",
    source=TP_MAPPINGS,
    family="divisibility",
    fields=("layout.tp", "layout.cp", "workload.seq_len"),
)

DIVISIBILITY_RULES: tuple[Rule, ...] = (
    HEADS_TP,
    KV_GROUPS_TP,
    QKV_OUT_TP,
    FFN_TP,
    MOE_FFN_ETP,
    SHARED_FFN_TP,
    GDN_HEADS_TPCP,
    MAMBA_HEADS_TPCP,
    SP_SEQ_DIVISIBLE,
)
