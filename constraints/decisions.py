"""Names of the decisions that make up a layout, and the candidate values a scenario leaves open.

Every rule and every cost term names the decisions it reads (its *scope*) with the strings
defined here.  Some names are derived from others (``attention_tokens``): they may be used in a
scope as well, and the encoder gives each its own variable.
"""

from __future__ import annotations

#: Degrees of the two meshes and the batch (see the glossary in CONTRIBUTING.md).
DEGREES: tuple[str, ...] = (
    "tp", "cp", "pp", "vpp", "dp", "ep", "etp", "edp", "mbs", "ga", "gbs",
)  # fmt: skip

#: Modules that selective recompute can name (Megatron-Core 0.19 ``recompute_modules``).
RECOMPUTE_MODULES: tuple[str, ...] = (
    "core_attn", "moe_act", "layernorm", "mla_up_proj", "mlp", "moe", "shared_experts",
)  # fmt: skip

#: Scopes that partial CUDA graphs can capture (Megatron-Core ``cuda_graph_modules``).
GRAPH_SCOPES: tuple[str, ...] = (
    "attn", "mlp", "moe", "moe_router", "moe_preprocess", "mamba",
)  # fmt: skip

#: Token dispatchers of the MoE layers.
DISPATCHERS: tuple[str, ...] = ("alltoall", "deepep", "hybridep")

#: How context parallelism exchanges keys and values (``cp_comm_type``).
CP_COMM_TYPES: tuple[str, ...] = ("p2p", "a2a", "a2a+p2p", "all_gather")

#: Scope names of the boolean decisions.
RECOMPUTE_FLAGS: tuple[str, ...] = tuple(f"rc_{m}" for m in RECOMPUTE_MODULES)
GRAPH_FLAGS: tuple[str, ...] = tuple(f"cg_{s}" for s in GRAPH_SCOPES)

#: All decisions except the pipeline slots, in the canonical order that breaks the last ties.
DECISIONS: tuple[str, ...] = (
    *DEGREES, "rc_full", *RECOMPUTE_FLAGS, "offload", "dispatcher", "cp_comm", *GRAPH_FLAGS,
)  # fmt: skip

#: Derived quantities that a scope may name, with the decisions they follow from.
#: ``attention_tokens``: tokens of one micro-batch on a context-parallel rank, ``mbs*seq_len/cp``.
#: ``moe_tokens``: tokens that one rank sends to the routed experts, ``attention_tokens/tp``
#: (sequence parallelism shards them over TP).
DERIVED: dict[str, tuple[str, ...]] = {
    "attention_tokens": ("cp", "mbs"),
    "moe_tokens": ("tp", "cp", "mbs"),
}
