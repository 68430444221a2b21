"""Nemotron-H: layers of a single part each, Mamba-2, attention, MLP or experts.

Field names: ``configuration_nemotron_h.py`` of the released models, ``layers_block_type`` of
huggingface/transformers from v5 on; biases and norms: their ``modeling_nemotron_h.py``.
"""

from __future__ import annotations

from meshplan.scenarios.importers.hf_config import Fields
from meshplan.scenarios.importers.hf_parts import (
    Figures,
    common,
    dense_ffn,
    grouped_query,
    mtp_layers,
    router_groups,
)

#: Letters of ``hybrid_override_pattern`` and words of ``layers_block_type``, by entry of a pattern.
LETTERS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
_WORDS = {entry: entry for entry in LETTERS.values()}


def nemotron_h(fields: Fields) -> Figures:
    """Figures of one hybrid model."""
    pattern = _pattern(fields, "hybrid_override_pattern", "layers_block_type")
    if pattern is None:
        raise fields.refuse(
            "hybrid_override_pattern",
            "hybrid_override_pattern is missing, which nemotron_h needs (its layers)",
            "add it, or layers_block_type.",
        )
    # Files with a list of layers leave their number out.
    fields.data = {"num_hidden_layers": len(pattern), **fields.data}
    figures = common(fields)
    if figures["layers"] != len(pattern):
        raise fields.refuse(
            "num_hidden_layers",
            f"num_hidden_layers is {figures['layers']}, but the pattern has {len(pattern)} layers",
            "check that this is the model's own config.json.",
        )
    figures["layer_pattern"] = tuple(pattern)
    fields.only("mlp_hidden_act", ("relu2",), "MLPs other than squared ReLU, which has no gate")
    figures["gated"] = False
    grouped_query(fields, figures)
    key = "head_dim" if fields.value("head_dim") is not None else "attention_head_dim"
    figures["head_dim"] = fields.whole(key, "head dimension")
    figures["attention_bias"] = fields.flag("attention_bias", False)
    figures["mlp_bias"] = fields.flag("mlp_bias", False)
    _mamba(fields, figures)
    if "mlp" in pattern or "moe" not in pattern:
        dense_ffn(fields, figures)
    if "moe" in pattern:
        _experts(fields, figures)
    _prediction(fields, figures)
    return figures


def _pattern(fields: Fields, letters: str, words: str) -> list[str] | None:
    """A pattern in letters or in words; None if neither is given."""
    text = fields.value(letters)
    names = LETTERS if text is not None else _WORDS
    entries = list(text) if isinstance(text, str) else fields.words(letters if text else words)
    if entries is None:
        return None
    unknown = [entry for entry in entries if entry not in names]
    if unknown or not 0 < len(entries) <= 2048:
        what = f"names {unknown[0][:60]!r}" if unknown else f"has {len(entries)} layers"
        raise fields.refuse(
            letters if text is not None else words,
            f"{letters if text is not None else words} {what}, but a layer is one of "
            f"{', '.join(names)}, and there are at most 2048",
            "check that this is the model's own config.json.",
        )
    return [names[entry] for entry in entries]


def _mamba(fields: Fields, figures: Figures) -> None:
    if "mamba" not in figures["layer_pattern"]:
        return
    fields.only("use_bias", (False,), "Mamba with biases of its linears")
    fields.only("mamba_proj_bias", (False,), "Mamba with biases of its linears")
    fields.only("use_conv_bias", (True,), "Mamba without the bias of its convolution")
    figures["mamba_heads"] = fields.whole("mamba_num_heads", "Mamba heads")
    figures["mamba_head_dim"] = fields.whole("mamba_head_dim", "Mamba head dimension")
    figures["mamba_state"] = fields.whole("ssm_state_size", "Mamba state size")
    figures["mamba_groups"] = fields.whole("n_groups", "Mamba groups")
    figures["mamba_conv"] = fields.whole("conv_kernel", "convolution width")


def _experts(fields: Fields, figures: Figures) -> None:
    figures["experts"] = fields.whole("n_routed_experts", "routed experts")
    figures["topk"] = fields.whole("num_experts_per_tok", "experts per token")
    figures["moe_ffn"] = fields.whole("moe_intermediate_size", "FFN width of an expert")
    figures["moe_latent"] = fields.optional("moe_latent_size", "width that experts work in")
    if fields.optional("n_shared_experts", "shared experts", low=0):
        fields.only("n_shared_experts", (1,), "several shared experts")
        figures["shared_ffn"] = fields.whole(
            "moe_shared_expert_intermediate_size", "width of the shared expert"
        )
    router_groups(fields, figures)


def _prediction(fields: Fields, figures: Figures) -> None:
    mtp_layers(fields, figures, "num_nextn_predict_layers")
    if not figures.get("mtp_layers"):
        return
    pattern = _pattern(fields, "mtp_hybrid_override_pattern", "mtp_layers_block_type")
    wanted = ["attention", "moe" if "moe" in figures["layer_pattern"] else "mlp"]
    if pattern != wanted:
        raise fields.refuse(
            "mtp_hybrid_override_pattern",
            f"an MTP layer is {' and '.join(pattern or ['not given'])}, but a model card holds "
            f"{' and '.join(wanted)}",
            "give the model's figures under `model:` as far as they go.",
        )
    if figures["mtp_layers"] == 1:
        fields.notes.append(
            "its recipes train two MTP steps with the weights of one layer: for that write "
            "mtp_layers: 2 and mtp_repeated: true"
        )


__all__ = ["nemotron_h"]
