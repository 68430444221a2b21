"""Weights, gradients and optimizer state: formats, sharding, and the optimizer step."""

from __future__ import annotations

import dataclasses
import itertools
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshplan.constraints.layout import Layout
from meshplan.constraints.memory.formats import (
    host_optimizer_bytes,
    master_bytes,
    optimizer_bytes,
    update_bytes,
)
from meshplan.constraints.memory.stage import rank_memory
from meshplan.constraints.memory.static import dense_static, expert_static, mtp_dense_static
from meshplan.constraints.pipeline import balanced_slots
from meshplan.constraints.problem import QUANTUM_BYTES, Problem, Training
from meshplan.scenarios.cards import card_names
from meshplan.scenarios.model_card import LayerKind
from meshplan.scenarios.parameters import total_parameters
from tests.constraints.factories import card, problem
from tests.constraints.memory_layouts import cases, laid_out, parts_of, ranks_of, trained

TOY = problem("toy-moe")
DENSE, MOE = LayerKind("gqa", "dense"), LayerKind("gqa", "moe")
#: bf16 moments make the precision-aware optimizer the default.
SMALL = trained(TOY, moment_bytes=2)

# -- no state is lost ------------------------------------------------------------------------------


@st.composite
def _meshes(draw: st.DrawFn) -> tuple[Problem, Layout]:
    """A shipped card on a mesh whose two foldings cover the same GPUs."""
    name = draw(st.sampled_from(card_names()))
    tp, cp, dp, pp = (draw(st.sampled_from((1, 2, 4))) for _ in range(4))
    stage = tp * cp * dp
    where = problem(name, gpus=stage * pp, training=Training(**draw(_RECIPES)))
    ep = draw(st.sampled_from([n for n in (1, 2, 4, 8) if stage % n == 0]))
    ep = ep if where.model.is_moe else 1
    etp = draw(st.sampled_from([n for n in (1, 2) if stage % (ep * n) == 0]))
    layout = Layout(
        tp=tp, cp=cp, dp=dp, pp=pp, ep=ep, etp=etp, edp=stage // (ep * etp), ga=8, gbs=8 * dp,
        slots=balanced_slots(where, pp, 1),
    )  # fmt: skip
    return where, layout


_RECIPES: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "gradient_bytes": st.sampled_from((2, 4)),
        "moment_bytes": st.sampled_from((2, 4)),
        "distributed_optimizer": st.booleans(),
    }
)


@given(_meshes())
def test_static_state_is_never_below_its_share(drawn: tuple[Problem, Layout]) -> None:
    """Tests that all GPUs together hold the model's state at least once.

    Each GPU of a stage holds what its rank holds, so a mean GPU holds the sum over the ranks / pp.
    In bf16 a parameter has 2 bytes of weight, its gradient, and master and two moments:
    no layout may hold less than total/N of that, N being all GPUs.
    """
    where, layout = drawn
    each = 2 + where.training.gradient_bytes + optimizer_bytes(where, 0)
    whole = Fraction(total_parameters(where.model, with_mtp=True)) * Fraction(each)
    ranks = ranks_of(where, layout)
    mean = Fraction(sum(m.weights + m.gradients + m.optimizer for m in ranks), layout.pp)
    assert mean * QUANTUM_BYTES >= whole / layout.gpus


@given(_meshes(), st.sampled_from((2, 4)))
def test_more_dp_shrinks_sharded_state_only(drawn: tuple[Problem, Layout], more: int) -> None:
    """Tests that DP and EDP divide optimizer, host and update, and nothing else per layer."""
    where, layout = drawn
    wider = dataclasses.replace(layout, dp=layout.dp * more, edp=layout.edp * more)
    for before, after in zip(ranks_of(where, layout), ranks_of(where, wider), strict=True):
        assert (after.weights, after.gradients) == (before.weights, before.gradients)
        assert after.optimizer <= before.optimizer
        assert after.host <= before.host
        old = {event.name: event for event in before.events}
        for event in after.events:
            assert event.update <= old[event.name].update
            assert dataclasses.replace(event, update=0) == dataclasses.replace(
                old[event.name], update=0
            )


@pytest.mark.parametrize("offload", [0, 50, 100])
@pytest.mark.parametrize("part", ["optimizer", "host", "update_dense", "update_expert"])
def test_unsharded_optimizer_is_that_of_one_rank(part: str, offload: int) -> None:
    """Tests that without the distributed optimizer DP, CP and EDP divide nothing."""
    whole = trained(SMALL, distributed_optimizer=False)
    for kind in TOY.kinds:
        alone = dense_static(SMALL, part, kind, 1, 1, 1, offload)
        assert dense_static(whole, part, kind, 1, 2, 4, offload) == alone
        alone = expert_static(SMALL, part, kind, 2, 1, 1, offload)
        assert expert_static(whole, part, kind, 2, 1, 4, offload) == alone


@pytest.mark.parametrize(("ep", "etp", "edp"), [(1, 1, 8), (2, 2, 2), (8, 1, 1), (4, 1, 2)])
def test_experts_are_divided_by_ep_etp_and_edp(ep: int, etp: int, edp: int) -> None:
    """Tests one layer: 8 experts of 3*1024*1024 = 25165824 parameters; 2 bytes = 192 quanta.

    Weights 2, fp32 gradients 4 bytes over ep*etp; optimizer 12 bytes over ep*etp*edp as well.
    """
    shard = ep * etp
    assert expert_static(TOY, "weights", MOE, ep, etp, edp, 0) == 192 // shard
    assert expert_static(TOY, "gradients", MOE, ep, etp, edp, 0) == 384 // shard
    assert expert_static(TOY, "optimizer", MOE, ep, etp, edp, 0) == 1152 // shard // edp
    assert expert_static(TOY, "host", MOE, ep, etp, edp, 100) == 1536 // shard // edp
    assert expert_static(SMALL, "update_expert", MOE, ep, etp, edp, 0) == 768 // shard // edp


def test_repeated_mtp_layers_are_held_once() -> None:
    """Tests that two MTP steps that share a layer hold the state of one, embedding copy included.

    With pp = 2 the copy is 32000 x 1024 x 2 bytes = 250 quanta of weights either way.
    """
    one = problem(card("toy-moe", mtp_layers=1))
    shared = problem(card("toy-moe", mtp_layers=2, mtp_repeated=True))
    two = problem(card("toy-moe", mtp_layers=2))
    sizes = [mtp_dense_static(where, "weights", 1, 1, 1, 2, 0) for where in (one, shared, two)]
    assert sizes[0] == sizes[1]
    assert sizes[2] - sizes[0] == pytest.approx(sizes[0] - 250, abs=1)


# -- formats ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "aware", "offload", "expected"),
    [
        ({}, True, 0, 2.0),
        ({}, False, 0, 4.0),  # the plain optimizer keeps whole fp32 masters
        ({}, None, 0, 4.0),  # fp32 moments: nothing asks for the precision-aware one
        ({}, True, 100, 4.0),  # HybridDeviceOptimizer keeps whole fp32 masters
        ({"precision": "fp8-tensor"}, True, 0, 2.0),
        ({"precision": "fp8-block"}, True, 0, 4.0),
        ({"precision": "mxfp8"}, True, 0, 4.0),
        ({"transformer_engine": (2, 0)}, True, 0, 4.0),
        ({"transformer_engine": (2, 1)}, True, 0, 2.0),
    ],
)
def test_master_weights_are_remainders(
    changes: dict[str, Any], aware: bool | None, offload: int, expected: float
) -> None:
    """Tests where a bf16 weight is the upper half of its master: 2 bytes are left to keep, not 4.

    Precision-aware optimizer, no offload, bf16 or delayed scaling, Transformer Engine >= 2.1.
    """
    where = problem(training=Training(precision_aware=aware), **changes)
    assert master_bytes(where, offload) == expected


def test_remainders_can_be_switched_off() -> None:
    """Tests an explicit false: 4 + 2*2 = 8 bytes a parameter and not 2 + 4 = 6."""
    assert optimizer_bytes(SMALL, 0) == 6
    assert optimizer_bytes(trained(SMALL, param_remainders=False), 0) == 8


@pytest.mark.parametrize(
    ("aware", "offload", "gpu", "host"),
    [
        (False, 0, 12.0, 0.0),  # master 4, moments 2*4
        (False, 50, 8.0, 8.0),  # the master stays, half of the moments does
        (False, 100, 4.0, 16.0),
        (None, 50, 6.0, 8.0),  # precision-aware: half of 12
        (None, 100, 0.0, 16.0),  # host: copies of weight and gradient, two moments, 4 bytes each
    ],
)
def test_optimizer_state_on_gpu_and_host(
    aware: bool | None, offload: int, gpu: float, host: float
) -> None:
    """Tests bytes of a parameter with fp32 moments, by offload and optimizer."""
    where = trained(TOY, precision_aware=aware)
    assert (optimizer_bytes(where, offload), host_optimizer_bytes(where, offload)) == (gpu, host)


# -- the optimizer step ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("training", "offload", "expected"),
    [
        (Training(), 0, (0.0, 0.0)),  # all fp32: nothing to cast
        (Training(moment_bytes=2), 0, (8.0, 0.0)),  # two fp32 moments of one group at a time
        (Training(moment_bytes=2, gradient_bytes=2), 0, (8.0, 0.0)),
        (Training(moment_bytes=2), 50, (4.0, 0.0)),
        (Training(moment_bytes=2), 100, (0.0, 0.0)),  # the host updates
        (Training(gradient_bytes=2), 0, (4.0, 4.0)),  # fp32 copies of all gradients at once
        (Training(gradient_bytes=2, precision_aware=False), 100, (0.0, 0.0)),
        (Training(gradient_bytes=2, precision_aware=True), 0, (0.0, 0.0)),
    ],
)
def test_bytes_of_the_optimizer_step(
    training: Training, offload: int, expected: tuple[float, float]
) -> None:
    """Tests bytes of an owned parameter of the group in update, and of the other group."""
    assert update_bytes(problem(training=training), offload) == expected


def test_casts_of_moments_come_one_group_after_the_other() -> None:
    """Tests 8 bytes of a parameter for dense parameters, then for routed experts (toy-moe, dp 8).

    Dense: a dense layer has 4*1024*1024 - 1024*1024 + 3*1024*4096 + 2*1024 = 15730688, times 8
    over 8 ranks 60.01, so 61 quanta; 5 MoE layers 3145728 + 2048 + 8*1024 = 3155968 each: 12.04,
    so 13; embedding 32000*1024: 125, output with its norm 126.
    Experts: 5 * 8 * 3*1024*1024 * 8 bytes = 768 quanta each, over edp = 4 and ep = 2: 96.
    """
    memory = rank_memory(SMALL, laid_out(SMALL, (6,), dp=8, ep=2, edp=4), 0)
    events = {event.name: event for event in memory.events}
    assert list(events) == ["backward", "loss", "update_dense", "update_expert"]
    assert events["update_dense"].total == events["update_dense"].update == 61 + 5 * 13 + 125 + 126
    assert events["update_expert"].total == events["update_expert"].update == 5 * 96


def test_copies_of_gradients_are_there_for_both_groups() -> None:
    """Tests 4 bytes of every parameter at both events with bf16 gradients, half of the casts.

    Rounded up term by term: 31 + 5*7 + 2*63 dense and 5*48 of the experts.
    """
    where = trained(TOY, gradient_bytes=2)
    memory = rank_memory(where, laid_out(where, (6,), dp=8, ep=2, edp=4), 0)
    sizes = {event.name: event.update for event in memory.events if event.update}
    both = 31 + 5 * 7 + 2 * 63 + 5 * 48
    assert sizes == {"update_dense": both, "update_expert": both}


@pytest.mark.parametrize("offload", [0, 100])
def test_step_without_casts_is_no_event(offload: int) -> None:
    """Tests that fp32 state, or a step on the host, adds nothing: no event of its own."""
    where = TOY if offload == 0 else SMALL
    memory = rank_memory(where, laid_out(where, (6,), offload=offload), 0)
    assert [event.name for event in memory.events] == ["backward", "loss"]


def test_optimizer_step_can_make_the_peak() -> None:
    """Tests short sequences: casts of 8 bytes for the 126 M expert parameters beat activations.

    5 * 768 quanta of casts; parts besides the update are 0 but for what is resident.
    """
    where = dataclasses.replace(SMALL, seq_len=256)
    memory = rank_memory(where, laid_out(where, (6,)), 0)
    assert (memory.event, memory.update) == ("update_expert", 5 * 768)
    assert memory.activations == memory.logits == memory.working == 0
    assert memory.peak == memory.resident + memory.outside + 5 * 768


# -- offload ---------------------------------------------------------------------------------------


@given(cases())
def test_more_offload_never_raises_gpu_memory(drawn: tuple[Problem, Layout]) -> None:
    """Tests 0, 50 and 100 % of the optimizer on the host: less on the GPU, more on the host."""
    where, layout = drawn
    found = [ranks_of(where, dataclasses.replace(layout, offload=o)) for o in (0, 50, 100)]
    for less, more in itertools.pairwise(found):
        for before, after in zip(less, more, strict=True):
            assert after.peak <= before.peak
            assert after.optimizer <= before.optimizer
            assert after.host >= before.host
            kept = ("weights", "gradients", "overhead")
            assert {k: parts_of(after)[k] for k in kept} == {k: parts_of(before)[k] for k in kept}
