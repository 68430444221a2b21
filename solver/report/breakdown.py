"""Where the time of a step goes: the terms of the step-time model, summed up by part."""

from __future__ import annotations

from collections import Counter

from meshplan.constraints.layout import Layout, Slot
from meshplan.constraints.pipeline import kind_counts, rank_slots
from meshplan.constraints.problem import Problem
from meshplan.constraints.terms import evaluate
from meshplan.scenarios.model_card import LayerKind
from meshplan.solver.time.ends import embedding_us, loss_us, p2p_us
from meshplan.solver.time.step import STEP_OVERHEAD_US, StepTime, layer_parts_us, layer_us, mtp_us

#: All parts, in the order of reports.
PARTS: tuple[str, ...] = (
    "attention_projections",
    "attention_core",
    "norms",
    "dense_mlp",
    "experts",
    "shared_experts",
    "expert_dispatch",
    "host",
    "embedding",
    "loss",
    "mtp",
    "p2p",
    "pipeline_bubble",
    "data_parallel_exchange",
    "optimizer",
    "overhead",
)


def step_breakdown_us(problem: Problem, layout: Layout, time: StepTime) -> dict[str, int]:
    """Microseconds of a step by part; they add up to ``time.step_us``.

    The parts of layers are those of the bottleneck rank, over all micro-batches.  ``host`` is what
    launching the kernels adds to the GPU time of the layers.
    """
    rank = time.rank_us.index(time.bottleneck_us)
    parts: Counter[str] = Counter()
    for slot in rank_slots(layout.slots, layout.pp, rank):
        parts.update(_slot_parts_us(problem, layout, slot))
    whole = {name: layout.ga * parts[name] for name in PARTS}
    whole["pipeline_bubble"] = time.bubble_us
    whole["data_parallel_exchange"] = time.exchange_us
    whole["optimizer"] = time.optimizer_us
    whole["overhead"] = STEP_OVERHEAD_US
    return whole


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
        parts["loss"] += evaluate(loss_us, problem, layout)
    return parts


def _layer_parts(problem: Problem, layout: Layout, kind: LayerKind) -> dict[str, int]:
    parts = layer_parts_us(problem, layout, kind)
    return {**parts, "host": layer_us(problem, layout, kind) - sum(parts.values())}
