"""The Megatron-LM arguments that are read, and how their values are written.

Names and defaults: Megatron-LM d98e8a64 ``megatron/training/arguments.py`` and the configuration
classes of megatron-core 0.19 that give their fields as flags.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal, TypeAlias

from meshplan.scenarios.checks import MAX_DEGREE
from meshplan.scenarios.yaml_reader import shorten

Value: TypeAlias = int | float | bool | str | tuple[str, ...]
Form: TypeAlias = Literal["count", "fraction", "flag", "word", "words"]

_COUNTS = (
    # degrees and batch
    "tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size",
    "expert_model_parallel_size", "expert_tensor_parallel_size", "data_parallel_size",
    "world_size", "virtual_pipeline_model_parallel_size", "num_virtual_stages_per_pipeline_rank",
    "num_layers_per_virtual_pipeline_stage", "decoder_first_pipeline_num_layers",
    "decoder_last_pipeline_num_layers", "micro_batch_size", "global_batch_size", "seq_length",
    "recompute_num_layers",
    # the model
    "num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads", "num_query_groups",
    "kv_channels", "num_experts", "moe_router_topk", "moe_ffn_hidden_size",
    "moe_shared_expert_intermediate_size", "q_lora_rank", "kv_lora_rank", "qk_head_dim",
    "qk_pos_emb_head_dim", "v_head_dim", "mtp_num_layers", "make_vocab_size_divisible_by",
)  # fmt: skip
_FLAGS = (
    "account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split",
    "sequence_parallel", "use_distributed_optimizer", "recompute_activations",
    "moe_layer_recompute", "optimizer_cpu_offload", "use_precision_aware_optimizer",
    "moe_enable_deepep", "enable_cuda_graph", "external_cuda_graph", "bf16", "fp16",
    "fp8_param_gather", "grad_reduce_in_bf16", "overlap_moe_expert_parallel_comm",
    "group_query_attention", "multi_latent_attention", "untie_embeddings_and_output_weights",
    "use_megatron_fsdp", "use_torch_fsdp2", "gradient_accumulation_fusion",
    "cross_entropy_loss_fusion", "fine_grained_activation_offloading",
)  # fmt: skip
_WORDS = (
    "pipeline_model_parallel_layout", "recompute_granularity", "recompute_method",
    "moe_token_dispatcher_type", "moe_flex_dispatcher_backend", "cuda_graph_impl", "fp8",
    "fp8_recipe", "fp4", "fp4_recipe", "main_grads_dtype", "exp_avg_dtype", "exp_avg_sq_dtype",
    "hybrid_layer_pattern", "attention_backend", "cross_entropy_fusion_impl",
)  # fmt: skip
_LISTS = (
    "recompute_modules", "cuda_graph_modules", "cp_comm_type", "rampup_batch_size",
    "step_batch_size_schedule", "offload_modules",
)  # fmt: skip
_FRACTIONS = ("optimizer_offload_fraction", "activation_offload_fraction", "hidden_dropout")

#: Every argument that is read, by its name in the printed dump.
FORMS: dict[str, Form] = {
    **dict.fromkeys(_COUNTS, "count"),
    **dict.fromkeys(_FLAGS, "flag"),
    **dict.fromkeys(_WORDS, "word"),
    **dict.fromkeys(_LISTS, "words"),
    **dict.fromkeys(_FRACTIONS, "fraction"),
}
#: Flags whose value the dump shows under another name.
OTHER_NAMES = {
    "fp8_format": "fp8",
    "fp4_format": "fp4",
    "cuda_graph_scope": "cuda_graph_modules",
    "hybrid_override_pattern": "hybrid_layer_pattern",
}
#: What people write for a degree, other than a misspelling.
_MISNAMED = {
    "tensor_parallel_size": "tensor_model_parallel_size",
    "pipeline_parallel_size": "pipeline_model_parallel_size",
    "context_model_parallel_size": "context_parallel_size",
    "expert_parallel_size": "expert_model_parallel_size",
    "expert_tensor_model_parallel_size": "expert_tensor_parallel_size",
    "tp": "tensor_model_parallel_size",
    "pp": "pipeline_model_parallel_size",
    "cp": "context_parallel_size",
    "ep": "expert_model_parallel_size",
    "etp": "expert_tensor_parallel_size",
    "vpp": "num_virtual_stages_per_pipeline_rank",
    "mbs": "micro_batch_size",
    "gbs": "global_batch_size",
}
#: Figures of the model, by the field of a model card that they must agree with.
CARD_FIELDS = {
    "num_layers": "layers",
    "hidden_size": "hidden",
    "ffn_hidden_size": "ffn",
    "num_attention_heads": "heads",
    "num_query_groups": "kv_groups",
    "num_experts": "experts",
    "moe_router_topk": "topk",
    "moe_ffn_hidden_size": "moe_ffn",
    "moe_shared_expert_intermediate_size": "shared_ffn",
    "q_lora_rank": "q_lora_rank",
    "kv_lora_rank": "kv_lora_rank",
    "qk_head_dim": "qk_nope_head_dim",
    "qk_pos_emb_head_dim": "qk_rope_head_dim",
    "v_head_dim": "v_head_dim",
    "mtp_num_layers": "mtp_layers",
}


class ValueFault(ValueError):
    """A value that an argument cannot have: what is wrong, and what to write."""

    def __init__(self, message: str, advice: str) -> None:
        super().__init__(message)
        self.message, self.advice = message, advice


@dataclass(frozen=True)
class Flag:
    """A flag as written: its name in the dump, and whether ``--no-`` turns it off."""

    name: str
    off: bool = False


def flag_of(written: str) -> Flag | None:
    """The argument that ``--name`` sets, in either spelling; None if it is not read."""
    name = written.lstrip("-").replace("-", "_")
    name = OTHER_NAMES.get(name, name)
    if name in FORMS:
        return Flag(name)
    bare = OTHER_NAMES.get(name[3:], name[3:])
    if name.startswith("no_") and FORMS.get(bare) == "flag":
        return Flag(bare, True)
    return None


def spelt(name: str) -> str:
    """The name as a flag: ``--tensor-model-parallel-size``."""
    back = {"fp8": "fp8_format", "fp4": "fp4_format"}
    return "--" + back.get(name, name).replace("_", "-")


def near_flag(written: str) -> str | None:
    """A flag that is read and that ``written`` looks like a misspelling of."""
    name = written.lstrip("-").replace("-", "_")[:80]
    if name in _MISNAMED:
        return spelt(_MISNAMED[name])
    longer = [one for one in FORMS if one.startswith(name)]
    if len(longer) == 1 and len(name) > 2:
        return spelt(longer[0])
    near = get_close_matches(name, FORMS, n=1, cutoff=0.92)
    return spelt(near[0]) if near else None


def value_of(name: str, words: tuple[str, ...]) -> Value:
    """The value of an argument from the words behind its flag.

    Raises
    ------
    ValueFault
        If there is none, or it is not of the argument's kind or range.
    """
    form = FORMS[name]
    if form == "flag":
        return _truth(name, words)
    if not words or (form != "words" and not words[0]):
        raise ValueFault("has no value", "add it, or check that the file is complete.")
    if form == "words":
        return tuple(part for word in words for part in re.split(r"[\s,]+", word) if part)
    if form == "word":
        # A dump writes AttnBackend.auto.
        return words[0].removeprefix("AttnBackend.") if name == "attention_backend" else words[0]
    return _count(words[0]) if form == "count" else _fraction(words[0])


def _truth(name: str, words: tuple[str, ...]) -> bool:
    if not words or words[0].lower() in ("true", "1", "yes"):
        return True
    if words[0].lower() in ("false", "0", "no"):
        return False
    raise ValueFault(f"is {shorten(words[0])}, but is true or false", f"write {spelt(name)} alone.")


def _count(word: str) -> int:
    # The least is 0: MTP layers and decoder layers of a stage can be none.
    if re.fullmatch(r"[0-9]{1,12}", word) and int(word) <= 16 * MAX_DEGREE:
        return int(word)
    raise ValueFault(
        f"is {shorten(word)}, but must be an integer from 0 to {16 * MAX_DEGREE}",
        "write a plain number.",
    )


def _fraction(word: str) -> float:
    if re.fullmatch(r"([0-9]{1,4}\.?[0-9]{0,20}|\.[0-9]{1,20})(e-?[0-9]{1,3})?", word):
        number = float(word)
        if number <= 1:
            return number
    raise ValueFault(
        f"is {shorten(word)}, but must be from 0 to 1", "write a fraction such as 0.1."
    )


__all__ = [
    "CARD_FIELDS",
    "FORMS",
    "Flag",
    "Value",
    "ValueFault",
    "flag_of",
    "near_flag",
    "spelt",
    "value_of",
]
