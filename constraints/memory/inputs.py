"""Inputs that the modules of a layer save, and which of them fine-grained offload can move.

Source: Megatron-LM d98e8a64 ``core/transformer/transformer_layer.py`` (``_set_offload_modules``),
``core/models/gpt/gpt_layer_specs.py``, ``core/models/hybrid/hybrid_layer_specs.py``.
"""

from __future__ import annotations

from meshplan.constraints.problem import Problem
from meshplan.scenarios.model_card import LayerKind


def kept(problem: Problem, module: str, bytes_: float) -> float:
    """The saved input of ``module``, or nothing if that is offloaded to the host."""
    return 0.0 if module in problem.training.activation_offload else bytes_


def lone_input_norm(kind: LayerKind) -> bool:
    """Whether the norm before attention is a module of its own, as with MLA.

    Otherwise Transformer Engine's ``LayerNormLinear`` has it, which saves the input and the normed
    input (Megatron-LM ``gpt_layer_specs.py``, ``hybrid_layer_specs.py``).  ``attn_norm`` offload
    then moves nothing, and ``qkv_linear`` both (``transformer_layer.py`` ``_set_offload_modules``).
    """
    return kind.attention == "mla"


def lone_mlp_norm(kind: LayerKind) -> bool:
    """Whether the norm before the MLP is a module of its own, as before experts.

    A dense MLP's is fused into its first matrix product, so that ``mlp_norm`` moves nothing.
    """
    return kind.mlp == "moe"


def captures(kind: LayerKind, *, attn: int = 0, mlp: int = 0, moe: int = 0, mamba: int = 0) -> bool:
    """Whether CUDA graphs of these scopes capture a part of such a layer."""
    return bool(
        (kind.attention in ("gqa", "swa", "mla", "gdn") and attn)
        or (kind.attention == "mamba" and mamba)
        or (kind.mlp == "dense" and mlp)
        or (kind.mlp == "moe" and moe)
    )


def input_and_norm(
    problem: Problem, kind: LayerKind, hidden_bytes: float, norm_bytes: float, *, layernorm: bool
) -> float:
    """Layer input and normed input, on the GPU."""
    if lone_input_norm(kind):
        normed = 0.0 if layernorm else kept(problem, "qkv_linear", norm_bytes)
        return kept(problem, "attn_norm", hidden_bytes) + normed
    if kind.attention in ("gqa", "swa"):
        return kept(problem, "qkv_linear", hidden_bytes + norm_bytes)
    return hidden_bytes + norm_bytes


def mlp_input(problem: Problem, kind: LayerKind, bytes_: float) -> float:
    """What the norm before the MLP reads, on the GPU."""
    return kept(problem, "mlp_norm", bytes_) if lone_mlp_norm(kind) else bytes_


def kv_width(problem: Problem, tp: int) -> float:
    """Elements of K (or V) of one token on all TP ranks; more ranks than groups replicate them."""
    card = problem.model
    return card.kv_groups * card.head_dim * max(1.0, tp / card.kv_groups)


def core_inputs(problem: Problem, tp: int) -> float:
    """Bytes of q, k and v of one token on one TP rank, as full attention saves them."""
    card = problem.model
    if card.attention == "mla":
        return card.heads / tp * (2 * card.qk_head_dim * 2 + 2 * (card.v_head_dim or 0))
    return 2 * (card.query_width + 2 * kv_width(problem, tp)) / tp
