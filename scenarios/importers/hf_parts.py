"""Figures that several architectures give in the same way: attention, layer patterns, experts.

Field names and defaults as in :mod:`meshplan.scenarios.importers.hf_families`.  Each function adds
to ``figures`` what it reads from ``fields``, and raises InputError for what a card cannot hold.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from meshplan.scenarios.importers.hf_config import Fields

Figures: TypeAlias = dict[str, Any]


def common(fields: Fields, *, tied: bool = False) -> Figures:
    """What every decoder has; ``tied`` is the default of ``tie_word_embeddings``."""
    return {
        "layers": fields.whole("num_hidden_layers", "decoder layers"),
        "hidden": fields.whole("hidden_size", "hidden size"),
        "vocab": fields.whole("vocab_size", "vocabulary"),
        "heads": fields.whole("num_attention_heads", "query heads"),
        "tied_embeddings": fields.flag("tie_word_embeddings", tied),
        "gated": True,
    }


def grouped_query(fields: Fields, figures: Figures, *, groups_default: bool = False) -> None:
    """Grouped-query attention; ``groups_default``: absent KV heads mean as many as heads."""
    figures["attention"] = "gqa"
    if groups_default and fields.value("num_key_value_heads") is None:
        figures["kv_groups"] = figures["heads"]
        fields.notes.append("num_key_value_heads not given: as many as num_attention_heads")
    else:
        figures["kv_groups"] = fields.whole("num_key_value_heads", "KV heads")
    if figures["heads"] % figures["kv_groups"]:
        raise fields.refuse(
            "num_key_value_heads",
            f"num_attention_heads ({figures['heads']}) is no multiple of num_key_value_heads "
            f"({figures['kv_groups']})",
            "check that this is the model's own config.json.",
        )


def head_dim(fields: Fields, figures: Figures) -> None:
    """``head_dim``, or hidden over heads where the architecture's class says so."""
    known = fields.optional("head_dim", "head dimension")
    if known is None and figures["hidden"] % figures["heads"]:
        raise fields.refuse(
            "head_dim",
            f"head_dim is missing, and hidden_size ({figures['hidden']}) is no multiple of "
            f"num_attention_heads ({figures['heads']})",
            "add head_dim.",
        )
    figures["head_dim"] = known or figures["hidden"] // figures["heads"]


def dense_ffn(fields: Fields, figures: Figures) -> None:
    """FFN width of the dense layers."""
    figures["ffn"] = fields.whole("intermediate_size", "FFN width")


def qkv_bias(figures: Figures) -> None:
    """Biases of q, k and v alone."""
    figures["qkv_bias"] = True


# -- layers that differ ------------------------------------------------------------------------


def layer_pattern(
    fields: Fields, figures: Figures, names: dict[str, str], default: list[str]
) -> None:
    """Attention by layer from ``layer_types``, or from the default of the architecture's class."""
    types = fields.words("layer_types") or default
    layers = figures["layers"]
    unknown = [name for name in types if name not in names]
    if unknown or len(types) != layers:
        what = f"names {unknown[0][:60]!r}" if unknown else f"has {len(types)} entries"
        raise fields.refuse(
            "layer_types",
            f"layer_types {what}, but num_hidden_layers is {layers} and a layer is "
            f"{' or '.join(names)}",
            "check that this is the model's own config.json.",
        )
    entries = [names[name] for name in types]
    if set(entries) == {"full"}:
        return
    period = next(
        size
        for size in range(1, layers + 1)
        if all(entry == entries[index % size] for index, entry in enumerate(entries))
    )
    figures["layer_pattern"] = tuple(entries[:period])


def windows(fields: Fields, figures: Figures, default: list[str]) -> None:
    """Sliding-window layers among full ones."""
    names = {"sliding_attention": "swa", "full_attention": "full"}
    layer_pattern(fields, figures, names, default)
    if "layer_pattern" in figures:
        figures["sliding_window"] = fields.whole("sliding_window", "window of its layers")


def every_nth(count: int, layers: int, other: str) -> list[str]:
    """Full attention in each ``count``-th layer, ``other`` in the rest."""
    return ["full_attention" if (i + 1) % count == 0 else other for i in range(layers)]


def qwen_window(fields: Fields, figures: Figures) -> None:
    """Qwen's windows: off unless ``use_sliding_window``, and then from ``max_window_layers`` on."""
    if not fields.flag("use_sliding_window", False) or fields.value("sliding_window") is None:
        return
    layers = figures["layers"]
    first = fields.whole("max_window_layers", "first layer with a window", default=28, low=0)
    kinds = ["sliding_attention" if i >= first else "full_attention" for i in range(layers)]
    windows(fields, figures, kinds)


# -- experts -----------------------------------------------------------------------------------


def qwen_experts(fields: Fields, figures: Figures) -> None:
    """Experts as Qwen names them, in every layer but the first dense ones."""
    fields.only("decoder_sparse_step", (1,), "dense layers among those with experts")
    figures["experts"] = fields.whole("num_experts", "routed experts")
    figures["topk"] = fields.whole("num_experts_per_tok", "experts per token")
    figures["moe_ffn"] = fields.whole("moe_intermediate_size", "FFN width of an expert")
    dense = fields.value("mlp_only_layers") or []
    if not isinstance(dense, list) or dense != list(range(len(dense))):
        raise fields.refuse(
            "mlp_only_layers",
            "mlp_only_layers is not 0, 1, 2, ...: a model card has its dense layers first",
            "give the model's figures under `model:` as far as they go.",
        )
    if dense:
        figures["dense_layers"] = len(dense)
        dense_ffn(fields, figures)


def grouped_experts(fields: Fields, figures: Figures) -> None:
    """Experts as DeepSeek and GLM name them: dense layers first, shared experts, router groups."""
    figures["experts"] = fields.whole("n_routed_experts", "routed experts")
    figures["topk"] = fields.whole("num_experts_per_tok", "experts per token")
    figures["moe_ffn"] = fields.whole("moe_intermediate_size", "FFN width of an expert")
    fields.only("moe_layer_freq", (1,), "dense layers among those with experts")
    dense = fields.whole("first_k_dense_replace", "dense layers", low=0)
    if kinds := fields.words("mlp_layer_types"):
        wanted = ["dense"] * dense + ["sparse"] * (figures["layers"] - dense)
        if kinds != wanted:
            raise fields.refuse(
                "mlp_layer_types",
                f"mlp_layer_types differs from first_k_dense_replace ({dense})",
                "a model card has its dense layers first.",
            )
    if dense:
        figures["dense_layers"] = dense
        dense_ffn(fields, figures)
    shared = fields.optional("n_shared_experts", "shared experts", low=0)
    if shared:
        figures["shared_ffn"] = shared * figures["moe_ffn"]
    router_groups(fields, figures)


def router_groups(fields: Fields, figures: Figures) -> None:
    """Groups of experts that a token is limited to."""
    groups = fields.optional("n_group", "router groups")
    topk_groups = fields.optional("topk_group", "router groups of a token")
    if groups is not None and groups > 1:  # one group is no grouping
        figures["router_groups"] = groups
        figures["router_topk_groups"] = topk_groups


def mtp_layers(fields: Fields, figures: Figures, *keys: str) -> None:
    """MTP layers under the first of ``keys`` that is given."""
    for key in keys:
        if fields.value(key) is not None:
            figures["mtp_layers"] = fields.whole(key, "MTP layers", low=0)
            if figures["mtp_layers"]:
                fields.notes.append(
                    f"{key} is {figures['mtp_layers']}: trained along; without it write "
                    "mtp_layers: 0"
                )
            return


__all__ = [
    "Figures",
    "common",
    "dense_ffn",
    "every_nth",
    "grouped_experts",
    "grouped_query",
    "head_dim",
    "layer_pattern",
    "mtp_layers",
    "qkv_bias",
    "qwen_experts",
    "qwen_window",
    "router_groups",
    "windows",
]
