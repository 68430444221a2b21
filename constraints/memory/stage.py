"""Memory of one pipeline rank of a concrete layout: its events, its peak, and the parts of both."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from meshplan.constraints.layout import Layout, Slot
from meshplan.constraints.memory.activations import activation_terms
from meshplan.constraints.memory.offloaded import offload_staging, offloaded_activation
from meshplan.constraints.memory.overhead import (
    RESERVED_OVER_ALLOCATED,
    communicator,
    context,
    dispatcher_buffers,
    dummy_gradients,
    expert_overhead,
    graph_pools,
    mesh_overhead,
    output_dummy_gradient,
    workspaces,
)
from meshplan.constraints.memory.static import (
    HOST_PART,
    STATIC_PARTS,
    UPDATE_PARTS,
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
    ring_working,
)
from meshplan.constraints.pipeline import kind_counts, rank_slots
from meshplan.constraints.problem import Problem
from meshplan.constraints.schedule import live_chunks
from meshplan.constraints.terms import evaluate
from meshplan.scenarios.model_card import LayerKind

#: Parts of a rank's memory, in the order of reports; those of the peak add up to it.
PARTS = (
    "weights", "gradients", "optimizer", "activations", "logits", "working", "update", "overhead",
)  # fmt: skip
#: Events of a step at which a rank may peak.
EVENTS = ("backward", "loss", *UPDATE_PARTS)


@dataclass(frozen=True)
class Event:
    """What a rank holds at one moment of the step, in quanta.

    Attributes
    ----------
    name
        ``backward``: most activations are alive and a layer runs backward; ``loss``: the logits
        are; ``update_dense``, ``update_expert``: the optimizer updates these parameters.
    activations, logits, working, update
        What is alive only then; see :data:`PARTS`.
    """

    name: str
    activations: int = 0
    logits: int = 0
    working: int = 0
    update: int = 0

    @property
    def total(self) -> int:
        """All that is alive only then."""
        return self.activations + self.logits + self.working + self.update


@dataclass(frozen=True)
class RankMemory:
    """Memory of one pipeline rank, in quanta.

    Attributes
    ----------
    weights, gradients, optimizer, overhead
        What stays over the whole step.
    outside
        The share of ``overhead`` that PyTorch's allocator does not know of: CUDA context,
        communicators, dispatcher buffers.
    events
        What comes on top, by event; the largest makes the peak.
    host
        Optimizer state and activations in host memory.
    """

    rank: int
    weights: int
    gradients: int
    optimizer: int
    overhead: int
    outside: int
    events: tuple[Event, ...]
    host: int = 0

    @property
    def peak_event(self) -> Event:
        """The event at which the rank peaks; the first of equal ones."""
        return max(self.events, key=lambda one: one.total)

    @property
    def event(self) -> str:
        """Name of the event at which the rank peaks."""
        return self.peak_event.name

    @property
    def activations(self) -> int:
        """Saved activations at the peak."""
        return self.peak_event.activations

    @property
    def logits(self) -> int:
        """Logits and their gradients at the peak."""
        return self.peak_event.logits

    @property
    def working(self) -> int:
        """What the running layer needs at the peak."""
        return self.peak_event.working

    @property
    def update(self) -> int:
        """Temporaries of the optimizer step at the peak."""
        return self.peak_event.update

    @property
    def resident(self) -> int:
        """What the allocator holds between two steps."""
        return self.weights + self.gradients + self.optimizer + self.overhead - self.outside

    @property
    def allocated(self) -> int:
        """Peak of what the allocator hands out (``torch.cuda.max_memory_allocated``)."""
        return self.resident + self.peak_event.total

    @property
    def reserved(self) -> int:
        """Estimate of what the allocator reserves: the median ratio of published runs."""
        return round(self.allocated * RESERVED_OVER_ALLOCATED)

    @property
    def peak(self) -> int:
        """Peak memory of the rank: allocated, and what lies outside the allocator."""
        return self.allocated + self.outside


def layer_activation(problem: Problem, layout: Layout, kind: LayerKind) -> int:
    """Activations that one layer of ``kind`` saves on the GPU for one micro-batch."""
    return sum(
        evaluate(term, problem, layout, kind=kind)
        for terms in activation_terms(kind).values()
        for term in terms
    )


def rank_memory(problem: Problem, layout: Layout, rank: int) -> RankMemory:
    """Memory of pipeline rank ``rank`` of a layout whose slots are set."""
    slots = rank_slots(layout.slots, layout.pp, rank)
    overhead, outside = _overhead(problem, layout)
    if any(slot.loss for slot in slots):
        overhead += evaluate(output_dummy_gradient, problem, layout)
    return RankMemory(
        rank=rank,
        **{part: _static_part(problem, layout, slots, part) for part in STATIC_PARTS},
        overhead=overhead + outside,
        outside=outside,
        events=tuple(_events(problem, layout, slots, rank)),
        host=_host(problem, layout, slots, rank),
    )


def _events(problem: Problem, layout: Layout, slots: Sequence[Slot], rank: int) -> Iterator[Event]:
    """What comes on top of the resident memory; events with nothing of their own are left out."""
    live, _ = worst_moment(problem, layout, slots, rank)
    here = of_rank(problem, slots)
    working = max(evaluate(term, here, layout) for term in WORKING_TERMS)
    working += evaluate(offload_staging, problem, layout)
    yield Event("backward", activations=live, working=working)
    if any(slot.loss for slot in slots):
        logits = evaluate(loss_working, problem, layout)
        yield Event("loss", activations=live, logits=logits)
    for part in UPDATE_PARTS:
        update = _static_part(problem, layout, slots, part)
        if update:
            yield Event(part, update=update)


def of_rank(problem: Problem, slots: Sequence[Slot]) -> Problem:
    """The problem with checkpoints of no more layers than a chunk of these slots has."""
    most = max(1, max((slot.count for slot in slots), default=0))
    training = problem.training
    if training.recompute_layers <= most:
        return problem
    return replace(problem, training=replace(training, recompute_layers=most))


def rank_live_chunks(problem: Problem, layout: Layout, rank: int) -> tuple[tuple[int, ...], ...]:
    """Live micro-batches of each chunk of a rank at the worst moments of the step."""
    return live_chunks(layout.pp, layout.vpp, layout.ga, rank, problem.extra_warmup)


def worst_moment(
    problem: Problem, layout: Layout, slots: Sequence[Slot], rank: int
) -> tuple[int, tuple[int, ...]]:
    """Most activations that a rank keeps alive, and the live micro-batches of each chunk then."""
    sizes = [chunk_activation(problem, layout, slot) for slot in slots]

    def alive(moment: tuple[int, ...]) -> int:
        return sum(number * size for number, size in zip(moment, sizes, strict=True))

    worst = max(rank_live_chunks(problem, layout, rank), key=alive)
    return alive(worst), worst


def chunk_activation(problem: Problem, layout: Layout, slot: Slot) -> int:
    """Activations that one chunk saves for one micro-batch, MTP layers included."""
    card = problem.model
    if layout.recompute_full:
        return _checkpointed(problem, layout, slot)
    counts = kind_counts(card, slot)
    total = sum(layer_activation(problem, layout, kind) * n for kind, n in counts.items())
    if slot.mtp:
        total += card.mtp_layers * layer_activation(problem, layout, card.mtp_kind)
    return total


def checkpoints_of(problem: Problem, slot: Slot) -> int:
    """Checkpoints of one slot under full recompute; each keeps its input.  MTP layers have one."""
    training, mtp = problem.training, problem.model.mtp_layers if slot.mtp else 0
    if training.recompute_method == "uniform":
        return -(-slot.count // training.recompute_layers) + mtp
    return min(slot.count, training.recompute_layers) + mtp


def _checkpointed(problem: Problem, layout: Layout, slot: Slot) -> int:
    """What one slot keeps for one micro-batch under full recompute."""
    # All kinds of layers keep the same input.
    each = layer_activation(problem, layout, problem.model.layer_kinds[0])
    saved = checkpoints_of(problem, slot) * each
    if problem.training.recompute_method == "block":
        kinds = problem.model.layer_kinds[slot.first : slot.first + slot.count]
        for kind in kinds[problem.training.recompute_layers :]:
            saved += layer_activation(problem, not_recomputed(layout), kind)
    return saved


def not_recomputed(layout: Layout) -> Layout:
    """The same layout with no recompute."""
    return replace(layout, recompute_full=False, recompute=())


#: What a layer needs while it runs; the largest counts.
WORKING_TERMS: tuple[Callable[..., int], ...] = (
    attention_working,
    ring_working,
    dense_mlp_working,
    moe_working,
    full_layer_working,
)

#: What every rank holds besides its layers: outside the allocator, and in it.
OUTSIDE_TERMS: tuple[Callable[..., int], ...] = (mesh_overhead, expert_overhead, dispatcher_buffers)
INSIDE_TERMS: tuple[Callable[..., int], ...] = (graph_pools, dummy_gradients)


def _overhead(problem: Problem, layout: Layout) -> tuple[int, int]:
    """What the allocator hands out besides the layers, and what lies outside it."""
    inside = sum(evaluate(term, problem, layout) for term in INSIDE_TERMS)
    outside = sum(evaluate(term, problem, layout) for term in OUTSIDE_TERMS)
    return inside + workspaces(problem), outside + context(problem) + communicator(layout.pp)


def _static_part(problem: Problem, layout: Layout, slots: Sequence[Slot], part: str) -> int:
    """One part of the parameters' memory, of everything that these slots hold."""
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


def _host(problem: Problem, layout: Layout, slots: Sequence[Slot], rank: int) -> int:
    """Optimizer state and activations of a rank in host memory.

    An offloaded activation counts for as many micro-batches as any chunk of the rank keeps alive:
    at most what is there at once.
    """
    card = problem.model
    total = _static_part(problem, layout, slots, HOST_PART)
    if not problem.training.activation_offload:
        return total
    most = max(max(vector) for vector in rank_live_chunks(problem, layout, rank))
    for slot in slots:
        counts = dict(kind_counts(card, slot))
        if slot.mtp:
            counts[card.mtp_kind] = counts.get(card.mtp_kind, 0) + card.mtp_layers
        for kind, n in counts.items():
            total += most * n * evaluate(offloaded_activation, problem, layout, kind=kind)
        if layout.recompute_full and problem.training.recompute_method == "block":
            kept = problem.model.layer_kinds[slot.first : slot.first + slot.count]
            for kind in kept[problem.training.recompute_layers :]:
                plain = not_recomputed(layout)
                total += most * evaluate(offloaded_activation, problem, plain, kind=kind)
    return total


__all__ = [
    "EVENTS",
    "INSIDE_TERMS",
    "OUTSIDE_TERMS",
    "PARTS",
    "WORKING_TERMS",
    "checkpoints_of",
    "chunk_activation",
    "Event",
    "RankMemory",
    "layer_activation",
    "not_recomputed",
    "of_rank",
    "rank_live_chunks",
    "rank_memory",
    "worst_moment",
]
