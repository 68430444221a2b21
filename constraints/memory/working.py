"""Memory alive only while one layer runs forward or backward, or while the loss is computed.

In quanta.  Source: fitted on published allocator figures (SimuMax, Megatron-LM golden values);
Megatron-LM d98e8a64 ``core/transformer/moe/token_dispatcher.py``,
``core/fusions/fused_cross_entropy.py``; Transformer Engine ``cross_entropy.py``.
"""

from __future__ import annotations

from functools import lru_cache

from meshplan.constraints.memory.activations import (
    attention_activation,
    dense_mlp_activation,
    expert_widths,
    moe_activation,
    routed_copies,
)
from meshplan.constraints.memory.inputs import kv_width
from meshplan.constraints.problem import Problem, quanta
from meshplan.scenarios.model_card import LayerKind


def _residual(problem: Problem, tp: int, tokens: int) -> float:
    """Gradients of the residual stream, and of the gathered sequence with TP."""
    h = problem.model.hidden
    gathered = tokens * 2 * h if tp > 1 and problem.training.sequence_parallel else 0
    return tokens / problem.sequence_shards(tp) * 6 * h + gathered


@lru_cache(maxsize=65536)
def attention_working(
    problem: Problem,
    tp: int,
    attention_tokens: int,
    rc_core_attn: int,
    rc_layernorm: int,
    rc_mla_up_proj: int,
    rc_full: int,
) -> int:
    """Attention half: gradients of the residual stream and what recompute brings back."""
    recomputed = max(
        attention_activation(problem, kind, tp, attention_tokens, 0, 0, 0, 0)
        - attention_activation(
            problem, kind, tp, attention_tokens, rc_core_attn, rc_layernorm, rc_mla_up_proj, rc_full
        )
        for kind in problem.cost_kinds
    )
    return quanta(_residual(problem, tp, attention_tokens)) + max(0, recomputed)


@lru_cache(maxsize=65536)
def ring_working(
    problem: Problem,
    tp: int,
    attention_tokens: int,
    cp: int,
    cp_comm: str,
    rc_core_attn: int,
    rc_layernorm: int,
    rc_mla_up_proj: int,
    rc_full: int,
) -> int:
    """Attention half with a ring exchange: K and V of the neighbour beside the rank's own."""
    if cp == 1 or "p2p" not in cp_comm:
        return 0
    card = problem.model
    pair = 2 * kv_width(problem, tp) if card.attention == "gqa" else 2 * card.kv_width
    neighbour = quanta(2 * 2 * pair * attention_tokens / tp)  # in flight and in use
    return neighbour + attention_working(
        problem, tp, attention_tokens, rc_core_attn, rc_layernorm, rc_mla_up_proj, rc_full
    )


@lru_cache(maxsize=65536)
def dense_mlp_working(
    problem: Problem, tp: int, attention_tokens: int, rc_mlp: int, rc_full: int
) -> int:
    """Dense MLP half: residual gradients, gradient of fc1's output, recomputed tensors.

    Without fused accumulation the gradient of fc1's weight exists before it is added.
    """
    card = problem.model
    kind = next((kind for kind in problem.cost_kinds if kind.mlp == "dense"), None)
    if kind is None:
        return 0
    gate, ffn = 2 if card.gated else 1, card.ffn or 0
    gradient = attention_tokens / tp * 2 * gate * ffn
    base = quanta(_residual(problem, tp, attention_tokens) + gradient)
    if not problem.training.fused_gradients:
        base += quanta(2 * gate * ffn * card.hidden / tp)
    return (
        base
        + dense_mlp_activation(problem, kind, tp, attention_tokens, 0, 0)
        - dense_mlp_activation(problem, kind, tp, attention_tokens, rc_mlp, rc_full)
    )


@lru_cache(maxsize=65536)
def moe_working(
    problem: Problem,
    moe_tokens: int,
    ep: int,
    etp: int,
    dispatcher: str,
    rc_layernorm: int,
    rc_moe: int,
    rc_moe_act: int,
    rc_shared_experts: int,
    rc_full: int,
) -> int:
    """MoE half: permuted copies of the tokens and their gradients, recomputed tensors.

    Without fused accumulation the gradients of fc1 of all local experts, which one grouped product
    makes, exist before they are added.
    """
    card = problem.model
    kind = next((kind for kind in problem.cost_kinds if kind.mlp == "moe"), None)
    if kind is None:
        return 0
    latent, ffn = expert_widths(problem, etp)
    gate = 2 if card.gated else 1
    if dispatcher == "alltoall":
        per_copy = max(7 * latent, 2 * latent + 2 * ffn, 2 * gate * ffn)
    else:
        per_copy = max(4 * latent, 2 * gate * ffn)
    base = quanta(moe_tokens * 6 * card.hidden)
    copies = routed_copies(problem, moe_tokens, ep, etp)
    routed = copies * per_copy
    if not problem.training.fused_gradients:
        weight = 2 * (card.experts or 0) / ep * gate * ffn * latent
        routed = max(routed, copies * (2 * gate * ffn + 2 * latent) + weight)
    base += quanta(routed)
    recompute = (rc_layernorm, rc_moe, rc_moe_act, rc_shared_experts, rc_full)
    whole = moe_activation(problem, kind, moe_tokens, ep, etp, dispatcher, 0, 0, 0, 0, 0)
    return base + whole - moe_activation(problem, kind, moe_tokens, ep, etp, dispatcher, *recompute)


def layer_saved(
    problem: Problem, kind: LayerKind, tp: int, tokens: int, ep: int, etp: int, dispatcher: str
) -> int:
    """All that one layer saves for one micro-batch with no recompute."""
    total = attention_activation(problem, kind, tp, tokens, 0, 0, 0, 0)
    if kind.mlp == "moe":
        moe_tokens = -(-tokens // tp)
        total += moe_activation(problem, kind, moe_tokens, ep, etp, dispatcher, 0, 0, 0, 0, 0)
    elif kind.mlp == "dense":
        total += dense_mlp_activation(problem, kind, tp, tokens, 0, 0)
    return total


@lru_cache(maxsize=65536)
def full_layer_working(
    problem: Problem,
    tp: int,
    attention_tokens: int,
    ep: int,
    etp: int,
    dispatcher: str,
    rc_full: int,
) -> int:
    """With full recompute the layers of one checkpoint are alive while they run backward."""
    if not rc_full:
        return 0
    largest = max(
        layer_saved(problem, kind, tp, attention_tokens, ep, etp, dispatcher)
        for kind in problem.cost_kinds
    )
    if problem.training.recompute_method == "uniform":
        largest *= min(problem.training.recompute_layers, problem.model.layers)
    moe_tokens = -(-attention_tokens // tp)
    transient = max(
        attention_working(problem, tp, attention_tokens, 0, 0, 0, 0),
        dense_mlp_working(problem, tp, attention_tokens, 0, 0),
        moe_working(problem, moe_tokens, ep, etp, dispatcher, 0, 0, 0, 0, 0),
    )
    return largest + transient


#: Bytes kept from forward to backward, and at the peak, of one logit element, by
#: cross-entropy implementation (Megatron-Bridge aa2ed9d94; Megatron-LM golden values).
_LOGIT_BYTES = {"te": (2, 6), "native": (4, 10), "unfused": (4, 6)}


def logit_bytes(problem: Problem) -> tuple[int, int]:
    """Bytes of one logit that are kept, and at the peak; TE works in place before 2.16."""
    if problem.training.cross_entropy == "te" and problem.transformer_engine < (2, 16):
        return 2, 2
    return _LOGIT_BYTES[problem.training.cross_entropy]


@lru_cache(maxsize=65536)
def loss_working(problem: Problem, tp: int, attention_tokens: int) -> int:
    """Logits and their gradients on the loss stage at the peak, final norm included.

    That is inside the cross entropy; or after it, if the accumulation is not fused, where the bf16
    gradients of the logits and of the output layer's whole weight are alive (Megatron-LM
    ``core/tensor_parallel/layers.py``).
    """
    card = problem.model
    kept, peak = logit_bytes(problem)
    vocab = card.padded_vocab(tp) / tp
    largest = attention_tokens * vocab * peak
    if not problem.training.fused_gradients:
        largest = max(largest, 2 * vocab * (attention_tokens + card.hidden))
    total = largest + attention_tokens * vocab * kept * card.mtp_layers
    shard = attention_tokens / problem.sequence_shards(tp)
    total += shard * 4 * card.hidden + attention_tokens * 4 * card.hidden
    return quanta(total)
