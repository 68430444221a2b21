"""Memory alive only while one layer runs forward or backward, in quanta.

Source: fitted on published allocator figures (SimuMax, Megatron-LM golden values); Megatron-LM
d98e8a64 ``core/transformer/moe/token_dispatcher.py``.
"""

from __future__ import annotations

from functools import lru_cache

from meshplan.constraints.memory.activations import (
    attention_activation,
    dense_mlp_activation,
    moe_activation,
    routed_copies,
)
from meshplan.constraints.problem import Problem, quanta


@lru_cache(maxsize=65536)
def attention_working(
    problem: Problem,
    tp: int,
    attention_tokens: int,
    rc_layernorm: int,
    rc_mla_up_proj: int,
    rc_full: int,
) -> int:
    """Attention half: gradients of the residual stream and what recompute brings back."""
    card = problem.model
    base = quanta(attention_tokens / tp * 6 * card.hidden)
    if tp > 1:
        base += quanta(attention_tokens * 2 * card.hidden)  # gathered sequence
    recomputed = max(
        attention_activation(problem, kind, tp, attention_tokens, 0, 0, 0)
        - attention_activation(
            problem, kind, tp, attention_tokens, rc_layernorm, rc_mla_up_proj, rc_full
        )
        for kind in problem.kinds
    )
    return base + recomputed


@lru_cache(maxsize=65536)
def dense_mlp_working(
    problem: Problem, tp: int, attention_tokens: int, rc_mlp: int, rc_full: int
) -> int:
    """Dense MLP half: residual gradients, gradient of fc1's output, recomputed tensors."""
    card = problem.model
    if all(kind.mlp != "dense" for kind in problem.kinds):
        return 0
    gate = 2 if card.gated else 1
    base = quanta(attention_tokens / tp * (6 * card.hidden + 2 * gate * (card.ffn or 0)))
    if tp > 1:
        base += quanta(attention_tokens * 2 * card.hidden)
    return (
        base
        + dense_mlp_activation(problem, tp, attention_tokens, 0, 0)
        - dense_mlp_activation(problem, tp, attention_tokens, rc_mlp, rc_full)
    )


@lru_cache(maxsize=65536)
def moe_working(
    problem: Problem,
    moe_tokens: int,
    etp: int,
    dispatcher: str,
    rc_layernorm: int,
    rc_moe: int,
    rc_moe_act: int,
    rc_shared_experts: int,
    rc_full: int,
) -> int:
    """MoE half: permuted copies of the tokens and their gradients, recomputed tensors."""
    card = problem.model
    if all(kind.mlp != "moe" for kind in problem.kinds):
        return 0
    latent = card.moe_latent or card.hidden
    ffn = (card.moe_ffn or 0) / etp
    gate = 2 if card.gated else 1
    if dispatcher == "alltoall":
        per_copy = max(7 * latent, 2 * latent + 2 * ffn, 2 * gate * ffn)
    else:
        per_copy = max(4 * latent, 2 * gate * ffn)
    base = quanta(moe_tokens * 6 * card.hidden)
    base += quanta(routed_copies(problem, moe_tokens, etp) * per_copy)
    saved = moe_activation(
        problem,
        moe_tokens,
        etp,
        dispatcher,
        rc_layernorm,
        rc_moe,
        rc_moe_act,
        rc_shared_experts,
        rc_full,
    )
    return base + moe_activation(problem, moe_tokens, etp, dispatcher, 0, 0, 0, 0, 0) - saved


@lru_cache(maxsize=65536)
def full_layer_working(
    problem: Problem, tp: int, attention_tokens: int, etp: int, dispatcher: str, rc_full: int
) -> int:
    """With full recompute one whole layer is alive while it runs backward; otherwise 0."""
    if not rc_full:
        return 0
    moe_tokens = -(-attention_tokens // tp)
    largest = 0
    for kind in problem.kinds:
        layer = attention_activation(problem, kind, tp, attention_tokens, 0, 0, 0)
        if kind.mlp == "moe":
            layer += moe_activation(problem, moe_tokens, etp, dispatcher, 0, 0, 0, 0, 0)
        elif kind.mlp == "dense":
            layer += dense_mlp_activation(problem, tp, attention_tokens, 0, 0)
        largest = max(largest, layer)
    transient = max(
        dense_mlp_working(problem, tp, attention_tokens, 0, 0),
        moe_working(problem, moe_tokens, etp, dispatcher, 0, 0, 0, 0, 0),
    )
    return largest + transient


#: Bytes kept from forward to backward, and at the peak, of one logit element, by
#: cross-entropy implementation (Megatron-Bridge aa2ed9d94; Megatron-LM golden values).
_LOGIT_BYTES = {"te": (2, 6), "native": (4, 10), "unfused": (4, 6)}


@lru_cache(maxsize=65536)
def loss_working(problem: Problem, tp: int, attention_tokens: int) -> int:
    """Logits and their gradients on the loss stage at the peak, final norm included."""
    card = problem.model
    kept, peak = _LOGIT_BYTES[problem.training.cross_entropy]
    elements = attention_tokens * card.padded_vocab(tp) / tp
    total = elements * (peak + kept * card.mtp_layers)
    total += attention_tokens / tp * 4 * card.hidden + attention_tokens * 4 * card.hidden
    return quanta(total)
