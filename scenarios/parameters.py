"""How many parameters a model has, in all and on one rank: one definition for every use.

The dense buffer of a rank is sharded by TP and its optimizer by DP x CP; the expert buffer is
sharded by EP and ETP and its optimizer by EDP.  So counts come in two parts (:class:`Shards`).
Formulas follow the modules of Megatron-LM d98e8a64 (``core/transformer``, ``core/ssm``).
Where a degree does not divide a width the count is rounded up: what the fullest rank holds.
"""

from __future__ import annotations

from dataclasses import dataclass

from meshplan.scenarios.model_card import LayerKind, ModelCard


@dataclass(frozen=True)
class Shards:
    """Parameters that one rank holds, by the group that shares their optimizer state.

    Attributes
    ----------
    dense
        Parameters of the attention mesh (data-parallel group DP x CP).
    expert
        Parameters of routed experts (data-parallel group EDP).
    """

    dense: int
    expert: int = 0

    @property
    def total(self) -> int:
        """Both parts."""
        return self.dense + self.expert

    def __add__(self, other: Shards) -> Shards:
        return Shards(self.dense + other.dense, self.expert + other.expert)


def _share(width: int, degree: int) -> int:
    return -(-width // degree)


def attention_parameters(card: ModelCard, kind: LayerKind, *, tp: int = 1) -> int:
    """Parameters of the attention (or state-space) part of one layer on one rank.

    The input norm is included; a layer without the part has none.  MLA's down projections are
    not divided by TP (Megatron-LM d98e8a64 ``multi_latent_attention.py``: TELinear "duplicated").
    With fewer KV groups than TP ranks the weights are still split evenly, and QKV is gathered
    (``attention.py``).
    """
    if kind.attention == "none":
        return 0
    if kind.attention == "mla":
        count = _mla_parameters(card, tp)
    elif kind.attention == "gdn":
        count = _gdn_parameters(card, tp)
    elif kind.attention == "mamba":
        count = _mamba_parameters(card, tp)
    else:
        count = _gqa_parameters(card, tp)
    return card.hidden + count


def _gqa_parameters(card: ModelCard, tp: int) -> int:
    heads = _share(card.heads, tp)
    query = heads * card.head_dim
    gate = query if card.attention_output_gate else 0
    # One linear for all three: beyond kv_groups ranks it cuts through the heads of a group.
    qkv = query + gate + _share(2 * card.kv_groups * card.head_dim, tp)
    count = card.hidden * (qkv + query)
    if card.qk_norm:
        count += 2 * card.head_dim
    if card.attention_bias:
        # The output linear is row-parallel: its bias is added after the reduction, whole.
        count += qkv + card.hidden
    if card.qkv_bias:
        count += qkv
    if card.attention_sinks:
        count += heads
    return count


def _mla_parameters(card: ModelCard, tp: int) -> int:
    h, heads = card.hidden, _share(card.heads, tp)
    if card.q_lora_rank:
        query = h * card.q_lora_rank + card.q_lora_rank * heads * card.qk_head_dim
    else:
        query = h * heads * card.qk_head_dim
    down = h * (card.kv_lora_rank + card.qk_rope_head_dim)
    up = card.kv_lora_rank * heads * (card.qk_nope_head_dim + card.v_head_dim)
    norms = card.q_lora_rank + card.kv_lora_rank if card.qk_norm else 0
    return query + down + up + norms + heads * card.v_head_dim * h


def _gdn_parameters(card: ModelCard, tp: int) -> int:
    h = card.hidden
    value_heads = _share(card.gdn_value_heads, tp)
    keys = _share(card.gdn_key_heads, tp) * card.gdn_key_dim
    values = value_heads * card.gdn_value_dim
    # In: q, k, v, output gate z, and the scalars beta and alpha of each value head.
    projections = h * (2 * keys + 2 * values + 2 * value_heads) + values * h
    convolution = card.gdn_conv * (2 * keys + values)
    # A_log and dt_bias per value head; the output norm spans one head and is replicated.
    return projections + convolution + 2 * value_heads + card.gdn_value_dim


def _mamba_parameters(card: ModelCard, tp: int) -> int:
    h, heads = card.hidden, _share(card.mamba_heads, tp)
    inner = heads * card.mamba_head_dim
    states = _share(card.mamba_groups, tp) * card.mamba_state
    projections = h * (2 * inner + 2 * states + heads) + inner * h
    convolution = (card.mamba_conv + 1) * (inner + 2 * states)
    # A_log, D and dt_bias per head, and the gated norm before the output linear.
    return projections + convolution + 3 * heads + inner


def mlp_parameters(
    card: ModelCard, kind: LayerKind, *, tp: int = 1, ep: int = 1, etp: int = 1
) -> Shards:
    """Parameters of the MLP part of one layer on one rank, its norm included.

    Router and latent projections are replicated.  The expert-bias of aux-loss-free balancing is
    a buffer and not counted.
    """
    if kind.mlp == "none":
        return Shards(0)
    if kind.mlp == "dense":
        return Shards(card.hidden + _ffn_parameters(card, card.hidden, card.ffn or 0, tp))
    router = card.hidden * card.experts + (card.experts if card.mlp_bias else 0)
    dense = card.hidden + router
    if card.shared_ffn:
        dense += _ffn_parameters(card, card.hidden, card.shared_ffn, tp)
        dense += card.hidden if card.shared_expert_gate else 0
    if card.moe_latent:
        dense += 2 * card.hidden * card.moe_latent
        dense += card.hidden + card.moe_latent if card.mlp_bias else 0
    return Shards(dense, _share(card.experts, ep) * expert_parameters(card, etp=etp))


def expert_parameters(card: ModelCard, *, etp: int = 1) -> int:
    """Parameters of one routed expert on one rank; 0 for a dense model."""
    if not card.is_moe:
        return 0
    return _ffn_parameters(card, card.moe_latent or card.hidden, card.moe_ffn, etp)


def _ffn_parameters(card: ModelCard, width: int, ffn: int, degree: int) -> int:
    inner = _share(ffn, degree)
    up = 2 if card.gated else 1
    bias = up * inner + width if card.mlp_bias else 0
    return (up + 1) * width * inner + bias


def layer_parameters(
    card: ModelCard, kind: LayerKind, *, tp: int = 1, ep: int = 1, etp: int = 1
) -> Shards:
    """Parameters of one decoder layer of ``kind`` on one rank, norms included."""
    attention = Shards(attention_parameters(card, kind, tp=tp))
    return attention + mlp_parameters(card, kind, tp=tp, ep=ep, etp=etp)


def embedding_parameters(card: ModelCard, *, tp: int = 1) -> int:
    """Parameters of the word embedding (padded vocabulary) on one rank of the first stage."""
    return card.padded_vocab(tp) // tp * card.hidden


def output_parameters(card: ModelCard, *, tp: int = 1) -> int:
    """Parameters of the final norm and the head on one rank of the loss stage.

    A tied head is counted: a loss stage apart from the embedding stage holds a second copy
    (Megatron-LM d98e8a64 ``language_module.py``).  Where one rank holds both, subtract
    :func:`embedding_parameters`.
    """
    return card.hidden + card.padded_vocab(tp) // tp * card.hidden


def mtp_parameters(card: ModelCard, *, tp: int = 1, ep: int = 1, etp: int = 1) -> Shards:
    """Parameters of one MTP layer on one rank.

    A layer of :attr:`ModelCard.mtp_kind`, the linear that merges hidden state and embedding
    (``eh_proj``, column-parallel), and three norms (Megatron-LM d98e8a64
    ``multi_token_prediction.py``).  The extra embedding copy of its stage is not included.
    """
    merge = 2 * card.hidden * _share(card.hidden, tp) + 3 * card.hidden
    return layer_parameters(card, card.mtp_kind, tp=tp, ep=ep, etp=etp) + Shards(merge)


def total_parameters(card: ModelCard, *, with_mtp: bool = False) -> int:
    """Parameters of the whole model, vocabulary unpadded, tied embeddings once.

    MTP layers count only ``with_mtp``; makers announce sizes without them.  Layers that repeat one
    count once.
    """
    layers = sum(
        number * layer_parameters(card, kind).total for kind, number in card.kind_counts.items()
    )
    tables = (1 if card.tied_embeddings else 2) * card.vocab * card.hidden
    mtp = card.mtp_copies * mtp_parameters(card).total if with_mtp else 0
    return layers + tables + card.hidden + mtp


def active_parameters(card: ModelCard) -> int:
    """Parameters that one token uses: all but the experts that it is not routed to, without MTP.

    Embedding and head count, although some makers leave the embedding out of what they announce.
    """
    moe_layers = sum(kind.mlp == "moe" for kind in card.layer_kinds)
    idle = moe_layers * (card.experts - card.topk) * expert_parameters(card)
    return total_parameters(card) - idle
