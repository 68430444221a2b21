"""What a model is made of: the figures of one transformer, checked, and the layers they imply."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictBool, model_validator

AttentionKind: TypeAlias = Literal["mla", "gqa", "swa", "gdn", "mamba", "none"]
MlpKind: TypeAlias = Literal["dense", "moe", "none"]
#: One entry of a layer pattern.  ``full`` (the card's own attention, GQA or MLA), ``swa`` and
#: ``gdn`` have an MLP behind them; ``mamba``, ``attention`` (as in ``full``), ``mlp`` and ``moe``
#: are alone.
PatternEntry: TypeAlias = Literal["full", "swa", "gdn", "mamba", "attention", "mlp", "moe"]
_WITH_MLP: frozenset[PatternEntry] = frozenset({"full", "swa", "gdn"})
_SINGLE: frozenset[PatternEntry] = frozenset({"mamba", "attention", "mlp", "moe"})


def _none_is_zero(value: object) -> object:
    # Hugging Face configurations write null where a part is absent.
    return 0 if value is None else value


# Upper bounds are some ten times what the largest public model has: high enough for a paper
# study, low enough that no product of two figures overflows the 64-bit integers of the solver.
#: Most layers of multi-token prediction; published models have one or two.
MOST_MTP_LAYERS = 16

_Width: TypeAlias = Annotated[int, Field(strict=True, ge=1, le=1 << 20)]
_Heads: TypeAlias = Annotated[int, Field(strict=True, ge=1, le=4096)]
_Layers: TypeAlias = Annotated[int, Field(strict=True, ge=1, le=2048)]
_Vocab: TypeAlias = Annotated[int, Field(strict=True, ge=1, le=10_000_000)]
_Absentable: TypeAlias = Annotated[
    int, BeforeValidator(_none_is_zero), Field(strict=True, ge=0, le=1 << 20)
]
_Billions: TypeAlias = Annotated[float, Field(gt=0, le=1_000_000, allow_inf_nan=False)]
_Name: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=96)]


@dataclass(frozen=True, order=True, slots=True)
class LayerKind:
    """What one decoder layer consists of; layers of equal kind cost the same.

    Attributes
    ----------
    attention
        ``mla``, ``gqa``, ``swa`` (GQA in a sliding window), ``gdn`` (gated delta net), ``mamba``,
        or ``none`` (an MLP alone).
    mlp
        ``dense``, ``moe``, or ``none`` (a Mamba layer, or attention alone).

    Raises
    ------
    ValueError
        If both are ``none``.
    """

    attention: AttentionKind
    mlp: MlpKind

    def __post_init__(self) -> None:
        if self.attention == self.mlp == "none":
            raise ValueError("a layer has an attention or an MLP: both are 'none'")

    def __str__(self) -> str:
        return "+".join(part for part in (self.attention, self.mlp) if part != "none")


class Published(BaseModel):
    """What the makers of a model say about its size, to hold the card's figures to.

    Attributes
    ----------
    parameters_b
        Billions of parameters of the decoder with embedding and head, without MTP layers.
    active_b
        Billions of parameters that one token uses, as announced (makers differ in whether the
        embedding counts).
    source
        Where the two figures stand.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    parameters_b: _Billions
    active_b: _Billions
    source: str = Field(min_length=1)


class ModelCard(BaseModel):
    """The figures of one transformer that parameters, FLOPs and memory follow from.

    Widths are numbers of elements.  A part that the model lacks is None or 0.

    Raises
    ------
    pydantic.ValidationError
        If a figure is out of bounds or figures contradict each other; the text names both.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: _Name = Field(description="Card name, kebab-case; the file stem of a shipped card.")
    title: str = Field(default="", max_length=200, description="Name for people.")
    layers: _Layers = Field(description="Decoder layers, without MTP layers.")
    hidden: _Width = Field(description="Hidden size.")
    ffn: _Width | None = Field(default=None, description="FFN width of the dense layers.")
    vocab: _Vocab = Field(description="Vocabulary before padding.")
    heads: _Heads = Field(description="Query heads.")
    kv_groups: _Heads = Field(description="Key/value heads (query groups).")
    head_dim: _Width = Field(description="Head dimension of GQA (kv_channels).")
    attention: Literal["gqa", "mla"] = Field(description="Kind of the full-attention layers.")

    q_lora_rank: _Absentable = Field(default=0, description="MLA: 0 if q is not compressed.")
    kv_lora_rank: _Absentable = Field(default=0, description="MLA: rank of the KV latent.")
    qk_nope_head_dim: _Absentable = Field(default=0, description="MLA: q/k dim without RoPE.")
    qk_rope_head_dim: _Absentable = Field(default=0, description="MLA: q/k dim with RoPE.")
    v_head_dim: _Absentable = Field(default=0, description="MLA: head dimension of values.")

    qk_norm: StrictBool = Field(default=False, description="Norms on q and k (latents in MLA).")
    attention_output_gate: StrictBool = Field(default=False, description="Gated attention output.")
    attention_bias: StrictBool = Field(default=False, description="Bias of QKV and output linear.")
    qkv_bias: StrictBool = Field(default=False, description="Bias of QKV alone.")
    attention_sinks: StrictBool = Field(default=False, description="One learnt sink per head.")
    mlp_bias: StrictBool = Field(default=False, description="Bias of MLP, experts and router.")
    gated: StrictBool = Field(default=True, description="Gated MLP (SwiGLU): 3 matrices, not 2.")

    experts: _Absentable = Field(default=0, description="Routed experts; 0 for a dense model.")
    topk: _Absentable = Field(default=0, description="Routed experts per token.")
    moe_ffn: _Absentable = Field(default=0, description="FFN width of one routed expert.")
    shared_ffn: _Width | None = Field(default=None, description="Width of all shared experts.")
    shared_expert_gate: StrictBool = Field(default=False, description="Gate on shared experts.")
    moe_latent: _Width | None = Field(default=None, description="Width routed experts work in.")
    dense_layers: _Absentable = Field(default=0, description="First layers with a dense MLP.")
    router_groups: _Width | None = Field(default=None, description="Expert groups of the router.")
    router_topk_groups: _Width | None = Field(default=None, description="Groups a token may use.")

    mtp_layers: int = Field(
        default=0, strict=True, ge=0, le=MOST_MTP_LAYERS, description="MTP layers trained."
    )
    mtp_repeated: StrictBool = Field(default=False, description="MTP layers share one's weights.")
    tied_embeddings: StrictBool = Field(default=False, description="Head shares the embedding.")
    vocab_divisor: _Width = Field(default=128, description="make_vocab_size_divisible_by.")

    sliding_window: _Width | None = Field(default=None, description="Tokens a window spans.")
    layer_pattern: tuple[PatternEntry, ...] | None = Field(
        default=None,
        min_length=1,
        max_length=2048,
        description="What each layer is, repeated over the layers; None: all alike.",
    )
    gdn_key_heads: _Absentable = Field(default=0, description="Gated delta net: key heads.")
    gdn_value_heads: _Absentable = Field(default=0, description="Gated delta net: value heads.")
    gdn_key_dim: _Absentable = Field(default=0, description="Gated delta net: key head dim.")
    gdn_value_dim: _Absentable = Field(default=0, description="Gated delta net: value head dim.")
    gdn_conv: _Absentable = Field(default=0, description="Gated delta net: convolution width.")
    mamba_heads: _Absentable = Field(default=0, description="Mamba-2: heads.")
    mamba_head_dim: _Absentable = Field(default=0, description="Mamba-2: head dimension.")
    mamba_state: _Absentable = Field(default=0, description="Mamba-2: state size.")
    mamba_groups: _Absentable = Field(default=0, description="Mamba-2: groups.")
    mamba_conv: _Absentable = Field(default=0, description="Mamba-2: convolution width.")

    published: Published | None = Field(default=None, description="Announced sizes.")
    sources: dict[str, str] = Field(default_factory=dict, description="Source of each figure.")

    @model_validator(mode="after")
    def _figures_agree(self) -> Self:
        faults = [*_attention_faults(self), *_mlp_faults(self), *_pattern_faults(self)]
        faults += [f"sources names {key!r}, which is no figure of a card"
                   for key in self.sources if key not in type(self).model_fields]  # fmt: skip
        if self.published and self.published.active_b > self.published.parameters_b:
            faults.append(
                f"published.active_b ({self.published.active_b}) exceeds "
                f"published.parameters_b ({self.published.parameters_b})"
            )
        if faults:
            raise ValueError("; ".join(faults))
        return self

    def __hash__(self) -> int:
        # The mapping of sources cannot be hashed; these figures tell cards apart well enough.
        return hash((self.name, self.layers, self.hidden, self.vocab, self.mtp_layers))

    @property
    def is_moe(self) -> bool:
        """Whether any layer has routed experts."""
        return self.experts > 0

    @property
    def is_hybrid(self) -> bool:
        """Whether some layers have a single part: a HybridModel of Megatron-LM."""
        return not _SINGLE.isdisjoint(self.layer_pattern or ())

    @property
    def layer_kinds(self) -> tuple[LayerKind, ...]:
        """Kind of each decoder layer, first to last, without MTP layers."""
        # Cached by the figures and not on the instance: model_copy would carry a stale value.
        default: PatternEntry = "full" if self.sliding_window is None else "swa"
        return _layer_kinds(
            self.layers,
            self.dense_layers if self.is_moe else self.layers,
            self.attention,
            self.layer_pattern or (default,),
        )

    @property
    def kinds(self) -> tuple[LayerKind, ...]:
        """Distinct layer kinds in the order of their first layer."""
        return tuple(dict.fromkeys(self.layer_kinds))

    @property
    def kind_counts(self) -> dict[LayerKind, int]:
        """Number of decoder layers of each kind, in the order of :attr:`kinds`."""
        return dict(Counter(self.layer_kinds))

    @property
    def mtp_kind(self) -> LayerKind:
        """Kind of the MTP layers: that of the last decoder layer (Megatron-LM copies its spec).

        Where layers have a single part, one MTP layer is attention and MLP together: the pattern
        ``*E`` (``*-`` without experts) of all recipes (Megatron-Bridge 067f987 ``nemotronh``).
        """
        if self.is_hybrid:
            return LayerKind(self.attention, "moe" if self.is_moe else "dense")
        return self.layer_kinds[-1]

    @property
    def mtp_copies(self) -> int:
        """MTP layers that have weights of their own: one of them if they share."""
        return min(self.mtp_layers, 1) if self.mtp_repeated else self.mtp_layers

    @property
    def qk_head_dim(self) -> int:
        """Elements of one query or key head in full attention, RoPE part included."""
        if self.attention == "mla":
            return self.qk_nope_head_dim + self.qk_rope_head_dim
        return self.head_dim

    @property
    def query_width(self) -> int:
        """Elements of all query heads of one token in full attention."""
        return self.heads * self.qk_head_dim

    @property
    def kv_width(self) -> int:
        """Mean elements of K and of V of one token in the core of full attention.

        ``2 * kv_width`` is K plus V.  MLA trains on decompressed heads, whose K is wider than
        their V.
        """
        if self.attention == "mla":
            return self.heads * (self.qk_head_dim + self.v_head_dim) // 2
        return self.kv_groups * self.head_dim

    @property
    def value_width(self) -> int:
        """Elements of the output of full attention of one token, before the output linear."""
        return self.heads * (self.v_head_dim if self.attention == "mla" else self.head_dim)

    def padded_vocab(self, tp: int = 1) -> int:
        """Vocabulary with padding: a multiple of ``vocab_divisor * tp`` (Megatron-LM)."""
        multiple = self.vocab_divisor * tp
        return -(-self.vocab // multiple) * multiple


@lru_cache(maxsize=256)
def _layer_kinds(
    layers: int,
    dense_layers: int,
    full: Literal["gqa", "mla"],
    pattern: tuple[PatternEntry, ...],
) -> tuple[LayerKind, ...]:
    kinds: list[LayerKind] = []
    for index in range(layers):
        entry = pattern[index % len(pattern)]
        mlp: MlpKind = "dense" if index < dense_layers else "moe"
        if entry == "mlp":
            kinds.append(LayerKind("none", "dense"))
        elif entry == "moe":
            kinds.append(LayerKind("none", "moe"))
        elif entry == "attention" or entry == "mamba":
            kinds.append(LayerKind(full if entry == "attention" else "mamba", "none"))
        else:
            kinds.append(LayerKind(full if entry == "full" else entry, mlp))
    return tuple(kinds)


def _missing(card: ModelCard, fields: tuple[str, ...], reason: str) -> Iterator[str]:
    absent = [field for field in fields if not getattr(card, field)]
    if absent:
        yield f"{reason}, but {', '.join(absent)} {'is' if len(absent) == 1 else 'are'} not given"


def _unused(card: ModelCard, fields: tuple[str, ...], reason: str) -> Iterator[str]:
    given = [f"{field} ({getattr(card, field)})" for field in fields if getattr(card, field)]
    if given:
        yield f"{', '.join(given)} given, but {reason}"


_MLA = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
_GQA = (
    "sliding_window", "attention_bias", "qkv_bias", "attention_output_gate", "attention_sinks",
)  # fmt: skip
_GDN = ("gdn_key_heads", "gdn_value_heads", "gdn_key_dim", "gdn_value_dim", "gdn_conv")
_MAMBA = ("mamba_heads", "mamba_head_dim", "mamba_state", "mamba_groups", "mamba_conv")
_MOE_ONLY = (
    "topk", "moe_ffn", "shared_ffn", "shared_expert_gate", "moe_latent", "dense_layers",
    "router_groups", "router_topk_groups",
)  # fmt: skip


def _attention_faults(card: ModelCard) -> Iterator[str]:
    if card.heads % card.kv_groups:
        yield f"heads ({card.heads}) is no multiple of kv_groups ({card.kv_groups})"
    if card.attention == "mla":
        yield from _missing(card, _MLA, "attention is mla")
        yield from _unused(card, _GQA, "mla has none")
    else:
        yield from _unused(card, ("q_lora_rank", *_MLA), f"attention is {card.attention}")
    if card.mtp_repeated and not card.mtp_layers:
        yield "mtp_repeated is true, but mtp_layers is 0"
    if card.attention_bias:
        yield from _unused(card, ("qkv_bias",), "attention_bias is true, which covers QKV")


def _mlp_faults(card: ModelCard) -> Iterator[str]:
    if not card.is_moe:
        yield from _unused(card, _MOE_ONLY, "experts is 0 (a dense model)")
        yield from _missing(card, ("ffn",), "experts is 0 (a dense model)")
        return
    yield from _missing(card, ("topk", "moe_ffn"), f"experts is {card.experts}")
    if card.topk > card.experts:
        yield f"topk ({card.topk}) exceeds experts ({card.experts})"
    if card.dense_layers >= card.layers:
        yield f"dense_layers ({card.dense_layers}) leaves none of {card.layers} layers for experts"
    if card.dense_layers:
        yield from _missing(card, ("ffn",), f"dense_layers is {card.dense_layers}")
    if card.shared_expert_gate:
        yield from _missing(card, ("shared_ffn",), "shared_expert_gate is true")
    yield from _router_faults(card)


def _router_faults(card: ModelCard) -> Iterator[str]:
    groups, topk_groups = card.router_groups, card.router_topk_groups
    if groups is None or topk_groups is None:
        if groups is not topk_groups:
            yield "router_groups and router_topk_groups must be given together"
        return
    if card.experts % groups:
        yield f"experts ({card.experts}) is no multiple of router_groups ({groups})"
    if topk_groups > groups:
        yield f"router_topk_groups ({topk_groups}) exceeds router_groups ({groups})"
    elif card.topk > topk_groups * (card.experts // groups):
        yield (
            f"topk ({card.topk}) exceeds the {topk_groups * (card.experts // groups)} experts "
            f"of router_topk_groups ({topk_groups}) groups"
        )


def _pattern_faults(card: ModelCard) -> Iterator[str]:
    pattern = card.layer_pattern or ()
    if len(pattern) > card.layers:
        yield f"layer_pattern has {len(pattern)} entries for {card.layers} layers"
    if "swa" in pattern:
        yield from _missing(card, ("sliding_window",), "layer_pattern has swa layers")
        if card.attention == "mla":
            yield "layer_pattern has swa layers, but attention is mla"
    elif pattern and card.sliding_window is not None:
        yield f"sliding_window ({card.sliding_window}) given, but layer_pattern has no swa layer"
    for entry, fields in (("gdn", _GDN), ("mamba", _MAMBA)):
        if entry in pattern:
            yield from _missing(card, fields, f"layer_pattern has {entry} layers")
        else:
            yield from _unused(card, fields, f"layer_pattern has no {entry} layer")
    yield from _single_part_faults(card, frozenset(pattern))
    if card.gdn_key_heads and card.gdn_value_heads % card.gdn_key_heads:
        yield (
            f"gdn_value_heads ({card.gdn_value_heads}) is no multiple of "
            f"gdn_key_heads ({card.gdn_key_heads})"
        )
    if card.mamba_groups and card.mamba_heads % card.mamba_groups:
        yield (
            f"mamba_heads ({card.mamba_heads}) is no multiple of mamba_groups ({card.mamba_groups})"
        )


def _single_part_faults(card: ModelCard, entries: frozenset[PatternEntry]) -> Iterator[str]:
    if "moe" in entries:
        yield from _missing(card, ("experts",), "layer_pattern has moe layers")
    if "mlp" in entries and card.is_moe:  # a dense model must have ffn anyway
        yield from _missing(card, ("ffn",), "layer_pattern has mlp layers")
    if entries and not entries & _WITH_MLP:
        if "moe" not in entries:
            yield from _unused(card, ("experts",), "layer_pattern has no layer with experts")
        yield from _unused(
            card, ("dense_layers",), f"layer_pattern has none of {', '.join(sorted(_WITH_MLP))}"
        )
