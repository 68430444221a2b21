"""The peak of a rank and of a layout: events, logits, gradients at work, and the verdict."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshplan.constraints.layout import Layout
from meshplan.constraints.memory.overhead import dummy_gradients, output_dummy_gradient
from meshplan.constraints.memory.stage import EVENTS, Event, RankMemory, rank_memory
from meshplan.constraints.memory.verdict import TIGHT_SHARE, fills_host, verdict, verdict_of
from meshplan.constraints.memory.working import dense_mlp_working, loss_working, moe_working
from meshplan.constraints.pipeline import balanced_slots
from meshplan.constraints.problem import HOST_RESERVE, QUANTA_PER_GIB, Problem
from meshplan.solver.judge import cost
from tests.constraints.factories import card, problem
from tests.constraints.memory_layouts import (
    cases,
    laid_out,
    parts_of,
    ranks_of,
    trained,
)

LLAMA = problem("llama-3.1-8b")
TOY = problem("toy-moe")


def _rank(peak: int = 0, host: int = 0) -> RankMemory:
    """A rank that has nothing but this peak and this on the host."""
    return RankMemory(0, 0, 0, 0, 0, 0, (Event("backward", working=peak),), host)


# -- one rank --------------------------------------------------------------------------------------


def test_a_rank_adds_up() -> None:
    """Tests resident 100+200+300+50-20, allocated with the largest event, peak with outside.

    Reserved is 1.06 times allocated: 1.06 * 1030 = 1091.8.
    """
    events = (
        Event("backward", activations=250, working=150),
        Event("loss", activations=250, logits=100),
        Event("update_dense", update=399),
    )
    rank = RankMemory(3, 100, 200, 300, 50, 20, events, host=7)
    assert [event.total for event in rank.events] == [400, 350, 399]
    assert (rank.resident, rank.allocated, rank.peak, rank.reserved) == (630, 1030, 1050, 1092)
    assert (rank.event, rank.activations, rank.working) == ("backward", 250, 150)
    assert (rank.logits, rank.update) == (0, 0)
    assert sum(parts_of(rank).values()) == rank.peak


def test_the_first_of_equal_events_is_the_peak() -> None:
    """Tests that ties name the event that comes first in the step."""
    events = (Event("backward", working=5), Event("loss", logits=5))
    assert RankMemory(0, 0, 0, 0, 0, 0, events).event == "backward"


@given(cases())
def test_every_rank_adds_up(drawn: tuple[Problem, Layout]) -> None:
    """Tests random layouts: the peak is allocated and outside, and that is its parts.

    Events stand in the order of a step, backward always, the loss on the last rank only.
    """
    where, one = drawn
    for memory in ranks_of(where, one):
        parts = parts_of(memory)
        assert min(parts.values()) >= 0
        assert memory.peak == sum(parts.values()) == memory.allocated + memory.outside
        assert memory.allocated == memory.resident + max(e.total for e in memory.events)
        assert memory.reserved == round(1.06 * memory.allocated)
        assert 0 < memory.outside <= memory.overhead
        names = [event.name for event in memory.events]
        assert names == [name for name in EVENTS if name in names]
        assert names[0] == "backward"
        assert ("loss" in names) == (memory.rank == one.pp - 1)


@given(cases(), st.sampled_from((0.5, 2.0)))
def test_the_size_of_the_gpu_never_changes_a_prediction(
    drawn: tuple[Problem, Layout], factor: float
) -> None:
    """Tests half and twice the HBM and host memory: every figure of every rank is the same."""
    where, one = drawn
    node = where.node_type.model_copy(
        update={
            "hbm_gib": where.node_type.hbm_gib * factor,
            "host_memory_gib": where.node_type.host_memory_gib * factor,
        }
    )
    cluster = dataclasses.replace(where.cluster, node_type=node)
    other = dataclasses.replace(where, cluster=cluster)
    assert other.capacity != where.capacity
    assert ranks_of(other, one) == ranks_of(where, one)


@given(cases(), st.sampled_from((2, 4, 8)))
def test_expert_parallelism_leaves_activations_alone(
    drawn: tuple[Problem, Layout], ep: int
) -> None:
    """Tests that EP alone changes what experts and buffers take, not activations or logits.

    Without fused accumulation the gradients of the local experts at work shrink, too.
    """
    where, one = drawn
    ranks = (ranks_of(where, dataclasses.replace(one, ep=degree)) for degree in (1, ep))
    for before, after in zip(*ranks, strict=True):
        for old, new in zip(before.events[:2], after.events[:2], strict=True):
            assert (old.name, old.activations, old.logits) == (
                new.name, new.activations, new.logits,
            )  # fmt: skip
            assert new.working <= old.working
            assert new.working == old.working or not where.training.fused_gradients
        assert after.weights <= before.weights
        assert after.host <= before.host


@given(cases())
def test_recompute_never_raises_live_activations(drawn: tuple[Problem, Layout]) -> None:
    """Tests whole ranks: no recompute >= the drawn modules >= full recompute of every layer.

    The peak need not follow: what is recomputed is alive while its layer runs.
    """
    where, one = drawn
    chosen = dataclasses.replace(one, recompute_full=False)
    none = dataclasses.replace(chosen, recompute=())
    full = dataclasses.replace(none, recompute_full=True)
    ranks = (ranks_of(where, each) for each in (none, chosen, full))
    for plain, some, least in zip(*ranks, strict=True):
        sizes = [m.events[0].activations for m in (plain, some, least)]
        assert sizes == sorted(sizes, reverse=True)


# -- the loss --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("loss", "engine", "expected"),
    [
        ("native", (2, 16), 41104),  # 10 bytes a logit
        ("native", (2, 3), 41104),  # TE's version only matters to its own loss
        ("unfused", (2, 16), 25072),  # 6
        ("te", (2, 16), 25072),  # 6
        ("te", (2, 15), 9040),  # in place: 2
    ],
)
def test_logits_by_cross_entropy(loss: str, engine: tuple[int, ...], expected: int) -> None:
    """Tests Llama at 8192 tokens: 8192 * (n*128256 + 8*4096) bytes = (n*128256 + 32768)/32 quanta.

    8h a token are the final norm and the gathered hidden states.
    """
    where = trained(problem("llama-3.1-8b", transformer_engine=engine), cross_entropy=loss)
    assert loss_working(where, 1, 8192) == expected


@pytest.mark.parametrize(
    ("loss", "engine", "kept"),
    [("native", (2, 16), 4), ("unfused", (2, 16), 4), ("te", (2, 16), 2), ("te", (2, 15), 2)],
)
def test_logits_of_mtp_layers_stay(loss: str, engine: tuple[int, ...], kept: int) -> None:
    """Tests that each MTP step keeps its logits: 4096 * 32000 * n bytes = 500*n quanta."""
    where = trained(problem("toy-moe", transformer_engine=engine), cross_entropy=loss)
    sizes = []
    for steps in (0, 1, 2):
        model = card("toy-moe", mtp_layers=steps)
        sizes.append(loss_working(dataclasses.replace(where, model=model), 1, 4096))
    assert [b - a for a, b in itertools.pairwise(sizes)] == [500 * kept, 500 * kept]


def test_logits_need_the_loss_stage_only() -> None:
    """Tests that a long vocabulary makes the last of two ranks peak at the loss, not the first."""
    wide = problem(card("toy-moe", vocab=256_000))
    first, last = ranks_of(wide, laid_out(wide, (3, 3)))
    assert (first.event, last.event) == ("backward", "loss")
    assert last.logits == loss_working(wide, 1, 4096)
    assert last.working == 0


# -- weight gradients ------------------------------------------------------------------------------


def test_fused_accumulation_keeps_dummy_gradients() -> None:
    """Tests Llama in bf16, one of each shape: 2*(4096*(2*4096+2*1024) + 3*4096*14336) bytes.

    That is 1664 quanta; the output layer's 2*128256*4096 bytes are 4008 on the loss stage.
    """
    assert dummy_gradients(LLAMA, 1, 1) == 1664
    assert output_dummy_gradient(LLAMA, 1) == 4008
    assert dummy_gradients(LLAMA, 4, 1) == 1664 // 4
    first, last = ranks_of(LLAMA, laid_out(LLAMA, (16, 16)))
    assert last.overhead - first.overhead == 4008


def test_unfused_accumulation_makes_gradients_at_work() -> None:
    """Tests the bf16 gradient of fc1: 2 * 2*14336*4096 bytes = 896 quanta, and no dummies."""
    plain = trained(LLAMA, fused_gradients=False)
    assert dummy_gradients(plain, 1, 1) == output_dummy_gradient(plain, 1) == 0
    work = [dense_mlp_working(where, 1, 4096, 0, 0) for where in (LLAMA, plain)]
    assert work[1] - work[0] == 896
    first, last = ranks_of(plain, laid_out(plain, (16, 16)))
    assert last.overhead == first.overhead


@pytest.mark.parametrize(
    ("tokens", "more"),
    [
        (1024, 0),  # the loss needs 10 bytes a logit, the product after it 2 + 2*4096/1024 = 10
        (512, 2004),  # 2 + 2*4096/512 = 18 bytes: 8 more for each of 512*128256 logits
        (256, 3006),  # 34 bytes: 24 more
        (8192, 0),  # 3 bytes
    ],
)
def test_unfused_accumulation_makes_the_output_gradient_after_the_loss(
    tokens: int, more: int
) -> None:
    """Tests Llama, native: inside the loss, or with the gradient of the whole output weight."""
    plain = trained(LLAMA, fused_gradients=False)
    assert loss_working(plain, 1, tokens) - loss_working(LLAMA, 1, tokens) == more


def test_unfused_accumulation_makes_gradients_of_all_local_experts() -> None:
    """Tests fc1 of toy-moe, 8 experts of 1024 x 1024, gated: 2 * 8*2*1024*1024 = 128 quanta.

    With 16 tokens, topk 2: beside it 32 copies of 2*2*1024 + 2*1024 bytes, instead of 7*1024.
    At 4096 tokens on 8 ranks 7*1024 a copy outweigh 6*1024 and the 16 quanta.
    """
    plain = trained(TOY, fused_gradients=False)
    arguments = (1, "alltoall", 0, 0, 0, 0, 0)

    def more(tokens: int, ep: int) -> int:
        fused, unfused = (moe_working(w, tokens, ep, *arguments) for w in (TOY, plain))
        return unfused - fused

    assert TOY.model.topk == 2
    assert more(16, 1) == 128
    assert more(4096, 8) == 0


# -- a layout --------------------------------------------------------------------------------------


def test_peak_is_that_of_the_heaviest_rank() -> None:
    """Tests 5 layers before 1: the peak is the first rank's, not the mean of both."""
    one = laid_out(TOY, (5, 1))
    spent = cost(TOY, one)
    peaks = [rank_memory(TOY, one, rank).peak for rank in range(2)]
    assert [memory.peak for memory in spent.ranks] == peaks
    assert spent.peak == max(peaks) == peaks[0] > sum(peaks) / 2


def _limited(hbm: int, host: int = 1 << 20) -> Problem:
    """A problem whose GPU may use ``hbm`` quanta, and whose rank ``host`` quanta of its node."""
    node = TOY.node_type.model_copy(
        update={
            "hbm_gib": hbm / QUANTA_PER_GIB,
            "host_memory_gib": host / QUANTA_PER_GIB * TOY.node_type.gpus_per_node,
        }
    )
    limits = dataclasses.replace(TOY.limits, memory_headroom=0.0)
    cluster = dataclasses.replace(TOY.cluster, node_type=node)
    return dataclasses.replace(TOY, cluster=cluster, limits=limits)


def test_verdict_of_the_gpus() -> None:
    """Tests 10000 quanta: 95 % of it fit, up to 5 % more is tight, beyond that is overfull.

    The heaviest rank decides.  Nothing is tight beyond what the GPU has.
    """
    where = _limited(10_000)
    assert (where.capacity, TIGHT_SHARE) == (10_000, 0.05)
    peaks = (0, 9500, 9501, 10_000, 10_500, 10_501)
    found = [verdict(where, [_rank(1), _rank(peak), _rank(2)]) for peak in peaks]
    assert found == ["fits", "fits", "tight", "tight", "overfull", "overfull"], "no headroom"
    found = [verdict_of(peak, 10_000, 11_000) for peak in peaks]
    assert found == ["fits", "fits", "tight", "tight", "tight", "overfull"]


def test_a_checkpoint_is_no_longer_than_a_chunk() -> None:
    """Tests that checkpoints of more layers than a chunk has are those of the whole chunk.

    Two layers on each of two ranks; with three and 99 layers a checkpoint both hold as with two.
    """

    def ranks(number: int) -> list[RankMemory]:
        training = dataclasses.replace(TOY.training, recompute_layers=number)
        where = dataclasses.replace(TOY, training=training)
        slots = balanced_slots(where, 2, 1)
        layout = Layout(pp=2, slots=slots, recompute_full=True, gbs=8, ga=8)
        return [rank_memory(where, layout, rank) for rank in range(2)]

    most = max(slot.count for slot in balanced_slots(TOY, 2, 1))
    assert [one.peak for one in ranks(99)] == [one.peak for one in ranks(most)]
    assert ranks(most)[0].working > ranks(1)[0].working


def test_verdict_of_the_hosts() -> None:
    """Tests a rank's share of 8000 quanta: 80 % of 10000, the node's rest is reserved.

    A quantum more on one rank's host is overfull, whatever room the GPU has.
    """
    where = _limited(10_000, host=10_000)
    assert (where.host_capacity, HOST_RESERVE) == (8000, 0.2)
    room, full = [_rank(1, host=8000), _rank(1)], [_rank(1), _rank(1, host=8001)]
    assert (verdict(where, room), fills_host(where, room)) == ("fits", False)
    assert (verdict(where, full), fills_host(where, full)) == ("overfull", True)
