"""What each part of a rank's memory consists of, item by item, in the words of a model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from meshplan.constraints.layout import Layout, Slot
from meshplan.constraints.memory.activations import activation_terms
from meshplan.constraints.memory.offloaded import offload_staging
from meshplan.constraints.memory.overhead import (
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
from meshplan.constraints.memory.stage import (
    WORKING_TERMS,
    RankMemory,
    checkpoints_of,
    not_recomputed,
    of_rank,
    rank_memory,
    worst_moment,
)
from meshplan.constraints.memory.static import (
    STATIC_PARTS,
    UPDATE_PARTS,
    dense_static,
    embedding_static,
    expert_static,
    mtp_dense_static,
    mtp_expert_static,
    output_static,
)
from meshplan.constraints.pipeline import kind_counts, rank_slots
from meshplan.constraints.problem import Problem
from meshplan.constraints.terms import evaluate
from meshplan.scenarios.model_card import LayerKind

#: What mixes the tokens of a layer, where that is not attention in its usual form.
_MIXERS = {"mamba": "Mamba mixer", "gdn": "linear attention", "none": "no mixer"}
#: What needs the memory while a layer runs, by the term that is the largest.
_WORKING_NAMES = {
    "attention_working": "attention running backward",
    "ring_working": "attention running backward, with a neighbour's keys and values",
    "dense_mlp_working": "dense MLP running backward",
    "moe_working": "experts running backward",
    "full_layer_working": "one checkpoint running backward",
}


@dataclass(frozen=True)
class Item:
    """Some of one part of a rank's memory at its peak.

    Attributes
    ----------
    part
        One of :data:`~meshplan.constraints.memory.stage.PARTS`.
    name
        What it is, in words.
    quanta
        How much.
    """

    part: str
    name: str
    quanta: int


def itemize(problem: Problem, layout: Layout, rank: int) -> tuple[Item, ...]:
    """What the memory of a rank consists of at its peak; the items of a part add up to it."""
    memory = rank_memory(problem, layout, rank)
    slots = rank_slots(layout.slots, layout.pp, rank)
    found = [
        *_static(problem, layout, slots, STATIC_PARTS),
        *_activations(problem, layout, slots, memory),
        *_at_work(problem, layout, slots, memory),
        *_overhead(problem, layout, slots),
    ]
    return tuple(item for item in found if item.quanta)


def _static(
    problem: Problem, layout: Layout, slots: Sequence[Slot], parts: Sequence[str]
) -> Iterator[Item]:
    counts: Counter[LayerKind] = sum(
        (kind_counts(problem.model, slot) for slot in slots), Counter[LayerKind]()
    )

    def size(term: Callable[..., int], part: str, **constants: object) -> int:
        return evaluate(term, problem, layout, part=part, **constants)

    for part in parts:
        shown = "update" if part in UPDATE_PARTS else part
        dense = sum(n * size(dense_static, part, kind=kind) for kind, n in counts.items())
        expert = sum(n * size(expert_static, part, kind=kind) for kind, n in counts.items())
        number = sum(counts.values())
        routed = sum(n for kind, n in counts.items() if kind.mlp == "moe")
        yield Item(shown, f"{_dense_parts(problem, counts)} of {number} layers", dense)
        yield Item(shown, f"routed experts of {routed} layers", expert)
        for slot in slots:
            if slot.embedding:
                yield Item(shown, "embedding", size(embedding_static, part))
            if slot.mtp:
                mtp = size(mtp_dense_static, part) + size(mtp_expert_static, part)
                copy = " with a copy of the embedding" if layout.pp > 1 else ""
                yield Item(shown, f"MTP layers{copy}", mtp)
            if slot.loss:
                yield Item(shown, "final norm and output layer", size(output_static, part))


def _dense_parts(problem: Problem, kinds: Iterable[LayerKind]) -> str:
    """What layers hold besides routed experts, in words."""
    mixers = {_MIXERS.get(kind.attention, "attention") for kind in kinds} - {"no mixer"}
    mlps = {kind.mlp for kind in kinds}
    found = [*sorted(mixers), "norms"]
    found += ["dense MLPs"] * ("dense" in mlps)
    if "moe" in mlps:
        found += ["routers"] + ["shared experts"] * bool(problem.model.shared_ffn)
    return f"{', '.join(found[:-1])} and {found[-1]}" if len(found) > 1 else found[0]


def _activations(
    problem: Problem, layout: Layout, slots: Sequence[Slot], memory: RankMemory
) -> Iterator[Item]:
    """Saved activations at the schedule's worst moment, by layer kind and half."""
    if not memory.activations:
        return
    _, worst = worst_moment(problem, layout, slots, memory.rank)
    live = tuple(zip(worst, slots, strict=True))
    if not layout.recompute_full:
        yield from _saved(problem, layout, _live_layers(problem, live))
        return
    kept: list[Item] = []
    if problem.training.recompute_method == "block":
        beyond = _live_layers(problem, live, beyond_block=True)
        kept += _saved(problem, not_recomputed(layout), beyond)
    yield from kept
    checkpoints = sum(number * checkpoints_of(problem, slot) for number, slot in live)
    inputs = memory.activations - sum(item.quanta for item in kept)
    yield Item("activations", f"inputs of {checkpoints} live checkpoints", inputs)


def _live_layers(
    problem: Problem, live: Sequence[tuple[int, Slot]], *, beyond_block: bool = False
) -> Counter[LayerKind]:
    """Layers by kind, times the micro-batches alive; or those that ``block`` does not recompute."""
    card, found = problem.model, Counter[LayerKind]()
    for number, slot in live:
        first = problem.training.recompute_layers if beyond_block else 0
        for kind in card.layer_kinds[slot.first : slot.first + slot.count][first:]:
            found[kind] += number
        if slot.mtp and not beyond_block:
            found[card.mtp_kind] += number * card.mtp_layers
    return found


def _saved(problem: Problem, layout: Layout, live: Counter[LayerKind]) -> Iterator[Item]:
    """What these layers save under a layout's recompute."""
    for kind, n in live.items():
        for part, terms in activation_terms(kind).items():
            saved = n * sum(evaluate(term, problem, layout, kind=kind) for term in terms)
            name = _MIXERS.get(kind.attention, part) if part == "attention" else part
            yield Item("activations", f"{name} of {n} live layers ({kind})", saved)


def _at_work(
    problem: Problem, layout: Layout, slots: Sequence[Slot], memory: RankMemory
) -> Iterator[Item]:
    if memory.event in UPDATE_PARTS:
        yield from _static(problem, layout, slots, (memory.event,))
        return
    yield Item("logits", "logits and their gradients", memory.logits)
    if memory.working:
        here = of_rank(problem, slots)
        term = max(WORKING_TERMS, key=lambda one: evaluate(one, here, layout))
        yield Item("working", _WORKING_NAMES[term.__name__], evaluate(term, here, layout))
        staged = evaluate(offload_staging, problem, layout)
        yield Item("working", "activations on their way from and to the host", staged)


def _overhead(problem: Problem, layout: Layout, slots: Sequence[Slot]) -> Iterator[Item]:
    groups = evaluate(mesh_overhead, problem, layout) + evaluate(expert_overhead, problem, layout)
    groups += communicator(layout.pp)
    dummies = evaluate(dummy_gradients, problem, layout)
    if any(slot.loss for slot in slots):
        dummies += evaluate(output_dummy_gradient, problem, layout)
    yield Item("overhead", "CUDA context and world communicator", context(problem))
    yield Item("overhead", "communicators of the parallel groups", groups)
    buffers = evaluate(dispatcher_buffers, problem, layout)
    yield Item("overhead", f"buffers of the {layout.dispatcher} dispatcher", buffers)
    yield Item("overhead", "workspaces of matrix products", workspaces(problem))
    yield Item("overhead", "pools of CUDA graphs", evaluate(graph_pools, problem, layout))
    yield Item("overhead", "dummy weight gradients", dummies)


__all__ = ["Item", "itemize"]
