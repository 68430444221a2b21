"""Step time of a concrete layout: layers, slots, ranks, pipeline, and what comes once a step.

``T = ga*B + (pp-1)*X + E + O + 20 ms``: ``B`` the heaviest slots of all chunks together and ``X``
the heaviest slot for one micro-batch (forward and backward, p2p included), ``E`` the exposed
data-parallel exchange, ``O`` the optimizer.  Ranks go from chunk to chunk together, so that those
with less in one wait for the heaviest there; without interleaving ``B`` is the heaviest rank.  With
equal slots this is the interleaved bubble formula ``B*(ga + (pp-1)/vpp)``.  All times are whole
microseconds, rounded up term by term, so that the solver's integers and these are the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from meshplan.constraints.layout import Layout, Slot
from meshplan.constraints.memory.offloaded import offloaded_activation
from meshplan.constraints.pipeline import kind_counts
from meshplan.constraints.problem import Problem
from meshplan.constraints.terms import evaluate
from meshplan.scenarios.model_card import LayerKind
from meshplan.solver.time.attention import attention_us, core_us
from meshplan.solver.time.dispatch import dispatch_us
from meshplan.solver.time.ends import embedding_us, loss_us, mtp_projection_us, p2p_us
from meshplan.solver.time.host import HOST_TERMS, layer_time_us
from meshplan.solver.time.mlp import dense_mlp_us, experts_us, mlp_norm_us, shared_experts_us
from meshplan.solver.time.offload import transfers_us, with_transfers_us
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

#: Once a step besides all that is modelled: data loading, logging, clipping.
STEP_OVERHEAD_US = 20_000


def gpu_terms(kind: LayerKind) -> dict[str, tuple[Callable[..., int], bool]]:
    """GPU terms of a layer by name, and whether the term takes ``kind`` as a constant."""
    terms: dict[str, tuple[Callable[..., int], bool]] = {
        "attention_projections": (attention_us, True),
        "attention_core": (core_us, True),
        "norms": (mlp_norm_us, False),
    }
    if kind.mlp == "dense":
        terms["dense_mlp"] = (dense_mlp_us, False)
    elif kind.mlp == "moe":
        terms["shared_experts"] = (shared_experts_us, False)
        terms["experts"] = (experts_us, False)
        terms["expert_dispatch"] = (dispatch_us, False)
    return terms


def layer_parts_us(problem: Problem, layout: Layout, kind: LayerKind) -> dict[str, int]:
    """GPU time of one layer of ``kind`` by part."""
    return {
        name: evaluate(term, problem, layout, **({"kind": kind} if with_kind else {}))
        for name, (term, with_kind) in gpu_terms(kind).items()
    }


def launched_layer_us(problem: Problem, layout: Layout, kind: LayerKind) -> int:
    """Time of one layer of ``kind`` for one micro-batch, host included, offload not."""
    gpu = sum(layer_parts_us(problem, layout, kind).values())
    host = sum(evaluate(term, problem, layout, kind=kind) for term in HOST_TERMS)
    return layer_time_us(kind, gpu, host)


def layer_us(problem: Problem, layout: Layout, kind: LayerKind) -> int:
    """Time of one layer of ``kind`` for one micro-batch, host and offload included."""
    time = launched_layer_us(problem, layout, kind)
    offloaded = evaluate(offloaded_activation, problem, layout, kind=kind)
    return int(with_transfers_us(time, *transfers_us(problem, offloaded)))


def mtp_us(problem: Problem, layout: Layout) -> int:
    """All MTP layers with their projections, one micro-batch; their losses are in the last slot."""
    card = problem.model
    if not card.mtp_layers:
        return 0
    one = layer_us(problem, layout, card.mtp_kind)
    return card.mtp_layers * (one + evaluate(mtp_projection_us, problem, layout))


def losses_us(problem: Problem, layout: Layout) -> int:
    """Output layer and loss of one micro-batch, and once more for each MTP layer.

    The stage with the loss computes them all, wherever the MTP layers are (megatron-core
    ``models/gpt/gpt_model.py``, ``process_mtp_loss``).
    """
    return (1 + problem.model.mtp_layers) * evaluate(loss_us, problem, layout)


def slot_us(problem: Problem, layout: Layout, slot: Slot) -> int:
    """One slot for one micro-batch, without p2p."""
    total = sum(
        n * layer_us(problem, layout, kind) for kind, n in kind_counts(problem.model, slot).items()
    )
    if slot.embedding:
        total += evaluate(embedding_us, problem, layout)
    if slot.mtp:
        total += mtp_us(problem, layout)
    if slot.loss:
        total += losses_us(problem, layout)
    return total


def slots_us(problem: Problem, layout: Layout) -> list[int]:
    """Each slot for one micro-batch, p2p included; slots that hold the same are timed once."""
    p2p = evaluate(p2p_us, problem, layout)
    known: dict[tuple[object, ...], int] = {}
    times = []
    for slot in layout.slots:
        kinds = problem.model.layer_kinds[slot.first : slot.first + slot.count]
        content = (kinds, slot.embedding, slot.mtp, slot.loss)
        if content not in known:
            known[content] = slot_us(problem, layout, slot) + p2p
        times.append(known[content])
    return times


@dataclass(frozen=True)
class StepTime:
    """Step time of a layout in whole microseconds, with what it is made of.

    Attributes
    ----------
    rank_us
        Time of each pipeline rank for one micro-batch, p2p included.
    bottleneck_us
        What the pipeline takes for one micro-batch in its steady state: the heaviest slot of each
        chunk, added up.
    slot_us
        The heaviest slot.
    bubble_us, exchange_us, optimizer_us
        Fill and drain, exposed data-parallel exchange, optimizer step.
    step_us
        The whole step.
    """

    rank_us: tuple[int, ...]
    bottleneck_us: int
    slot_us: int
    bubble_us: int
    exchange_us: int
    optimizer_us: int
    step_us: int

    def waiting_us(self, ga: int) -> int:
        """What the heaviest rank waits for others over the micro-batches of a step."""
        return ga * (self.bottleneck_us - max(self.rank_us))


def layer_exchange_us(problem: Problem, layout: Layout, kind: LayerKind) -> int:
    """Data-parallel exchange of one layer's parameters, before overlap."""
    return evaluate(dense_exchange_us, problem, layout, kind=kind) + evaluate(
        expert_exchange_us, problem, layout, kind=kind
    )


def layer_optimizer_us(problem: Problem, layout: Layout, kind: LayerKind) -> int:
    """Optimizer step of one layer's parameters."""
    return evaluate(dense_optimizer_us, problem, layout, kind=kind) + evaluate(
        expert_optimizer_us, problem, layout, kind=kind
    )


def exposed_exchange_us(total_us: int, bottleneck_us: int) -> int:
    """Exposed part of the exchange: 30 %, or what half a micro-batch cannot hide."""
    return max(-(-3 * total_us // 10), -(-(2 * total_us - bottleneck_us) // 2))


def step_time(problem: Problem, layout: Layout) -> StepTime:
    """Step time of a layout whose slots are set."""
    pp = layout.pp
    slots = slots_us(problem, layout)
    ranks = tuple(sum(slots[rank::pp]) for rank in range(pp))
    bottleneck = sum(max(slots[first : first + pp]) for first in range(0, len(slots), pp))
    heaviest = max(slots)
    most = max(sum(s.count for s in layout.slots[rank::pp]) for rank in range(pp))
    exchange = most * max(layer_exchange_us(problem, layout, k) for k in problem.kinds)
    exchange += evaluate(ends_exchange_us, problem, layout)
    exchange += evaluate(mtp_expert_exchange_us, problem, layout)
    exposed = exposed_exchange_us(exchange, bottleneck)
    optimizer = most * max(layer_optimizer_us(problem, layout, k) for k in problem.kinds)
    optimizer += evaluate(ends_optimizer_us, problem, layout)
    optimizer += evaluate(mtp_expert_optimizer_us, problem, layout)
    bubble = (pp - 1) * heaviest
    return StepTime(
        rank_us=ranks,
        bottleneck_us=bottleneck,
        slot_us=heaviest,
        bubble_us=bubble,
        exchange_us=exposed,
        optimizer_us=optimizer,
        step_us=layout.ga * bottleneck + bubble + exposed + optimizer + STEP_OVERHEAD_US,
    )
