"""A scenario resolved into numbers: what rules, memory and time functions read.

A :class:`Problem` is what remains of a scenario once names are looked up (model card, cluster)
and defaults are filled in.  Every default that can decide something is listed in ``assumed``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from meshplan.constraints.decisions import DECISIONS, DERIVED
from meshplan.constraints.layout import Layout, Value

if TYPE_CHECKING:
    from meshplan.scenarios.model_card import LayerKind, ModelCard
    from meshplan.topologies import Cluster, NodeType

#: Memory is counted in whole quanta of this many bytes (256 KiB), rounded up, so that the
#: solver's integers and the checker's figures are the same numbers.
QUANTUM_BYTES = 1 << 18
QUANTA_PER_GIB = (1 << 30) // QUANTUM_BYTES


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

    ``precision_aware`` and ``fp8_parameters`` are None when left to the default: precision-aware
    with optimizer offload (Megatron-LM ``validate_args`` demands it) or bf16 moments; fp8
    parameters whenever the compute precision is fp8.
    """

    gradient_bytes: int = 4
    moment_bytes: int = 4
    precision_aware: bool | None = None
    fp8_parameters: bool | None = None
    cross_entropy: str = "native"
    load_imbalance: float = 1.0
    overlap_expert_communication: bool = False


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
    assumed
        Defaults that the scenario left open, as sentences.
    lines
        ``path -> (file, line)`` of scenario fields, for messages.
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
    layout_string: str | None = None
    even_split: bool = False
    assumed: tuple[str, ...] = ()
    lines: Mapping[str, tuple[str, int]] = field(default_factory=dict)

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
