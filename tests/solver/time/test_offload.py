from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshplan.constraints.layout import Layout
from meshplan.constraints.pipeline import slots_from_rank_counts
from meshplan.constraints.problem import QUANTUM_BYTES, Problem, Training
from meshplan.solver.breakdown import step_breakdown_us
from meshplan.solver.time.offload import transfers_us, with_transfers_us
from meshplan.solver.time.step import step_time
from tests.constraints.factories import problem
from tests.solver.time.legal_layouts import with_links

LAYOUT = Layout(ga=8, gbs=8, slots=slots_from_rank_counts((6,), 1))


def offloading(*modules: str, preset: str = "h100-hgx") -> Problem:
    """The toy mixture of experts with these modules' activations on the host."""
    return problem("toy-moe", preset, training=Training(activation_offload=modules))


def step_us(where: Problem) -> int:
    """Step of all six layers on one GPU, eight micro-batches."""
    return step_time(where, LAYOUT).step_us


def test_copies_are_at_the_rates_of_memory_and_link() -> None:
    """Tests 256 MiB on H100: over PCIe at 50 GB/s in 5369 us, twice through 3.35 TB/s of HBM.

    Elementwise work reaches 0.29 * 1.35 of that, so the two copies take 410 us.
    """
    eff = offloading().calibration.parameters
    copies, way = transfers_us(offloading(), 256 * 2**20 // QUANTUM_BYTES)
    assert way == 5369
    rate = 3.35e6 * eff.memory * eff.memory_hopper_factor
    assert copies == math.ceil(2 * 256 * 2**20 / rate)


@pytest.mark.parametrize(
    ("way", "expected"),
    [
        (0, 310),  # only what the copies take
        (103, 310),  # hidden: forward takes 104, a third
        (150, 356),  # forward waits for 150 instead of 104
        (400, 800),  # both wait
    ],
)
def test_what_a_pass_does_not_hide_is_waited_for(way: int, expected: int) -> None:
    """Tests a layer of 300 us whose copies take 10 us of the memory: 104 forward, 206 backward."""
    assert with_transfers_us(300, 10, way) == expected


@given(*[st.integers(0, 10**6)] * 4)
def test_more_work_or_more_to_move_is_never_faster(
    layer: int, copies: int, way: int, more: int
) -> None:
    """Tests what the bounds of the search rest on: least parts give a least time."""
    time = with_transfers_us(layer, copies, way)
    assert time >= max(layer, 2 * way)
    assert with_transfers_us(layer + more, copies, way) >= time
    assert with_transfers_us(layer, copies + more, way) >= time
    assert with_transfers_us(layer, copies, way + more) >= time


def test_offload_costs_time_and_more_of_it_over_a_slow_link() -> None:
    """Tests that offload is no free choice: its own part of the step, and the link's rate."""
    plain, moved = step_us(offloading()), offloading("expert_fc1", "moe_act")
    assert step_us(moved) > plain
    parts = step_breakdown_us(moved, LAYOUT, step_time(moved, LAYOUT))
    assert parts["activation_offload"] == step_us(moved) - plain
    slow = with_links(moved, host_link_gbps=0.1)
    assert step_us(slow) > step_us(moved)
    full = dataclasses.replace(LAYOUT, recompute_full=True)
    assert step_time(moved, full).step_us == step_time(offloading(), full).step_us, (
        "full recompute leaves nothing to move"
    )
