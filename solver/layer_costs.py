"""Tabulated costs of one layer and of the ends of the pipeline, as expressions of one program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

from meshplan.constraints.memory.activations import (
    attention_activation,
    dense_mlp_activation,
    moe_activation,
)
from meshplan.constraints.memory.overhead import (
    base_overhead,
    communicator,
    output_dummy_gradient,
)
from meshplan.constraints.memory.stage import OVERHEAD_TERMS, WORKING_TERMS
from meshplan.constraints.memory.static import (
    STATIC_PARTS,
    dense_static,
    embedding_static,
    expert_static,
    mtp_dense_static,
    mtp_expert_static,
    output_static,
)
from meshplan.constraints.memory.working import loss_working
from meshplan.constraints.problem import Problem
from meshplan.scenarios.model_card import LayerKind
from meshplan.solver.tables import Decisions, Expression, Term
from meshplan.solver.time.ends import embedding_us, loss_us, mtp_projection_us, p2p_us
from meshplan.solver.time.host import OVERLAP_TANGENTS, host_us, layer_time_us
from meshplan.solver.time.step import STEP_OVERHEAD_US, exposed_exchange_us, gpu_terms
from meshplan.solver.time.update import (
    dense_exchange_us,
    dense_optimizer_us,
    ends_exchange_us,
    ends_optimizer_us,
    expert_exchange_us,
    expert_optimizer_us,
    mtp_expert_exchange_us,
    mtp_expert_optimizer_us,
)

#: No step takes longer than this (about 30 years): sums stay far within 64 bits.
LONGEST_US = 1 << 50
#: No rank holds more than this many quanta (256 TiB).
LARGEST = 1 << 30

Figure: TypeAlias = Literal["static", "activation", "layer_us"]


class LayerCosts:
    """Costs by layer kind, each a variable or a constant.

    Attributes
    ----------
    static, activation
        Static memory, and saved activations of one micro-batch, of one layer, in quanta.
    layer_us
        Time of one layer for one micro-batch, forward and backward.
    """

    def __init__(self, decisions: Decisions, problem: Problem, main: LayerKind) -> None:
        self.decisions = decisions
        self.model = decisions.model
        self.problem = problem
        self.card = problem.model
        self.main = main
        self._gaps: dict[tuple[str, LayerKind], tuple[Expression, Expression]] = {}
        self._least_layer: Expression | None = None
        parts = [{"part": part} for part in STATIC_PARTS]
        tab = decisions.tabulate
        self.static = {kind: self._static(kind) for kind in problem.kinds}
        self.activation = {kind: self._activation(kind) for kind in problem.kinds}
        self.embedding = tab([(embedding_static, p) for p in parts], "m:embedding")
        last: Expression = tab([(output_static, p) for p in parts], "m:output")
        last = last + tab([(output_dummy_gradient, {})], "m:output_dummy")
        if self.card.mtp_layers:
            last = last + tab([(mtp_dense_static, p) for p in parts], "m:mtp_dense")
            last = last + tab([(mtp_expert_static, p) for p in parts], "m:mtp_expert")
        self.last_static = last
        self.loss = tab([(loss_working, {})], "m:loss")
        self.layer_us = {kind: self._layer_us(kind) for kind in problem.kinds}
        self.p2p_slot = tab([(p2p_us, {})], "t:p2p")
        self.embedding_us = tab([(embedding_us, {})], "t:embedding")
        self.last_us: Expression = tab([(loss_us, {})], "t:loss")
        if self.card.mtp_layers:
            one = tab([(mtp_projection_us, {}), (loss_us, {})], "t:mtp")
            one = one + self.layer_us[self.card.mtp_kind]
            self.last_us = self.last_us + self.card.mtp_layers * one

    # -- memory --------------------------------------------------------------------------------

    def _static(self, kind: LayerKind) -> Expression:
        terms: list[Term] = [(dense_static, {"part": p, "kind": kind}) for p in STATIC_PARTS]
        total: Expression = self.decisions.tabulate(terms, f"m:dense.{kind}")
        if kind.mlp == "moe":
            terms = [(expert_static, {"part": p, "kind": kind}) for p in STATIC_PARTS]
            total = total + self.decisions.tabulate(terms, f"m:expert.{kind}")
        return total

    def _activation(self, kind: LayerKind) -> Expression:
        tab = self.decisions.tabulate
        total: Expression = tab([(attention_activation, {"kind": kind})], f"m:attention.{kind}")
        if kind.mlp == "moe":
            total = total + tab([(moe_activation, {})], f"m:moe.{kind}")
        elif kind.mlp == "dense":
            total = total + tab([(dense_mlp_activation, {})], f"m:mlp.{kind}")
        return total

    def overhead(self, pp: int) -> Expression:
        """What every rank holds besides its layers."""
        tab = self.decisions.tabulate
        total: Expression = sum(tab([(t, {})], f"m:{t.__name__}") for t in OVERHEAD_TERMS)
        return total + base_overhead(self.problem) + communicator(pp)

    def working(self) -> Expression:
        """The most that any half of a layer needs while it runs."""
        terms = [self.decisions.tabulate([(t, {})], f"m:{t.__name__}") for t in WORKING_TERMS]
        working = self.model.new_int_var(0, LARGEST, "working")
        for term in terms:
            self.model.add(working >= term)
        return working

    def correction(self, figure: Figure, kind: LayerKind, low: int, high: int) -> Expression:
        """Least that ``low .. high`` layers of ``kind`` instead of the main kind change a sum."""
        if high == 0:
            return 0
        values: dict[LayerKind, Expression] = getattr(self, figure)
        if low == high:
            return low * (values[kind] - values[self.main])
        key = (figure, kind)
        if key not in self._gaps:
            difference = values[kind] - values[self.main]
            more = self.model.new_int_var(0, LONGEST_US, "")
            less = self.model.new_int_var(0, LONGEST_US, "")
            self.model.add_max_equality(more, [difference, 0])
            self.model.add_max_equality(less, [-difference, 0])
            self._gaps[key] = (more, less)
        more, less = self._gaps[key]
        return low * more - high * less

    # -- time ----------------------------------------------------------------------------------

    def _layer_us(self, kind: LayerKind) -> Expression:
        """At least each tangent of the mean of GPU and host time."""
        tab = self.decisions.tabulate
        gpu = sum(
            tab([(term, {"kind": kind} if with_kind else {})], f"t:{name}.{kind}")
            for name, (term, with_kind) in gpu_terms(kind).items()
        )
        host = tab([(host_us, {"kind": kind})], f"t:host.{kind}")
        layer = self.model.new_int_var(0, LONGEST_US, f"t:layer.{kind}")
        for a, b in OVERLAP_TANGENTS:
            self.model.add(1000 * layer >= a * gpu + b * host)
        return layer

    def least_layer_us(self) -> Expression:
        """Time of the fastest kind of layer."""
        if self._least_layer is None:
            if len(self.layer_us) == 1:
                self._least_layer = next(iter(self.layer_us.values()))
            else:
                self._least_layer = self.model.new_int_var(0, LONGEST_US, "least_layer")
                self.model.add_min_equality(self._least_layer, list(self.layer_us.values()))
        return self._least_layer

    def update(self, most_at_least: Sequence[Any], bottleneck: Expression) -> Expression:
        """Exposed data-parallel exchange and optimizer step.

        ``most_at_least[j - 1]`` says that the fullest rank holds at least ``j`` layers.
        """
        tab, model = self.decisions.tabulate, self.model
        exchange: Expression = self._largest(
            dense_exchange_us, expert_exchange_us, most_at_least, "exchange"
        )
        exchange = exchange + tab([(ends_exchange_us, {})], "t:ends_exchange")
        optimizer: Expression = self._largest(
            dense_optimizer_us, expert_optimizer_us, most_at_least, "optimizer"
        )
        optimizer = optimizer + tab([(ends_optimizer_us, {})], "t:ends_optimizer")
        if self.card.mtp_layers:
            exchange = exchange + tab([(mtp_expert_exchange_us, {})], "t:mtp_exchange")
            optimizer = optimizer + tab([(mtp_expert_optimizer_us, {})], "t:mtp_optimizer")
        exposed = model.new_int_var(0, LONGEST_US, "t:exposed")
        model.add(10 * exposed >= 3 * exchange)
        model.add(2 * exposed >= 2 * exchange - bottleneck)
        return exposed + optimizer

    def _largest(
        self,
        dense: Callable[..., int],
        expert: Callable[..., int],
        most_at_least: Sequence[Any],
        name: str,
    ) -> Expression:
        """The fullest rank's layers times the costliest kind of layer."""
        tab = self.decisions.tabulate
        total = self.model.new_int_var(0, LONGEST_US, f"t:{name}")
        for kind in self.problem.kinds:
            cost: Expression = tab([(dense, {"kind": kind})], f"t:dense_{name}.{kind}")
            if kind.mlp == "moe":
                cost = cost + tab([(expert, {"kind": kind})], f"t:expert_{name}.{kind}")
            for j, literal in enumerate(most_at_least, start=1):
                self.model.add(total >= j * cost).only_enforce_if(literal)
        return total

    def least_step_us(self, row: dict[str, int], pp: int) -> int:
        """Least step time of one mesh row over all options and splits."""
        card, least = self.card, self.decisions.least
        layer: dict[LayerKind, int] = {}
        for kind in self.problem.kinds:
            gpu = sum(least(f"t:{name}.{kind}", row) for name in gpu_terms(kind))
            layer[kind] = layer_time_us(gpu, least(f"t:host.{kind}", row))
        loss, p2p = least("t:loss", row), least("t:p2p", row)
        last = loss
        if card.mtp_layers:
            last = last + card.mtp_layers * (least("t:mtp", row) + layer[card.mtp_kind])
        whole = sum(card.kind_counts[kind] * time for kind, time in layer.items())
        whole = whole + least("t:embedding", row) + last
        most = -(-card.layers // pp)
        fastest = min(layer.values())
        bottleneck = max(-(-whole // pp), most * fastest) + p2p
        slot = max(fastest, last) + p2p
        exchange = max(
            least(f"t:dense_exchange.{kind}", row)
            + (least(f"t:expert_exchange.{kind}", row) if kind.mlp == "moe" else 0)
            for kind in self.problem.kinds
        )
        optimizer = max(
            least(f"t:dense_optimizer.{kind}", row)
            + (least(f"t:expert_optimizer.{kind}", row) if kind.mlp == "moe" else 0)
            for kind in self.problem.kinds
        )
        exchange = exchange * most + least("t:ends_exchange", row)
        optimizer = optimizer * most + least("t:ends_optimizer", row)
        if card.mtp_layers:
            exchange = exchange + least("t:mtp_exchange", row)
            optimizer = optimizer + least("t:mtp_optimizer", row)
        # The exposed exchange falls as the bottleneck grows, more slowly than ga*bottleneck
        # rises, so the least bottleneck bounds their sum.
        exposed = exposed_exchange_us(exchange, bottleneck)
        return row["ga"] * bottleneck + (pp - 1) * slot + exposed + optimizer + STEP_OVERHEAD_US
