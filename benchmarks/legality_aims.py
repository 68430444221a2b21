"""Aims: each moves a draft to the edge of one rule, to either side of it.

The table :data:`AIMS` goes from the rule to its aim; draws take the aims in turn, so that each
rule is met equally often.  Most aims leave the rest of the layout legal: then the verdict hangs on
the one rule, and a rule that is off by one disagrees with the framework at once.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TypeAlias

from benchmarks import legality_memory as memory
from benchmarks import legality_splits as splits
from benchmarks.legality_draws import PRECISIONS, Draft, base, draw_split
from meshplan.constraints.decisions import GRAPH_SCOPES, RECOMPUTE_MODULES

Aim: TypeAlias = Callable[[random.Random], Draft]


def aim(rng: random.Random, index: int) -> tuple[Draft, tuple[str, ...]]:
    """Draft number ``index``: one in six without an aim, one in six with degrees shaken besides."""
    turn, kind = divmod(index, 6)
    if kind == 0:
        draft = base(rng)
        return draft, ()
    names = list(AIMS)
    name = names[(turn * 5 + kind - 1) % len(names)]
    draft = AIMS[name](rng)
    if kind == 1:
        _shake(rng, draft)
    return draft, (name,)


def _shake(rng: random.Random, draft: Draft) -> None:
    """Change one degree, whatever comes of it."""
    name = rng.choice(("tp", "cp", "pp", "vpp", "ep", "etp", "mbs"))
    now = draft[name]
    draft.degrees[name] = rng.choice((now * 2, now * 3, max(1, now // 2), now + 1, 1))


def _fitting(draft: Draft) -> Draft:
    """Let the attention mesh decide on the GPUs; keep the expert grid inside of them."""
    draft.gpus = None
    return draft


def _plain_experts(draft: Draft) -> Draft:
    draft.degrees["ep"] = draft.degrees["etp"] = 1
    if draft.options.get("dispatcher") == "deepep":
        draft.options["dispatcher"] = "alltoall"
    return draft


# -- meshes ------------------------------------------------------------------------------------


def _world_dense(rng: random.Random) -> Draft:
    draft = base(rng)
    gpus = draft.dense_block * draft.dp
    block = draft["ep"] * draft["etp"] * draft["pp"] if draft.card != "toy-dense" else 1
    draft.gpus = rng.choice((gpus, gpus + 1, gpus - 1, gpus + block, gpus // 2, gpus * 3 // 2))
    return draft


def _world_expert(rng: random.Random) -> Draft:
    draft = base(rng, "moe")
    draft.gpus = draft.dense_block * draft.dp
    name = rng.choice(("ep", "etp"))
    draft.degrees[name] = draft[name] * rng.choice((2, 2, 3, 4, 8))
    return draft


def _ep_over_dp(rng: random.Random) -> Draft:
    draft = base(rng, "moe")
    stage = draft["tp"] * draft["cp"] * draft.dp
    draft.degrees["ep"], draft.degrees["etp"] = stage, 1
    return draft


# -- divisibility ------------------------------------------------------------------------------


def _heads(rng: random.Random) -> Draft:
    draft = _plain_experts(base(rng, rng.choice(("dense", "moe"))))
    draft.degrees["tp"] = rng.choice((3, 5, 6, 7, 8, 10, 12, 16))
    heads = rng.choice((6, 8, 10, 12, 14, 16, 20, 24, 32, 48))
    kv = heads if draft.model.attention == "mla" else rng.choice((1, 2, heads // 2, heads))
    draft.changes |= {"heads": heads, "kv_groups": kv if heads % kv == 0 else heads}
    return _even_widths(draft)


def _even_widths(draft: Draft) -> Draft:
    """Widths and sequence that ``tp`` and ``cp`` divide, so that other rules decide."""
    tp, model = draft["tp"], draft.model
    if model.ffn is not None:
        draft.changes["ffn"] = tp * 64
    if model.shared_ffn is not None:
        draft.changes["shared_ffn"] = tp * 64
    draft.seq_len = 2 * draft["cp"] * tp * 32
    return draft


def _kv_groups(rng: random.Random) -> Draft:
    draft = _plain_experts(base(rng, "dense"))
    tp = draft.degrees["tp"] = rng.choice((2, 3, 4, 6, 8, 12))
    kv = rng.choice((1, 2, 3, 4, 6, 8))
    draft.changes |= {"kv_groups": kv, "heads": kv * tp * rng.choice((1, 2)), "head_dim": 8 * tp}
    return _even_widths(draft)


def _qkv(rng: random.Random) -> Draft:
    draft = _plain_experts(base(rng, "dense"))
    kv = rng.choice((1, 2, 3))
    tp = draft.degrees["tp"] = kv * rng.choice((2, 3, 4, 5, 6))
    head_dim = rng.choice((1, 2, 3, 5, 6, 8, 10, 12, 15, 16, 25, 64, 100))
    draft.changes |= {"kv_groups": kv, "heads": tp * rng.choice((1, 2)), "head_dim": head_dim}
    return _even_widths(draft)


def _width(figure: str, degree: str, kind: str) -> Aim:
    """Aim at the width that a degree splits: near a multiple of it."""

    def move(rng: random.Random) -> Draft:
        draft = base(rng, kind)
        if figure == "shared_ffn":
            draft.changes["mlp_bias"] = False
        if degree == "etp":
            _plain_experts(draft)
            draft.changes["mlp_bias"] = False
            draft.degrees["etp"] = rng.choice((2, 3, 4, 6, 8))
            draft.dp = draft["etp"] * rng.choice((1, 2))
        elif draft["tp"] == 1:
            draft.degrees["tp"] = 2 if draft.model.heads % 2 == 0 else 1
            _plain_experts(draft)
            _even_widths(draft)
        draft.changes[figure] = draft[degree] * rng.randint(20, 90) + rng.choice((0, 0, 1, 2, 4))
        return draft

    return move


def _delta_net(rng: random.Random) -> Draft:
    draft = _plain_experts(base(rng, "gdn"))
    draft.degrees["tp"] = rng.choice((1, 2, 4, 8))
    draft.degrees["cp"] = rng.choice((1, 2, 3, 4, 6, 8))
    keys = rng.choice((4, 6, 8, 12, 16))
    draft.changes |= {"gdn_key_heads": keys, "gdn_value_heads": keys * rng.choice((1, 2, 3))}
    return _even_widths(draft)


def _sequence(rng: random.Random) -> Draft:
    draft = base(rng)
    if rng.random() < 0.5:
        draft.degrees["cp"] = rng.choice((2, 3, 4, 6))
    step = rng.choice((1, 2, draft["cp"], 2 * draft["cp"], draft["tp"] * draft["cp"]))
    draft.seq_len = step * rng.randint(17, 99)
    return draft


# -- batch and schedule ------------------------------------------------------------------------


def _batch(rng: random.Random) -> Draft:
    draft = base(rng)
    step = draft["mbs"] * draft.dp
    draft.gbs = max(1, step * draft.ga + rng.choice((0, 1, -1, step // 2, -step, draft.dp)))
    return draft


def _vpp_without_pp(rng: random.Random) -> Draft:
    draft = base(rng)
    draft.degrees["pp"] = rng.choice((1, 1, 2))
    if draft.model.is_moe:
        _plain_experts(draft)
    draw_split(draft, rng, rng.choice((1, 2, 3)))
    return draft


def _interleaved(rng: random.Random) -> Draft:
    draft = base(rng)
    if draft["pp"] == 1:
        draft.degrees["pp"] = rng.choice((2, 3, 4, 5))
    draw_split(draft, rng, rng.choice((1, 2, 2, 3)))
    draft.ga = rng.randint(1, 2 * draft["pp"] + 1)
    return draft


# -- experts and dispatchers -------------------------------------------------------------------


def _ep_dense(rng: random.Random) -> Draft:
    draft = base(rng, "dense")
    draft.degrees["ep"] = rng.choice((1, 2, draft.dp, draft["cp"]))
    return draft


def _experts(rng: random.Random) -> Draft:
    draft = base(rng, "moe")
    draft.changes |= {"router_groups": None, "router_topk_groups": None}
    draft.degrees["etp"] = 1
    ep = draft.degrees["ep"] = rng.choice((2, 3, 4, 5, 6, 8, 12))
    draft.dp = ep
    draft.changes["experts"] = max(draft.model.topk, ep * rng.randint(1, 6) + rng.choice((0, 0, 1)))
    return draft


def _bias(rng: random.Random) -> Draft:
    draft = base(rng, "moe")
    draft.changes["mlp_bias"] = rng.random() < 0.8
    if rng.random() < 0.6:
        draft.changes |= {"shared_ffn": None, "shared_expert_gate": False}
    draft.degrees["ep"] = 1
    draft.degrees["etp"] = rng.choice((1, 2, 4))
    draft.dp = draft["etp"]
    if draft["etp"] == 1:
        _plain_experts(draft)
    return draft


def _dispatcher(rng: random.Random) -> Draft:
    draft = base(rng, "moe")
    draft.options["dispatcher"] = rng.choice(("deepep", "deepep", "hybridep", "alltoall"))
    if rng.random() < 0.6:
        draft.degrees["ep"], draft.degrees["etp"] = rng.choice(((1, 1), (1, 1), (1, 2), (2, 1)))
        draft.dp = 2
    draft.changes["mlp_bias"] = False
    return draft


# -- options -----------------------------------------------------------------------------------


def _subset(rng: random.Random, names: tuple[str, ...], share: float) -> tuple[str, ...]:
    return tuple(name for name in names if rng.random() < share)


def _recompute(rng: random.Random) -> Draft:
    draft = base(rng)
    draft.options["recompute_full"] = False
    draft.options["recompute"] = _subset(rng, RECOMPUTE_MODULES, rng.choice((0.15, 0.3, 0.6)))
    draft.precision = rng.choice(("bf16", "fp8-tensor", "fp8-tensor", "fp8-block", "mxfp8"))
    return draft


def _graphs(rng: random.Random) -> Draft:
    draft = base(rng, rng.choice(("dense", "moe", "moe")))
    share = rng.choice((0.15, 0.3, 0.5))
    draft.options["cuda_graphs"] = _subset(rng, GRAPH_SCOPES, share) or (rng.choice(GRAPH_SCOPES),)
    draft.options["recompute_full"] = rng.random() < 0.15
    if not draft.options["recompute_full"] and rng.random() < 0.5:
        draft.options["recompute"] = _subset(rng, RECOMPUTE_MODULES, 0.25)
    return draft


def _one_graph(*scopes: str, kind: str = "moe", recompute: tuple[str, ...] = ()) -> Aim:
    """Aim at graphs of just these scopes, or all but one of them, with or without recompute."""

    def move(rng: random.Random) -> Draft:
        draft = base(rng, kind)
        kept = list(scopes)
        if rng.random() < 0.4:
            kept.remove(rng.choice(kept))
        draft.options["cuda_graphs"] = tuple(s for s in GRAPH_SCOPES if s in kept)
        draft.options["recompute_full"] = False
        if rng.random() < 0.7:
            draft.options["recompute"] = recompute
        if "mlp" in scopes and draft.model.is_moe:
            draft.changes["dense_layers"] = rng.choice((0, 0, 1))
            if draft.changes["dense_layers"]:
                draft.changes["ffn"] = draft["tp"] * 64
        return draft

    return move


def _full_with_graph(rng: random.Random) -> Draft:
    draft = base(rng)
    draft.options["recompute_full"] = rng.random() < 0.7
    draft.options["cuda_graphs"] = ("attn",)
    return draft


def _overlap(rng: random.Random) -> Draft:
    """Expert communication overlapped, everything that it needs given."""
    draft = base(rng, "moe")
    draft.training["overlap_expert_communication"] = True
    draft.options["recompute_full"] = False
    draft.degrees["ep"], draft.degrees["etp"], draft.dp = 2, 1, 2
    draft.changes["mtp_layers"] = rng.choice((0, 1))
    draw_split(draft, rng, rng.choice((2, 2, 3)) if draft["pp"] > 1 else 1)
    return draft


def _overlap_degrees(rng: random.Random) -> Draft:
    draft = _overlap(rng)
    draft.degrees["ep"] = rng.choice((1, 1, 2))
    if draft.options["dispatcher"] == "deepep":
        draft.options["dispatcher"] = "hybridep"
    draw_split(draft, rng, rng.choice((1, 2)) if draft["pp"] > 1 else 1)
    return draft


def _overlap_mtp(rng: random.Random) -> Draft:
    draft = _overlap(rng)
    draft.changes["mtp_layers"] = rng.choice((0, 1, 2, 2))
    draw_split(draft, rng, draft["vpp"])
    return draft


def _overlap_options(rng: random.Random) -> Draft:
    draft = _overlap(rng)
    draft.options["recompute_full"] = rng.random() < 0.2
    if not draft.options["recompute_full"] and rng.random() < 0.5:
        draft.options["recompute"] = rng.choice((("moe",), ("moe_act",), ("mlp",), ("core_attn",)))
    elif rng.random() < 0.8:
        draft.options["cuda_graphs"] = rng.choice((("attn",), ("moe_router",), ("mlp",), ("mlp",)))
        draft.changes["dense_layers"], draft.changes["ffn"] = 1, draft["tp"] * 64
    return draft


def _optimizer(rng: random.Random) -> Draft:
    draft = base(rng)
    draft.training["precision_aware"] = rng.choice((True, False, False, None))
    draft.training["moment_bytes"] = rng.choice((2, 4))
    draft.training["fp8_parameters"] = rng.choice((True, True, False, None))
    draft.options["offload"] = rng.choice((0, 25, 100))
    draft.precision = rng.choice(PRECISIONS)
    return draft


AIMS: dict[str, Aim] = {
    "world-dense-divisible": _world_dense,
    "world-expert-divisible": _world_expert,
    "ep-not-bounded-by-dp": _ep_over_dp,
    "heads-tp": _heads,
    "kv-groups-tp": _kv_groups,
    "qkv-out-tp": _qkv,
    "ffn-tp": _width("ffn", "tp", "dense"),
    "moe-ffn-etp": _width("moe_ffn", "etp", "moe"),
    "shared-ffn-tp": _width("shared_ffn", "tp", "moe"),
    "gdn-heads-tpcp": _delta_net,
    "sp-seq-divisible": _sequence,
    "seq-2cp": _sequence,
    "gbs-divisible": _batch,
    "vpp-needs-pp": _vpp_without_pp,
    "interleaved-ga": _interleaved,
    "ep-needs-moe": _ep_dense,
    "experts-ep": _experts,
    "expert-bias": _bias,
    "deepep-needs-etp-ep": _dispatcher,
    "recompute": _recompute,
    "cuda-graphs": _graphs,
    "cg-moe-xor-router": _one_graph("moe", "moe_router"),
    "cg-preprocess-needs-router": _one_graph("moe_router", "moe_preprocess"),
    "cg-moe-needs-experts": _one_graph("moe", "moe_router", kind="dense"),
    "cg-mlp-needs-dense": _one_graph("attn", "mlp"),
    "cg-moe-recompute-router": _one_graph("moe_router", "attn", recompute=("moe",)),
    "cg-full-recompute": _full_with_graph,
    "ep-overlap": _overlap,
    "ep-overlap-ep": _overlap_degrees,
    "ep-overlap-mtp": _overlap_mtp,
    "ep-overlap-recompute": _overlap_options,
    "optimizer": _optimizer,
    "moe-tp-needs-sp": memory.sequence_parallel,
    "fg-offload-moe-recompute": memory.offload_recompute,
    "fg-offload-graph-moe": memory.offload_graph,
    "layers-pp-default": splits.even_split,
    "layout-string": splits.legal_string,
    "layout-mtp-place": splits.mtp_moved,
    "layout-mtp-one-stage": splits.mtp_split,
    "layout-mtp-count": splits.mtp_counted,
    "layout-ends": splits.ends,
    "layout-decoder-count": splits.decoders,
    "layout-stage-count": splits.stage_count,
    "layout-grammar": splits.noisy,
}
