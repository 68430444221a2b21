"""Where the time of a step goes: the terms of the step-time model, summed up by part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from fractions import Fraction

from meshplan.constraints.layout import Layout, Slot
from meshplan.constraints.pipeline import kind_counts, rank_slots
from meshplan.constraints.problem import Problem
from meshplan.constraints.terms import evaluate
from meshplan.scenarios.model_card import LayerKind
from meshplan.solver.time.attention import attention_exchange_us, context_exchange_us
from meshplan.solver.time.ends import embedding_us, p2p_us
from meshplan.solver.time.mlp import dense_mlp_exchange_us, shared_experts_exchange_us
from meshplan.solver.time.step import (
    STEP_OVERHEAD_US,
    StepTime,
    gpu_terms,
    launched_layer_us,
    layer_parts_us,
    layer_us,
    losses_us,
    mtp_us,
)

#: All parts, in the order of reports.
PARTS: tuple[str, ...] = (
    "attention_projections",
    "attention_core",
    "norms",
    "dense_mlp",
    "experts",
    "shared_experts",
    "expert_dispatch",
    "tensor_parallel_exchange",
    "context_parallel_exchange",
    "host",
    "activation_offload",
    "embedding",
    "loss",
    "mtp",
    "p2p",
    "pipeline_waiting",
    "pipeline_bubble",
    "data_parallel_exchange",
    "optimizer",
    "overhead",
)

#: Exposed communication that is part of the term of a layer: the term, its name, how much it is.
_EXCHANGES: dict[str, tuple[str, Callable[..., int]]] = {
    "attention_projections": ("tensor_parallel_exchange", attention_exchange_us),
    "attention_core": ("context_parallel_exchange", context_exchange_us),
    "dense_mlp": ("tensor_parallel_exchange", dense_mlp_exchange_us),
    "shared_experts": ("tensor_parallel_exchange", shared_experts_exchange_us),
}

#: All parts with the imbalance of the ranks apart, in the order of comparisons.
WORK_PARTS: tuple[str, ...] = tuple(
    part
    for name in PARTS
    for part in (("pipeline_imbalance", name) if name == "pipeline_waiting" else (name,))
)


def step_breakdown_us(problem: Problem, layout: Layout, time: StepTime) -> dict[str, int]:
    """Microseconds of a step by part; they add up to ``time.step_us``.

    The parts of layers are those of the heaviest rank, over all micro-batches.  Exchanges count
    where nothing hides them; that of experts is in ``expert_dispatch``, and ``mtp`` is whole.
    ``host`` is what launching the kernels adds to the GPU time of the layers,
    ``activation_offload`` what copies to host memory and back add to both, ``pipeline_waiting``
    the time that the heaviest rank waits for those which have more than it has in another chunk.
    """
    rank = time.rank_us.index(max(time.rank_us))
    parts: Counter[str] = Counter()
    for slot in rank_slots(layout.slots, layout.pp, rank):
        parts.update(_slot_parts_us(problem, layout, slot))
    whole = {name: layout.ga * parts[name] for name in PARTS}
    whole["pipeline_waiting"] = time.waiting_us(layout.ga)
    whole["pipeline_bubble"] = time.bubble_us
    whole["data_parallel_exchange"] = time.exchange_us
    whole["optimizer"] = time.optimizer_us
    whole["overhead"] = STEP_OVERHEAD_US
    return whole


def work_breakdown_us(problem: Problem, layout: Layout, time: StepTime) -> dict[str, Fraction]:
    """Microseconds of a step by part, with the work apart from how evenly the ranks share it.

    As :func:`step_breakdown_us`, but the parts of layers are the mean over the pipeline ranks, and
    ``pipeline_imbalance`` is what the heaviest rank takes more: so two splits of the same layers
    differ in it alone (and in the bubble).  They add up to ``time.step_us``.
    """
    parts: Counter[str] = Counter()
    for slot in layout.slots:
        parts.update(_slot_parts_us(problem, layout, slot))
    share = Fraction(layout.ga, layout.pp)
    whole = {name: share * parts[name] for name in PARTS}
    mean = Fraction(sum(time.rank_us), layout.pp)
    once = {
        "pipeline_imbalance": layout.ga * (max(time.rank_us) - mean),
        "pipeline_waiting": Fraction(time.waiting_us(layout.ga)),
        "pipeline_bubble": Fraction(time.bubble_us),
        "data_parallel_exchange": Fraction(time.exchange_us),
        "optimizer": Fraction(time.optimizer_us),
        "overhead": Fraction(STEP_OVERHEAD_US),
    }
    return {name: once.get(name, whole.get(name, Fraction(0))) for name in WORK_PARTS}


def _slot_parts_us(problem: Problem, layout: Layout, slot: Slot) -> Counter[str]:
    """Parts of one slot for one micro-batch."""
    parts: Counter[str] = Counter()
    for kind, count in kind_counts(problem.model, slot).items():
        for name, time_us in _layer_parts(problem, layout, kind).items():
            parts[name] += count * time_us
    parts["p2p"] += evaluate(p2p_us, problem, layout)
    if slot.embedding:
        parts["embedding"] += evaluate(embedding_us, problem, layout)
    if slot.mtp:
        parts["mtp"] += mtp_us(problem, layout)
    if slot.loss:
        parts["loss"] += losses_us(problem, layout)
    return parts


def _layer_parts(problem: Problem, layout: Layout, kind: LayerKind) -> Counter[str]:
    """Parts of one layer, communication apart from work; what host and offload add."""
    whole = layer_parts_us(problem, layout, kind)
    parts = Counter(whole)
    for name, (exchange, term) in _EXCHANGES.items():
        if name in whole:
            constants = {"kind": kind} if gpu_terms(kind)[name][1] else {}
            exposed = evaluate(term, problem, layout, **constants)
            parts[name] -= exposed
            parts[exchange] += exposed
    launched = launched_layer_us(problem, layout, kind)
    parts["host"] = launched - sum(whole.values())
    parts["activation_offload"] = layer_us(problem, layout, kind) - launched
    return parts
