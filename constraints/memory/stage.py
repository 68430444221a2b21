"""Memory of one pipeline rank of a concrete layout: its parts, its peak, and the event."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from meshplan.constraints.layout import Layout
from meshplan.constraints.memory.activations import (
    attention_activation,
    dense_mlp_activation,
    moe_activation,
)
from meshplan.constraints.memory.overhead import (
    base_overhead,
    communicator,
    dispatcher_buffers,
    dummy_gradients,
    expert_overhead,
    graph_pools,
    mesh_overhead,
    output_dummy_gradient,
)
from meshplan.constraints.memory.static import (
    STATIC_PARTS,
    dense_static,
    embedding_static,
    expert_static,
    mtp_dense_static,
    mtp_expert_static,
    output_static,
)
from meshplan.constraints.memory.working import (
    attention_working,
    dense_mlp_working,
    full_layer_working,
    loss_working,
    moe_working,
)
from meshplan.constraints.pipeline import kind_counts, rank_slots
from meshplan.constraints.problem import Problem, scope_value
from meshplan.constraints.schedule import live_chunks
from meshplan.constraints.terms import evaluate
from meshplan.scenarios.model_card import LayerKind


@dataclass(frozen=True)
class RankMemory:
    """Peak memory of one pipeline rank, in quanta, with the parts that add up to it.

    ``peak`` is the sum of all parts; ``working`` is what is alive only at ``event``
    (``backward``: one layer's gradients and recomputed tensors; ``loss``: the logits).
    """

    rank: int
    weights: int
    gradients: int
    optimizer: int
    activations: int
    logits: int
    working: int
    overhead: int
    event: str

    @property
    def peak(self) -> int:
        """Peak memory of the rank in quanta."""
        return (
            self.weights
            + self.gradients
            + self.optimizer
            + self.activations
            + self.logits
            + self.working
            + self.overhead
        )


def layer_activation(problem: Problem, layout: Layout, kind: LayerKind) -> int:
    """Activations that one layer of ``kind`` saves for one micro-batch."""
    total = evaluate(attention_activation, problem, layout, kind=kind)
    if kind.mlp == "moe":
        total += evaluate(moe_activation, problem, layout)
    elif kind.mlp == "dense":
        total += evaluate(dense_mlp_activation, problem, layout)
    return total


def rank_memory(problem: Problem, layout: Layout, rank: int) -> RankMemory:
    """Peak memory of pipeline rank ``rank`` of a layout whose slots are set."""
    slots = rank_slots(layout.slots, layout.pp, rank)
    parts = {part: _static_part(problem, layout, slots, part) for part in STATIC_PARTS}
    activation = {kind: layer_activation(problem, layout, kind) for kind in problem.kinds}
    per_chunk = [
        sum(activation[kind] * n for kind, n in kind_counts(problem.model, slot).items())
        + (problem.model.mtp_layers * activation[problem.model.mtp_kind] if slot.mtp else 0)
        for slot in slots
    ]
    live = max(
        sum(count * size for count, size in zip(vector, per_chunk, strict=True))
        for vector in live_chunks(layout.pp, layout.vpp, layout.ga, rank)
    )
    working = max(evaluate(term, problem, layout) for term in WORKING_TERMS)
    holds_loss = any(slot.loss for slot in slots)
    logits = evaluate(loss_working, problem, layout) if holds_loss else 0
    event = "loss" if logits > working else "backward"
    overhead = sum(evaluate(term, problem, layout) for term in OVERHEAD_TERMS)
    overhead += base_overhead(problem) + communicator(layout.pp)
    if holds_loss:
        overhead += evaluate(output_dummy_gradient, problem, layout)
    return RankMemory(
        rank=rank,
        **parts,
        activations=live,
        logits=logits if event == "loss" else 0,
        working=0 if event == "loss" else working,
        overhead=overhead,
        event=event,
    )


#: What a layer needs while it runs; the largest counts.
WORKING_TERMS: tuple[Callable[..., int], ...] = (
    attention_working,
    dense_mlp_working,
    moe_working,
    full_layer_working,
)

#: What every rank holds besides its layers.
OVERHEAD_TERMS: tuple[Callable[..., int], ...] = (
    mesh_overhead,
    expert_overhead,
    dispatcher_buffers,
    graph_pools,
    dummy_gradients,
)


def _static_part(problem: Problem, layout: Layout, slots: tuple, part: str) -> int:  # type: ignore[type-arg]
    """Weights, gradients or optimizer state of everything that these slots hold."""
    total = 0
    for slot in slots:
        for kind, n in kind_counts(problem.model, slot).items():
            total += n * evaluate(dense_static, problem, layout, part=part, kind=kind)
            total += n * evaluate(expert_static, problem, layout, part=part, kind=kind)
        if slot.embedding:
            total += evaluate(embedding_static, problem, layout, part=part)
        if slot.loss:
            total += evaluate(output_static, problem, layout, part=part)
        if slot.mtp:
            total += evaluate(mtp_dense_static, problem, layout, part=part)
            total += evaluate(mtp_expert_static, problem, layout, part=part)
    return total


__all__ = ["OVERHEAD_TERMS", "WORKING_TERMS", "RankMemory", "layer_activation", "rank_memory",
           "scope_value"]  # fmt: skip
