"""Rules on the concrete pipeline slots of a layout: where embedding, decoders, MTP and loss sit.

Source: Megatron-LM d98e8a64 ``core/transformer/pipeline_parallel_layer_layout.py``.  The solver
keeps them by construction; the checker applies them to any slots, such as those of a layout string.
A stage may hold the embedding, the loss or the MTP layers alone, or nothing at all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from meshplan.constraints.layout import Layout, Slot
from meshplan.constraints.pipeline import LayoutStringError, expand, parse_layout
from meshplan.constraints.problem import Problem
from meshplan.constraints.rules.sources import PIPELINE_LAYOUT
from meshplan.constraints.split_rules import LAYERS_SPLIT_EVENLY


@dataclass(frozen=True)
class LayoutRule:
    """A fact about the slots of a layout.

    Attributes
    ----------
    id
        Kebab-case, never reused; distinct from all ids of ``ALL_RULES``.
    check
        ``check(problem, layout)``: None if the layout obeys, else one sentence with the numbers.
        Slots that are not set at all break ``layout-stage-count`` only.
    formula, why, source, family
        As in :class:`~meshplan.constraints.rule.Rule`.
    """

    id: str
    check: Callable[[Problem, Layout], str | None]
    formula: str
    why: str
    source: str
    family: str = "pipeline"


def _places(slots: tuple[Slot, ...], part: str) -> list[int]:
    """Numbers of the slots (from 0) that hold ``embedding``, ``mtp`` or ``loss``."""
    return [index for index, slot in enumerate(slots) if getattr(slot, part)]


def _filled(slots: tuple[Slot, ...]) -> list[int]:
    """Numbers of the slots that hold anything at all."""
    return [i for i, s in enumerate(slots) if s.count or s.embedding or s.mtp or s.loss]


def _listed(places: list[int]) -> str:
    if not places:
        return "in no slot"
    return f"in slot{'s' if len(places) > 1 else ''} {', '.join(map(str, places))}"


def _stage_count(_: Problem, layout: Layout) -> str | None:
    stages = layout.pp * layout.vpp
    if len(layout.slots) == stages:
        return None
    return (
        f"the layout has {len(layout.slots)} slots, but pp*vpp = {layout.pp}*{layout.vpp} = "
        f"{stages}"
    )


def _split_evenly(problem: Problem, layout: Layout) -> str | None:
    rule, degrees = LAYERS_SPLIT_EVENLY, (layout.pp, layout.vpp)
    if not rule.applies(problem) or rule.holds(problem, *degrees):
        return None
    return rule.explain(problem, *degrees)


def _first_embedding(_: Problem, layout: Layout) -> str | None:
    places, filled = _places(layout.slots, "embedding"), _filled(layout.slots)
    if not layout.slots or (filled and places == filled[:1]):
        return None
    return f"the embedding is {_listed(places)}; it belongs in the first slot, 0, once"


def _last_loss(_: Problem, layout: Layout) -> str | None:
    last = len(layout.slots) - 1
    places, filled = _places(layout.slots, "loss"), _filled(layout.slots)
    if not layout.slots or (filled and places == filled[-1:]):
        return None
    return f"the loss is {_listed(places)}; it belongs in the last slot ({last}), once"


def _decoder_count(problem: Problem, layout: Layout) -> str | None:
    held = sum(slot.count for slot in layout.slots)
    if not layout.slots or held == problem.model.layers:
        return None
    return (
        f"the slots hold {held} decoder layers, but {problem.model.name} has {problem.model.layers}"
    )


def _layer_order(_: Problem, layout: Layout) -> str | None:
    expected = 0
    for index, slot in enumerate(layout.slots):
        if slot.count and slot.first != expected:
            return f"slot {index} starts at decoder layer {slot.first}, not at layer {expected}"
        expected += slot.count
    return None


def _mtp_count(problem: Problem, layout: Layout) -> str | None:
    layers = problem.model.mtp_layers
    held = _mtp_letters(problem, layout)
    if held is None:  # not from a string: a slot with MTP holds all MTP layers
        held = layers or 1 if _places(layout.slots, "mtp") else 0
    if not layout.slots or held == layers:
        return None
    return f"the slots hold {held} MTP layers, but {problem.model.name} trains {layers}"


def _mtp_letters(problem: Problem, layout: Layout) -> int | None:
    """MTP layers of the scenario's layout string, if the slots are those of the string."""
    if problem.layout_string is None:
        return None
    try:
        if parse_layout(problem.layout_string) != layout.slots:
            return None
    except LayoutStringError:
        return None
    return expand(problem.layout_string).count("m")


def _mtp_after_decoders(_: Problem, layout: Layout) -> str | None:
    places = _places(layout.slots, "mtp")
    decoders = [index for index, slot in enumerate(layout.slots) if slot.count]
    # Within a slot the MTP layers follow the decoders, so only later slots can break the order.
    if not places or not decoders or decoders[-1] <= places[0]:
        return None
    return f"slot {decoders[-1]} holds decoder layers after the MTP layers of slot {places[0]}"


def _mtp_last_vpp(_: Problem, layout: Layout) -> str | None:
    for index in _places(layout.slots, "mtp"):
        chunk, rank = divmod(index, layout.pp)
        if chunk < layout.vpp - 1:
            return (
                f"the MTP layers are in chunk {chunk} of pipeline rank {rank}; they belong in the "
                f"last chunk of a rank, {layout.vpp - 1}"
            )
    return None


def _mtp_one_stage(_: Problem, layout: Layout) -> str | None:
    places = _places(layout.slots, "mtp")
    if len(places) <= 1:
        return None
    return f"MTP layers are {_listed(places)}; all of them belong in one slot"


ALL_LAYOUT_RULES: tuple[LayoutRule, ...] = (
    LayoutRule(
        id="layout-stage-count",
        check=_stage_count,
        formula="slots == pp*vpp",
        why="Slot i is chunk i // pp of pipeline rank i % pp, so every rank has vpp slots.",
        source=f"{PIPELINE_LAYOUT}.__init__",
    ),
    LayoutRule(
        id=LAYERS_SPLIT_EVENLY.id,
        check=_split_evenly,
        formula=LAYERS_SPLIT_EVENLY.formula,
        why=LAYERS_SPLIT_EVENLY.why,
        source=LAYERS_SPLIT_EVENLY.source,
    ),
    LayoutRule(
        id="layout-first-embedding",
        check=_first_embedding,
        formula="the first slot that is not empty, and no other, holds the embedding",
        why="Tokens enter at the first stage. The embedding may be alone there; megatron-core lets "
        "empty stages stand before it.",
        source=f"{PIPELINE_LAYOUT}.validate_layer_layout",
    ),
    LayoutRule(
        id="layout-last-loss",
        check=_last_loss,
        formula="the last slot that is not empty, and no other, holds the loss",
        why="Final norm, output layer and loss end the model. They may be alone in their stage; "
        "megatron-core lets empty stages stand after it.",
        source=f"{PIPELINE_LAYOUT}.validate_layer_layout",
    ),
    LayoutRule(
        id="layout-decoder-count",
        check=_decoder_count,
        formula="decoder layers of all slots == layers",
        why="Every decoder layer is placed once; otherwise another model would be trained.",
        source=f"{PIPELINE_LAYOUT}.validate_layer_layout",
    ),
    LayoutRule(
        id="layout-layer-order",
        check=_layer_order,
        formula="each slot starts where the one before it ends",
        why="Layers run through the slots in order, without gaps.",
        source=PIPELINE_LAYOUT,
    ),
    LayoutRule(
        id="layout-mtp-count",
        check=_mtp_count,
        formula="MTP layers of all slots == mtp_layers",
        why="Every MTP layer is placed once, and none where the model trains none.",
        source=f"{PIPELINE_LAYOUT}.validate_layer_layout",
    ),
    LayoutRule(
        id="layout-mtp-after-decoders",
        check=_mtp_after_decoders,
        formula="no decoder layer after an MTP layer",
        why="MTP layers read the output of the last decoder layer.",
        source=f"{PIPELINE_LAYOUT}.validate_layer_layout",
    ),
    LayoutRule(
        id="layout-mtp-last-vpp",
        check=_mtp_last_vpp,
        formula="MTP layers in the last chunk of their rank",
        why="The schedule runs MTP layers at the end of a rank's chunks.",
        source=f"{PIPELINE_LAYOUT}.validate_layer_layout",
    ),
    LayoutRule(
        id="layout-mtp-one-stage",
        check=_mtp_one_stage,
        formula="all MTP layers in one slot",
        why="MTP layers share the embedding and output layer that their stage holds.",
        source=f"{PIPELINE_LAYOUT}.validate_layer_layout",
    ),
)
