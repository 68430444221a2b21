"""A scenario resolved into numbers: what rules, memory and time functions read.

A :class:`Problem` is what remains of a scenario once names are looked up (model card, cluster)
and defaults are filled in.  Every default that can decide something is listed in ``assumed``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from meshplan.constraints.decisions import DECISIONS, DERIVED
from meshplan.constraints.layout import Layout, Value
from meshplan.scenarios.calibration import Calibration, default_calibration

if TYPE_CHECKING:
    from meshplan.scenarios.model_card import LayerKind, ModelCard
    from meshplan.topologies import Cluster, NodeType
    from meshplan.topologies.packing import Part

#: Memory is counted in whole quanta of this many bytes (256 KiB), rounded up, so that the
#: solver's integers and the checker's figures are the same numbers.
QUANTUM_BYTES = 1 << 18
QUANTA_PER_GIB = (1 << 30) // QUANTUM_BYTES

#: Share of a node's memory left to the system, the data loader and checkpoints.
HOST_RESERVE = 0.2


def quanta(bytes_: float) -> int:
    """Whole quanta that hold ``bytes_`` bytes, rounded up."""
    return -int(-bytes_ // QUANTUM_BYTES)


@dataclass(frozen=True)
class Pin:
    """Values that the scenario allows for one decision, and the field that says so."""

    decision: str
    values: tuple[Value, ...]
    path: str
    text: str


@dataclass(frozen=True)
class Training:
    """Numeric formats and loss settings that the layout does not decide.

    ``precision_aware``, ``param_remainders`` and ``fp8_parameters`` are None when left to the
    default: precision-aware with optimizer offload (Megatron-LM ``validate_args`` demands it) or
    bf16 moments; remainders where the precision-aware optimizer keeps them; fp8 parameters
    whenever the compute precision is fp8.
    """

    gradient_bytes: int = 4
    moment_bytes: int = 4
    precision_aware: bool | None = None
    param_remainders: bool | None = None
    distributed_optimizer: bool = True
    fp8_parameters: bool | None = None
    cross_entropy: str = "native"
    fused_attention: bool = True
    sequence_parallel: bool = True
    hidden_dropout: float = 0.0
    fused_gradients: bool = True
    recompute_method: str = "uniform"
    recompute_layers: int = 1
    activation_offload: tuple[str, ...] = ()
    load_imbalance: float = 1.0
    overlap_expert_communication: bool = False
    overlap_tensor_communication: bool = False
    fused_grouped_mlp: bool = False
    full_iteration_graph: bool = False


@dataclass(frozen=True)
class Limits:
    """Limits that the person sets on an acceptable plan."""

    memory_headroom: float = 0.08
    min_dp: int = 1
    tp_within_domain: bool = True
    ep_within_domain: bool = False
    dp_tolerance: float = 0.02


@dataclass(frozen=True, eq=False)
class Problem:
    """Everything that the rules and cost functions may read.

    Attributes
    ----------
    candidates
        For each decision the values that the search may use, before pins.
    pins
        What the scenario fixes; a pinned decision may take values outside ``candidates``.
    layout_string
        A pipeline layout string that the scenario fixes, or None.
    even_split
        Whether the scenario asks for the framework's even split.
    calibration
        Efficiencies of the step-time model.
    assumed
        Defaults that the scenario left open, as sentences.
    asked
        The scenario as plain data, from which the same problem can be resolved again.
    lines
        ``path -> (file, line)`` of scenario fields, for messages.
    whole
        All GPUs that there are, where ``cluster`` is a part of them or the search may choose one.
    part
        The part of ``whole`` that ``cluster`` is, once it is chosen.
    gpus_open
        Whether the search chooses how many GPUs of ``whole`` are used.
    """

    name: str
    model: ModelCard
    cluster: Cluster
    seq_len: int
    precision: str
    variable_length: bool
    candidates: Mapping[str, tuple[Value, ...]]
    pins: tuple[Pin, ...] = ()
    training: Training = Training()
    limits: Limits = Limits()
    framework: str = "megatron-core"
    version: tuple[int, ...] = (0, 19)
    transformer_engine: tuple[int, ...] = (2, 16)
    layout_string: str | None = None
    even_split: bool = False
    calibration: Calibration = field(default_factory=default_calibration)
    assumed: tuple[str, ...] = ()
    asked: Mapping[str, Any] = field(default_factory=dict)
    lines: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    whole: Cluster | None = None
    part: Part | None = None
    gpus_open: bool = False

    @property
    def gpus(self) -> int:
        """GPUs of the cluster."""
        return self.cluster.gpus

    @property
    def node_type(self) -> NodeType:
        """Node type of the cluster."""
        return self.cluster.node_type

    @cached_property
    def capacity(self) -> int:
        """Memory of one GPU that a plan may use, in quanta: usable HBM less the headroom."""
        usable = self.node_type.hbm_gib * (1 - self.limits.memory_headroom)
        return int(usable * QUANTA_PER_GIB)

    @cached_property
    def kinds(self) -> tuple[LayerKind, ...]:
        """Distinct kinds of decoder layers, in order of first appearance."""
        return self.model.kinds

    @cached_property
    def cost_kinds(self) -> tuple[LayerKind, ...]:
        """Kinds of all layers, that of the MTP layers included."""
        mtp = (self.model.mtp_kind,) if self.model.mtp_layers else ()
        return tuple(dict.fromkeys((*self.kinds, *mtp)))

    @cached_property
    def kind_counts(self) -> dict[LayerKind, int]:
        """Number of decoder layers of each kind, in order of first appearance."""
        return self.model.kind_counts

    @cached_property
    def pinned(self) -> dict[str, tuple[Value, ...]]:
        """Allowed values of each pinned decision."""
        return {pin.decision: pin.values for pin in self.pins}

    def domain(self, decision: str) -> tuple[Value, ...]:
        """Values that ``decision`` may take: its pin if there is one, else its candidates."""
        pin = self.pinned.get(decision)
        return pin if pin is not None else self.candidates[decision]

    @property
    def is_fp8(self) -> bool:
        """Whether linear layers compute in 8 bits or fewer."""
        return self.precision != "bf16"

    @property
    def fp8_parameters(self) -> bool:
        """Whether the primary weights are kept in 8 (or 4) bits."""
        if self.training.fp8_parameters is None:
            return self.is_fp8
        return self.training.fp8_parameters and self.is_fp8

    def precision_aware(self, offload: int) -> bool:
        """Whether the precision-aware optimizer is in use with this offload percentage."""
        if self.training.precision_aware is None:
            return offload > 0 or self.training.moment_bytes < 4
        return self.training.precision_aware

    @cached_property
    def param_remainders(self) -> bool:
        """Whether the precision-aware optimizer keeps 16 bits of each fp32 master weight.

        Only with Transformer Engine 2.1 and newer, and not where Megatron-Core manages the
        master weights itself: fp8 recipes other than delayed scaling (Megatron-LM
        ``optimizer_config.py`` ``use_precision_aware_optimizer_no_fp8_or_ds_fp8``).
        """
        if self.training.param_remainders is not None:
            return self.training.param_remainders
        return self.transformer_engine >= (2, 1) and self.precision in ("bf16", "fp8-tensor")

    @cached_property
    def extra_warmup(self) -> int:
        """Chunks that an interleaved schedule runs forward beyond its warm-up.

        Overlapped expert communication pairs a forward with a backward pass of another
        micro-batch (Megatron-LM ``schedules.py`` ``get_pp_rank_microbatches``).
        """
        return int(self.training.overlap_expert_communication and self.model.is_moe)

    @cached_property
    def uses_host_memory(self) -> bool:
        """Whether a layout may keep something in host memory."""
        values = (*self.candidates["offload"], *self.pinned.get("offload", ()))
        return any(value != 0 for value in values) or bool(self.training.activation_offload)

    @cached_property
    def host_capacity(self) -> int:
        """Host memory that one GPU's rank may use, in quanta."""
        share = self.node_type.host_memory_gib / self.node_type.gpus_per_node
        return int(share * (1 - HOST_RESERVE) * QUANTA_PER_GIB)

    def optimizer_shards(self, ranks: int) -> int:
        """Ranks that share the optimizer state of one parameter."""
        return ranks if self.training.distributed_optimizer else 1

    def expert_imbalance(self, ep: int) -> float:
        """Tokens of the busiest expert rank over the mean: all tokens at most, ``ep`` means."""
        return min(self.training.load_imbalance, float(ep))

    def sequence_shards(self, tp: int) -> int:
        """TP ranks that share the sequence outside attention and MLP."""
        return tp if self.training.sequence_parallel else 1

    def tokens(self, cp: int, mbs: int) -> int:
        """Tokens of one micro-batch on one context-parallel rank."""
        return -(-self.seq_len * mbs // cp)

    def derived(self, tp: int, cp: int, mbs: int) -> dict[str, int]:
        """The derived quantities that a scope may name (``decisions.DERIVED``), by name."""
        tokens = self.tokens(cp, mbs)
        return {"attention_tokens": tokens, "moe_tokens": -(-tokens // tp)}


def scope_value(problem: Problem, layout: Layout, name: str) -> Value:
    """Value of a scope name, derived quantities included."""
    if name in DERIVED:
        return problem.derived(layout.tp, layout.cp, layout.mbs)[name]
    return layout.value(name)


def scope_values(problem: Problem, layout: Layout, scope: tuple[str, ...]) -> tuple[Value, ...]:
    """Values of all names of a scope, in order."""
    return tuple(scope_value(problem, layout, name) for name in scope)


__all__ = [
    "DECISIONS",
    "QUANTA_PER_GIB",
    "QUANTUM_BYTES",
    "Limits",
    "Pin",
    "Problem",
    "Training",
    "quanta",
    "scope_value",
    "scope_values",
]
