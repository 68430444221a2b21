"""Advisories: named guidance on legal layouts, with the numbers of this layout.

An advisory is no law.  Good plans get some of them: they say what the layout pays for, and what
else a person may try.
"""

from __future__ import annotations

from meshplan.constraints.advisory import Advisory
from meshplan.constraints.calibrated import beyond_calibration
from meshplan.constraints.idle import idle_settings
from meshplan.constraints.layout import Layout
from meshplan.constraints.memory.stage import RankMemory
from meshplan.constraints.problem import QUANTA_PER_GIB, Problem
from meshplan.constraints.rules import ALL_RULES
from meshplan.constraints.rules.dispatcher import deepep_runs
from meshplan.constraints.rules.domain import within_domain
from meshplan.scenarios.flops import flops_per_token
from meshplan.topologies.packing import segment_advice

#: From here on core attention is about half of the model FLOPs (DeepSeek-V3, Qwen3-235B).
LONG_CONTEXT_TOKENS = 32_768
#: From here on software that works at short lengths has been seen to fail.
VERY_LONG_CONTEXT_TOKENS = 131_072
#: Tokens of a sequence on one rank in the published long-context runs, 4K to 256K.
CP_SHARD_TOKENS = 4_096
#: A shard this many times larger or smaller than the target is worth a word.
SHARD_FACTOR = 2
#: A baseline is judged by its tokens per rank: this many times the target is too many.
BASELINE_FACTOR = 4
#: At or below this, data parallelism is used up.
DP_FLOOR = 2
#: One in so many: pipeline bubble over compute from which the batch counts as small (5 %).
BUBBLE_PART = 20
#: Fewer sequences than this on each DP rank leave a long run no room to lower the batch.
FEW_SEQUENCES = 4
#: Peak memory over capacity from which offload is worth a word.
TIGHT_MEMORY = 0.85

_GUIDE = "Megatron-Bridge 067f987 docs/performance-guide.md"
_LONG_CARD = "Megatron-Bridge skills/nemo-mbridge-perf-moe-long-context/card.yaml and SKILL.md"
_RECOMPUTE_CARD = "Megatron-Bridge activation-recompute card (Moonlight-16B, 8 H100)"


def _is_long(problem: Problem) -> bool:
    return problem.seq_len >= LONG_CONTEXT_TOKENS


def _gib(quanta: int) -> str:
    return f"{quanta / QUANTA_PER_GIB:,.1f}"


def _fullest(ranks: tuple[RankMemory, ...]) -> RankMemory | None:
    return max(ranks, key=lambda rank: rank.peak, default=None)


def _peak_text(problem: Problem, ranks: tuple[RankMemory, ...]) -> str:
    fullest = _fullest(ranks)
    if fullest is None:
        return ""
    return (
        f"; the fullest rank ({fullest.rank}) peaks at {_gib(fullest.peak)} of "
        f"{_gib(problem.capacity)} GiB"
    )


def _idle_setting(problem: Problem, layout: Layout, _: tuple[RankMemory, ...]) -> str | None:
    found = "; ".join(idle_settings(problem, layout))
    return f"without effect: {found}" if found else None


def _beyond_calibration(problem: Problem, layout: Layout, _: tuple[RankMemory, ...]) -> str | None:
    found = "; ".join(map(str, beyond_calibration(problem)))
    if not found:
        return None
    calibration = problem.calibration
    return (
        f"far outside what the calibration {calibration.name} rests on: {found}; its band of "
        f"{calibration.error_band:.0%} does not hold here"
    )


def _cp_shard_target(problem: Problem, layout: Layout, _: tuple[RankMemory, ...]) -> str | None:
    tokens = -(-problem.tokens(layout.cp, 1) // layout.tp)  # sequence parallelism cuts it further
    too_large = tokens > CP_SHARD_TOKENS * SHARD_FACTOR
    too_small = layout.cp > 1 and tokens * SHARD_FACTOR < CP_SHARD_TOKENS
    if not (too_large or too_small):
        return None
    degrees = f"cp = {layout.cp}"
    if layout.tp > 1:
        degrees += f" and sequence parallelism over tp = {layout.tp}"
    target = max(1, problem.seq_len // CP_SHARD_TOKENS)
    return (
        f"{degrees} leave{'' if layout.tp > 1 else 's'} {tokens:,} of {problem.seq_len:,} tokens "
        f"on a rank; published runs keep about {CP_SHARD_TOKENS:,}, which is "
        f"{'tp*cp' if layout.tp > 1 else 'cp'} = {target}"
    )


def _dp_floor(problem: Problem, layout: Layout, _: tuple[RankMemory, ...]) -> str | None:
    if layout.dp > DP_FLOOR or problem.gpus == 1:
        return None
    replica = layout.tp * layout.cp * layout.pp
    return (
        f"dp = {layout.dp}: one replica takes {replica:,} of {problem.gpus:,} GPUs, so each works "
        f"through ga = {layout.ga:,} micro-batches a step; twice the context at the same shard "
        f"needs {2 * replica:,} GPUs a replica"
        + ("" if 2 * replica <= problem.gpus else ", more than there are")
    )


def _prefer_selective(
    problem: Problem, layout: Layout, ranks: tuple[RankMemory, ...]
) -> str | None:
    if not layout.recompute_full:
        return None
    model = problem.model
    modules = ["layernorm"]
    if model.attention == "mla":
        modules.insert(0, "mla_up_proj")
    if model.is_moe:
        modules.append("moe_act")
    if any(kind.mlp == "dense" for kind in problem.kinds):
        modules.append("mlp")
    return (
        "full recompute repeats every forward pass, about a third more compute; try "
        f"[{', '.join(modules)}], where single modules cost 2 to 5 %" + _peak_text(problem, ranks)
    )


def _avoid_attention_recompute(
    problem: Problem, layout: Layout, _: tuple[RankMemory, ...]
) -> str | None:
    if not _is_long(problem) or not (layout.recompute_full or "core_attn" in layout.recompute):
        return None
    flops = flops_per_token(problem.model, problem.seq_len)
    share = flops.attention_core / flops.total
    how = "full recompute" if layout.recompute_full else "recompute module core_attn"
    return (
        f"at {problem.seq_len:,} tokens core attention is {share:.0%} of the model FLOPs, and "
        f"{how} repeats its forward pass; fused attention keeps little that this would free"
    )


def _trade_cp_for_tp(problem: Problem, layout: Layout, _: tuple[RankMemory, ...]) -> str | None:
    tp, cp = layout.tp, layout.cp
    if not _is_long(problem) or cp == 1 or within_domain(problem, tp * cp):
        return None
    better = max((t for t in range(2 * tp, tp * cp + 1, tp) if _can_trade(problem, tp, cp, t)),
                 default=None)  # fmt: skip
    if better is None:
        return None
    return (
        f"tp*cp = {tp}*{cp} = {tp * cp} ranks do not fit into an NVLink domain of "
        f"{problem.cluster.domain_gpus} GPUs; tp = {better}, cp = {tp * cp // better} cut the "
        f"sequence as finely and leave {tp * cp // better} instead of {cp} ranks that exchange "
        "keys and values across domains"
    )


def _can_trade(problem: Problem, tp: int, cp: int, new_tp: int) -> bool:
    """Whether ``new_tp`` inside a domain, with ``cp`` lowered to match, breaks no rule."""
    if tp * cp % new_tp or not within_domain(problem, new_tp):
        return False
    values = {"tp": new_tp, "cp": tp * cp // new_tp}
    return all(
        one.holds(problem, *(values[name] for name in one.scope))
        for one in ALL_RULES
        if set(one.scope) <= set(values) and one.applies(problem)
    )


def _batch_shrinks(problem: Problem, layout: Layout, _: tuple[RankMemory, ...]) -> str | None:
    pp, vpp, ga, dp, gbs = layout.pp, layout.vpp, layout.ga, layout.dp, layout.gbs
    sequences, parts = layout.mbs * ga, []
    if BUBBLE_PART * (pp - 1) > vpp * ga:
        enough = -(-BUBBLE_PART * (pp - 1) // vpp)
        if vpp > 1:  # the interleaved schedule takes micro-batches in groups of pp
            enough = -(-enough // pp) * pp
        parts.append(
            f"gbs = {gbs:,} leaves ga = {ga:,} micro-batches on each of dp = {dp:,} ranks, and the "
            f"pipeline bubble (pp - 1)/(vpp*ga) = {pp - 1}/({vpp}*{ga:,}) is "
            f"{(pp - 1) / (vpp * ga):.1%} of the compute; {1 / BUBBLE_PART:.0%} or less takes "
            f"ga = {enough:,}, which is gbs = {enough * dp * layout.mbs:,} at this dp and mbs"
        )
    if _is_long(problem) and sequences < FEW_SEQUENCES:
        noun = "sequence" if sequences == 1 else "sequences"
        parts.append(
            f"a step is only {sequences} {noun} of {problem.seq_len:,} tokens on each of "
            f"dp = {dp:,} ranks ({gbs * problem.seq_len / 1e6:,.1f} M tokens in all): expect the "
            "global batch to shrink as the sequence grows, and with it the dp that it can feed"
        )
    return "; ".join(parts) or None


def _short_context_baseline(
    problem: Problem, layout: Layout, ranks: tuple[RankMemory, ...]
) -> str | None:
    tokens = problem.tokens(layout.cp, layout.mbs) // layout.tp
    if not _is_long(problem) or tokens < BASELINE_FACTOR * CP_SHARD_TOKENS:
        return None
    return (
        f"tp = {layout.tp}, cp = {layout.cp}, mbs = {layout.mbs} keep {tokens:,} tokens on a rank, "
        f"{tokens // CP_SHARD_TOKENS} times those of a run at {CP_SHARD_TOKENS:,}: a layout that "
        f"is good there is not at {problem.seq_len:,} tokens; raise cp" + _peak_text(problem, ranks)
    )


def _gpu_count_wall(problem: Problem, layout: Layout, ranks: tuple[RankMemory, ...]) -> str | None:
    dense, expert = layout.tp * layout.cp, layout.etp * layout.ep
    least = layout.pp * max(dense, expert)
    doubled = layout.pp * max(2 * dense, expert)
    if problem.gpus == 1 or doubled <= problem.gpus:
        return None
    text = (
        f"this layout needs pp*max(tp*cp, etp*ep) = {layout.pp}*max({dense:,}, {expert:,}) = "
        f"{least:,} GPUs at least, and the cluster has {problem.gpus:,}; at "
        f"{2 * problem.seq_len:,} tokens with the same shard it needs {doubled:,}"
    )
    if ranks:
        total = sum(rank.peak for rank in ranks)
        stages = -(-total // max(1, problem.capacity))
        text += (
            f"; one GPU from each of the {layout.pp} stages together peak at {_gib(total)} GiB, so "
            f"at this sharding no fewer than {stages} stages of {_gib(problem.capacity)} GiB hold "
            "the model"
        )
    return text


def _graphs_need_static_shapes(
    problem: Problem, layout: Layout, _: tuple[RankMemory, ...]
) -> str | None:
    if not problem.variable_length or layout.cuda_graphs:
        return None
    return (
        "workload.variable_length is true, so CUDA graphs stay off; sequences padded or packed to "
        f"{problem.seq_len:,} tokens each would allow them"
    )


def _long_context_software(
    problem: Problem, layout: Layout, _: tuple[RankMemory, ...]
) -> str | None:
    if problem.seq_len < VERY_LONG_CONTEXT_TOKENS:
        return None
    engine = "1.12" if layout.cp_comm == "a2a+p2p" else "1.0"
    release = f"{problem.framework} {'.'.join(map(str, problem.version))}"
    mask = problem.seq_len**2 / 2**30
    text = (
        f"at {problem.seq_len:,} tokens a data loader that builds the full attention mask makes "
        f"{mask:,.0f} GiB of it a sequence: switch that off; pin the versions of Transformer "
        f"Engine, cuDNN and the dispatcher that were tested with {release} at this length"
    )
    if layout.cp > 1:
        text += f" (cp = {layout.cp} over {layout.cp_comm} needs Transformer Engine {engine})"
    return text


def _dispatcher_choice(problem: Problem, layout: Layout, _: tuple[RankMemory, ...]) -> str | None:
    node, group = problem.node_type, layout.etp * layout.ep
    if not problem.model.is_moe or group == 1:
        return None
    if node.multi_node_nvlink:
        best = "hybridep" if group <= node.nvlink_domain_gpus else "alltoall"
    else:
        best = "deepep" if deepep_runs(problem) else "alltoall"
    if layout.dispatcher == best or (
        layout.dispatcher == "hybridep" and group <= node.nvlink_domain_gpus
    ):
        return None
    nodes = -(-group // node.gpus_per_node)
    span = f"{nodes} nodes" if nodes > 1 else "one node"
    where = f"etp*ep = {group} on {node.gpu} ({span} of {node.gpus_per_node} GPUs)"
    if layout.dispatcher == "alltoall":
        return (
            f"{where}: {best} sends a token once to a node or domain, alltoall topk = "
            f"{problem.model.topk} times; keep alltoall as the fallback"
        )
    return f"{where}: {best} is the tuned dispatcher here, {layout.dispatcher} is not"


def _optimizer_offload(
    problem: Problem, layout: Layout, ranks: tuple[RankMemory, ...]
) -> str | None:
    fullest = _fullest(ranks)
    if fullest is None or not _is_long(problem) or layout.offload > 0:
        return None
    if fullest.peak <= TIGHT_MEMORY * problem.capacity or fullest.optimizer == 0:
        return None
    return (
        f"rank {fullest.rank} peaks at {_gib(fullest.peak)} of {_gib(problem.capacity)} GiB, "
        f"{_gib(fullest.optimizer)} GiB of it optimizer state sharded over dp*cp = "
        f"{layout.dp * layout.cp} and edp = {layout.edp}; optimizer_offload moves it to the host"
    )


def _poor_segment(problem: Problem, layout: Layout, _: tuple[RankMemory, ...]) -> str | None:
    node = problem.node_type
    if not node.multi_node_nvlink:
        return None
    domain_nodes = node.nvlink_domain_gpus // node.gpus_per_node
    text = segment_advice(problem.cluster.nodes, domain_nodes)
    return None if text is None else f"{text} for Slurm's --segment"


ALL_ADVISORIES: tuple[Advisory, ...] = (
    Advisory(
        id="idle-setting",
        why="A setting that changes nothing is taken without a word by the framework, and the run "
        "is another than was meant.",
        source="Megatron-LM d98e8a64 megatron/core/transformer/transformer_config.py, which "
        "refuses none of these; meshplan.constraints.idle says what reads them",
        finds=_idle_setting,
    ),
    Advisory(
        id="beyond-calibration",
        why="A calibration holds for runs like those that it was fitted to; at other lengths, "
        "sizes, precisions, GPUs or kinds of layers other formulas matter, and no run has held "
        "them to anything.",
        source="docs/calibration.md; meshplan.constraints.calibrated says what is far",
        finds=_beyond_calibration,
    ),
    Advisory(
        id="cp-shard-target",
        why="About 4,096 tokens on each rank of TP and CP keep GEMMs large and memory as in a 4K "
        "run; DeepSeek-V3 was published with exactly that from 4K to 256K.",
        source=_LONG_CARD,
        finds=_cp_shard_target,
    ),
    Advisory(
        id="dp-floor",
        why="CP is paid for with DP. Once DP is at its floor, longer sequences need more GPUs, and "
        "each step runs its micro-batches one after another.",
        source=_LONG_CARD,
        finds=_dp_floor,
    ),
    Advisory(
        id="prefer-selective-recompute",
        why="Selected modules free most of the activations for a few percent of the time; full "
        "recompute repeats communication as well.",
        source=f"{_RECOMPUTE_CARD}; {_GUIDE}",
        finds=_prefer_selective,
    ),
    Advisory(
        id="avoid-attention-recompute-at-long-context",
        why="Attention grows with the square of the length: its recompute costs most where fused "
        "kernels store least. DeepSeek-V3 at 64K: 18 % of the compute for 9 GB.",
        source=f"{_LONG_CARD}; {_GUIDE}",
        finds=_avoid_attention_recompute,
    ),
    Advisory(
        id="trade-cp-for-tp-in-nvlink-domain",
        why="TP with sequence parallelism cuts the sequence as CP does; inside an NVLink domain "
        "it saves key/value traffic over the network.",
        source=f"{_GUIDE}; Megatron-MoE-ModelZoo long-context scripts",
        finds=_trade_cp_for_tp,
    ),
    Advisory(
        id="batch-shrinks",
        why="At a fixed number of tokens a step, longer sequences mean fewer of them, and the "
        "pipeline needs enough micro-batches to stay busy: its bubble is (pp - 1)/(vpp*ga).",
        source="Megatron-LM d98e8a64 megatron/core/pipeline_parallel/schedules.py",
        finds=_batch_shrinks,
    ),
    Advisory(
        id="short-context-baseline",
        why="A layout tuned at 4K keeps its tokens per rank only if CP (or TP) grows with the "
        "sequence.",
        source=_LONG_CARD,
        finds=_short_context_baseline,
    ),
    Advisory(
        id="gpu-count-wall",
        why="The least cluster is pp*max(tp*cp, etp*ep), over the whole model and all its stages, "
        "not what one stage or one layer would suggest.",
        source="Megatron-LM d98e8a64 megatron/core/parallel_state.py initialize_model_parallel",
        finds=_gpu_count_wall,
    ),
    Advisory(
        id="graphs-need-static-shapes",
        why="CUDA graphs replay fixed shapes; with sequences of varying length they are refused.",
        source="Megatron-LM d98e8a64 megatron/core/transformer/transformer_layer.py",
        finds=_graphs_need_static_shapes,
    ),
    Advisory(
        id="long-context-software",
        why="Kernels, data loaders and dispatchers that work at 64K have failed at 128K; the "
        "versions matter as much as the layout.",
        source="Megatron-LM issue 1025; Megatron-LM d98e8a64 "
        "megatron/core/extensions/transformer_engine.py TEDotProductAttention",
        finds=_long_context_software,
    ),
    Advisory(
        id="dispatcher-choice",
        why="DeepEP is tuned for nodes of 8 GPUs, HybridEP for NVL72; alltoall runs everywhere and "
        "moves the most bytes.",
        source="Megatron-Bridge 067f987 src/megatron/bridge/training/flex_dispatcher_backend.py; "
        "Megatron-Bridge issue 2883",
        finds=_dispatcher_choice,
    ),
    Advisory(
        id="optimizer-offload-at-long-context",
        why="Long sequences need the memory for activations; the published DeepSeek-V3 runs from "
        "16K on keep the optimizer on the host.",
        source=_LONG_CARD,
        finds=_optimizer_offload,
    ),
    Advisory(
        id="poor-segment",
        why="Slurm places a job in segments of equal size, each inside one NVLink domain, so their "
        "size must divide the nodes: 38 nodes leave segments of 2, whose groups are of 8 GPUs.",
        source="SchedMD/slurm man page srun --segment; Megatron-Bridge 067f987 performance guide",
        finds=_poor_segment,
    ),
)

__all__ = ["ALL_ADVISORIES", "Advisory"]
