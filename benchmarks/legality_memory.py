"""Aims at rules on settings that save memory: sequence parallelism, activations on the host."""

from __future__ import annotations

import random
from typing import get_args

from benchmarks.legality_draws import Draft, base
from meshplan.scenarios.choices import OffloadModule

#: Modules whose saved inputs may be kept on the host.
OFFLOADED: tuple[str, ...] = get_args(OffloadModule)


def sequence_parallel(rng: random.Random) -> Draft:
    """Sequence parallelism left out: with experts and TP it must not be."""
    draft = base(rng, rng.choice(("moe", "moe", "moe", "dense")))
    if draft["tp"] == 1 and draft.model.kv_groups % 2 == 0 and rng.random() < 0.7:
        draft.degrees["tp"], draft.dp = 2, 2 * draft.dp
        draft.seq_len *= 2
    draft.training["sequence_parallel"] = rng.random() < 0.25
    return draft


def _activations(rng: random.Random) -> tuple[str, ...]:
    """Modules of fine-grained offload; attn_proj goes with core_attn only."""
    share = rng.choice((0.15, 0.3, 0.6))
    names = [n for n in OFFLOADED if rng.random() < share] or [rng.choice(OFFLOADED)]
    return tuple(n for n in OFFLOADED if n in names or (n == "core_attn" and "attn_proj" in names))


def offload_recompute(rng: random.Random) -> Draft:
    """Recompute of the MoE layer, and inputs inside of it on the host."""
    draft = base(rng, "moe")
    draft.training["activation_offload"] = _activations(rng)
    draft.options["recompute_full"] = rng.random() < 0.1
    if not draft.options["recompute_full"]:
        draft.options["recompute"] = rng.choice((("moe",), ("moe",), ("core_attn",), ()))
    draft.precision = rng.choice(("bf16", "fp8-block", "mxfp8"))
    return draft


def offload_graph(rng: random.Random) -> Draft:
    """Graphs of the MoE layer or of parts of it, and inputs on the host."""
    draft = base(rng, "moe")
    draft.training["activation_offload"] = _activations(rng) if rng.random() < 0.8 else ()
    draft.options["recompute_full"] = False
    draft.options["cuda_graphs"] = rng.choice(
        (("moe",), ("moe",), ("attn",), ("moe_router",), ("attn", "moe_router"))
    )
    return draft
