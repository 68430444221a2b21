"""How many FLOPs the training of one token costs, counted as published figures count them.

The convention of Megatron-LM d98e8a64 (``training.py``, ``num_floating_point_operations``) and
Megatron-Bridge 067f987 (``flop_utils.py``): six times the multiply-accumulates of one forward
pass, no recompute, half of the causal attention matrix, and as in Megatron-Bridge the exact band
of a sliding window (Megatron-LM takes it as full attention).  Router, norms, RoPE, softmax,
embedding and loss do not count.  Where older releases counted in another way,
:func:`otherwise_counted` does so, too.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Literal, TypeAlias

from meshplan.scenarios.model_card import LayerKind, ModelCard

#: FLOPs per multiply-accumulate of the forward pass: 2 each for forward, dgrad and wgrad.
TRAINING_FLOPS_PER_MAC = 6

#: Ways of counting other than the current one.  ``before_26_06``: Megatron-Bridge before 26.06, a
#: sliding window as full attention, and only SwiGLU as three matrices.  ``whole_matrix``: NeMo 2.x
#: up to 25.04, which counted both halves of the attention matrix.
Counting: TypeAlias = Literal["before_26_06", "whole_matrix"]
COUNTINGS: tuple[Counting, ...] = ("before_26_06", "whole_matrix")


@dataclass(frozen=True)
class FlopsBreakdown:
    """FLOPs of the training (forward and backward) of one token, by part of the model.

    Attributes
    ----------
    attention_projections
        Linears of GQA and MLA.
    attention_core
        Scores and weighted values of full and sliding-window attention; grows with the sequence.
    linear_attention
        Gated-delta-net and Mamba layers, whole.
    dense_mlp, routed_experts, shared_experts
        MLPs; ``routed_experts`` includes latent projections.
    mtp_merge
        Linear and norms in front of the MTP layers (the layers count in the parts above); not
        counted in hybrid models.
    logits
        Output head, once more for each MTP layer.
    """

    attention_projections: float = 0.0
    attention_core: float = 0.0
    linear_attention: float = 0.0
    dense_mlp: float = 0.0
    routed_experts: float = 0.0
    shared_experts: float = 0.0
    mtp_merge: float = 0.0
    logits: float = 0.0

    @property
    def total(self) -> float:
        """FLOPs per token, all parts."""
        return sum(self.as_dict().values())

    def as_dict(self) -> dict[str, float]:
        """FLOPs per token by the name of the part."""
        return asdict(self)

    def __add__(self, other: FlopsBreakdown) -> FlopsBreakdown:
        mine, theirs = self.as_dict(), other.as_dict()
        return FlopsBreakdown(**{part: mine[part] + theirs[part] for part in mine})

    def __mul__(self, factor: float) -> FlopsBreakdown:
        return FlopsBreakdown(**{part: factor * flops for part, flops in self.as_dict().items()})


def flops_per_token(card: ModelCard, seq_len: int) -> FlopsBreakdown:
    """Training FLOPs per token of the whole model, MTP layers included.

    Parameters
    ----------
    card
        The model.
    seq_len
        Tokens in a sequence that attend to each other.

    Raises
    ------
    ValueError
        If ``seq_len`` is not positive.
    """
    if seq_len < 1:
        raise ValueError(f"seq_len ({seq_len}) must be positive")
    flops = FlopsBreakdown()
    for kind, number in card.kind_counts.items():
        flops += layer_flops_per_token(card, kind, seq_len) * number
    flops += mtp_flops_per_token(card, seq_len)
    return flops + FlopsBreakdown(logits=head_flops_per_token(card))


def mtp_flops_per_token(card: ModelCard, seq_len: int) -> FlopsBreakdown:
    """Training FLOPs per token of all MTP layers: layer, merge and one more output head each."""
    # The published count of hybrid models leaves the merge out.
    merge = 0 if card.is_hybrid else 2 * card.hidden**2 + 3 * card.hidden
    own = FlopsBreakdown(
        mtp_merge=TRAINING_FLOPS_PER_MAC * merge, logits=head_flops_per_token(card)
    )
    return (layer_flops_per_token(card, card.mtp_kind, seq_len) + own) * card.mtp_layers


def otherwise_counted(card: ModelCard, seq_len: int, counting: Counting) -> FlopsBreakdown:
    """Training FLOPs per token as older releases counted them, to compare with their figures.

    A card does not hold the activation of its MLP.  GPT-OSS, whose GLU is no SwiGLU, is known by
    its attention sinks; other gated models are taken to have SwiGLU.

    Raises
    ------
    ValueError
        If ``seq_len`` is not positive.
    """
    if counting == "whole_matrix":
        flops = flops_per_token(card, seq_len)
        return replace(flops, attention_core=2 * flops.attention_core)
    full = tuple("full" if entry == "swa" else entry for entry in card.layer_pattern or ("full",))
    changes = {
        "sliding_window": None,
        "layer_pattern": full,
        "gated": card.gated and not card.attention_sinks,
    }
    return flops_per_token(card.model_copy(update=changes), seq_len)


def flash_backward_flops(flops: FlopsBreakdown) -> float:
    """FLOPs that the backward pass of flash attention executes, and the count leaves out.

    It computes the scores once more: five products of the size of the forward's two, where four
    are counted.
    """
    return flops.attention_core / TRAINING_FLOPS_PER_MAC


def full_recompute_flops(flops: FlopsBreakdown) -> float:
    """FLOPs that full recompute executes, and the count leaves out: all layers forward again."""
    return (flops.total - flops.logits) / 3


def head_flops_per_token(card: ModelCard) -> float:
    """Training FLOPs per token of one application of the output head (padded vocabulary)."""
    return float(TRAINING_FLOPS_PER_MAC * card.hidden * card.padded_vocab())


def layer_flops_per_token(card: ModelCard, kind: LayerKind, seq_len: int) -> FlopsBreakdown:
    """Training FLOPs per token of one decoder layer of ``kind`` at ``seq_len`` tokens."""
    return (_attention_macs(card, kind, seq_len) + _mlp_macs(card, kind)) * TRAINING_FLOPS_PER_MAC


def attended_tokens(card: ModelCard, kind: LayerKind, seq_len: int) -> float:
    """Mean number of tokens that a query of a causal sequence attends to.

    Half the sequence in full attention, as published figures count it.  In a sliding window of
    W tokens the exact mean ``W - W (W - 1) / (2 seq_len)``; 0 for layers without a score matrix.
    """
    if kind.attention in ("gdn", "mamba", "none"):
        return 0.0
    if kind.attention == "swa" and card.sliding_window is not None:
        window = min(card.sliding_window, seq_len)
        return window - window * (window - 1) / (2 * seq_len)
    return seq_len / 2


def _attention_macs(card: ModelCard, kind: LayerKind, seq_len: int) -> FlopsBreakdown:
    h, heads = card.hidden, card.heads
    if kind.attention == "none":
        return FlopsBreakdown()
    if kind.attention == "gdn":
        return FlopsBreakdown(linear_attention=_gdn_macs(card))
    if kind.attention == "mamba":
        return FlopsBreakdown(linear_attention=_mamba_macs(card))
    context = attended_tokens(card, kind, seq_len)
    if kind.attention == "mla":
        core_dim = card.qk_head_dim + card.v_head_dim
        return FlopsBreakdown(_mla_projection_macs(card), heads * core_dim * context)
    query_linears = 3 if card.attention_output_gate else 2
    projections = h * card.head_dim * (query_linears * heads + 2 * card.kv_groups)
    return FlopsBreakdown(projections, 2 * heads * card.head_dim * context)


def _mla_projection_macs(card: ModelCard) -> int:
    h, heads = card.hidden, card.heads
    query_width = heads * card.qk_head_dim
    # The ones are the norms of the latents; the published count has them.
    query = card.q_lora_rank * (h + query_width + 1) if card.q_lora_rank else h * query_width
    key_value = card.kv_lora_rank * (h + heads * (card.qk_nope_head_dim + card.v_head_dim) + 1)
    return query + key_value + h * card.qk_rope_head_dim + heads * card.v_head_dim * h


def _gdn_macs(card: ModelCard) -> int:
    h = card.hidden
    keys = card.gdn_key_heads * card.gdn_key_dim
    values = card.gdn_value_heads * card.gdn_value_dim
    linears = h * (2 * keys + 2 * values + 2 * card.gdn_value_heads) + h * values
    recurrence = 4 * card.gdn_value_heads * card.gdn_value_dim**2
    return linears + card.gdn_conv * (2 * keys + values) + recurrence


def _mamba_macs(card: ModelCard) -> float:
    # The published count takes an inner width of 2 h even where heads * head_dim differs.
    h = card.hidden
    inputs = h * (4 * h + 2 * card.mamba_groups * card.mamba_state + card.mamba_heads)
    return inputs + 3.5 * 2 * h * card.mamba_state + 2 * h * h


def _mlp_macs(card: ModelCard, kind: LayerKind) -> FlopsBreakdown:
    h, matrices = card.hidden, 3 if card.gated else 2
    if kind.mlp == "none":
        return FlopsBreakdown()
    if kind.mlp == "dense":
        return FlopsBreakdown(dense_mlp=matrices * h * (card.ffn or 0))
    routed = matrices * (card.moe_latent or h) * card.moe_ffn * card.topk
    if card.moe_latent:
        routed += 2 * h * card.moe_latent
    return FlopsBreakdown(
        routed_experts=routed, shared_experts=matrices * h * (card.shared_ffn or 0)
    )
