"""Layouts for tests of the memory model: by hand, and drawn at random over the shipped cards."""

from __future__ import annotations

import dataclasses
from typing import Any

from hypothesis import strategies as st

from meshplan.constraints.decisions import CP_COMM_TYPES, DISPATCHERS, RECOMPUTE_MODULES
from meshplan.constraints.layout import Layout
from meshplan.constraints.memory.stage import PARTS, RankMemory, rank_memory
from meshplan.constraints.pipeline import balanced_slots, slots_from_rank_counts
from meshplan.constraints.problem import Problem, Training
from meshplan.scenarios.cards import card_names
from tests.constraints.factories import problem

#: Modules that activation offload can name.
OFFLOAD_MODULES = (
    "attn_norm", "qkv_linear", "core_attn", "attn_proj", "mlp_norm", "expert_fc1", "moe_act",
)  # fmt: skip


def laid_out(where: Problem, ranks: tuple[int, ...], vpp: int = 1, **decisions: Any) -> Layout:
    """A layout with these decoder layers on each pipeline rank."""
    slots = slots_from_rank_counts(ranks, vpp, mtp=where.model.mtp_layers > 0)
    return Layout(pp=len(ranks), vpp=vpp, slots=slots, **{"ga": 8, "gbs": 8, **decisions})


def ranks_of(where: Problem, layout: Layout) -> list[RankMemory]:
    """Memory of all pipeline ranks."""
    return [rank_memory(where, layout, rank) for rank in range(layout.pp)]


def parts_of(memory: RankMemory) -> dict[str, int]:
    """The parts of the peak."""
    return {name: getattr(memory, name) for name in PARTS}


def trained(where: Problem, **changes: Any) -> Problem:
    """The problem with other training settings."""
    return dataclasses.replace(where, training=dataclasses.replace(where.training, **changes))


@st.composite
def trainings(draw: st.DrawFn) -> Training:
    """Numeric formats, loss, recompute method and activation offload at random."""
    flags = st.booleans()
    return Training(
        gradient_bytes=draw(st.sampled_from((2, 4))),
        moment_bytes=draw(st.sampled_from((2, 4))),
        precision_aware=draw(st.sampled_from((None, True, False))),
        distributed_optimizer=draw(flags),
        cross_entropy=draw(st.sampled_from(("native", "te", "unfused"))),
        fused_attention=draw(flags),
        sequence_parallel=draw(flags),
        hidden_dropout=draw(st.sampled_from((0.0, 0.1))),
        fused_gradients=draw(flags),
        activation_offload=tuple(draw(st.sets(st.sampled_from(OFFLOAD_MODULES), max_size=3))),
        overlap_expert_communication=draw(flags),
    )


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """A shipped card under a random training recipe, precision and Transformer Engine."""
    return problem(
        draw(st.sampled_from(card_names())),
        gpus=64,
        precision=draw(st.sampled_from(("bf16", "fp8-tensor", "fp8-block"))),
        transformer_engine=draw(st.sampled_from(((2, 0), (2, 7), (2, 8), (2, 16)))),
        training=draw(trainings()),
    )


@st.composite
def layouts(draw: st.DrawFn, where: Problem) -> Layout:
    """A layout of the problem's model; every degree that memory reads, legal or not."""
    pp, vpp = draw(st.sampled_from((1, 2, 3, 4))), draw(st.sampled_from((1, 1, 2, 3)))
    powers = st.sampled_from((1, 2, 4))
    full = draw(st.booleans())
    modules = st.sets(st.sampled_from(RECOMPUTE_MODULES))
    ga = pp * draw(st.integers(1, 5))
    return Layout(
        pp=pp,
        vpp=vpp,
        tp=draw(powers),
        cp=draw(powers),
        dp=draw(powers),
        ep=draw(powers) if where.model.is_moe else 1,
        etp=draw(st.sampled_from((1, 2))),
        edp=draw(powers),
        mbs=draw(st.sampled_from((1, 2))),
        ga=ga,
        gbs=ga,
        recompute=() if full else tuple(draw(modules)),
        recompute_full=full,
        offload=draw(st.sampled_from((0, 50, 100))),
        dispatcher=draw(st.sampled_from(DISPATCHERS)),
        cp_comm=draw(st.sampled_from(CP_COMM_TYPES)),
        slots=balanced_slots(where, pp, vpp),
    )


@st.composite
def cases(draw: st.DrawFn) -> tuple[Problem, Layout]:
    """A problem and a layout of it."""
    where = draw(problems())
    return where, draw(layouts(where))
