"""The formula of the pipeline's time, ``ga*B + (pp-1)*X``, against a simulation of each pass.

``B`` is the slowest slot of each chunk, added up (without interleaving: the slowest rank), ``X``
the slowest slot of all, forward and backward of one micro-batch.  What the step takes besides is
taken away, and the times of the slots are given.
"""

from __future__ import annotations

import dataclasses
import random
import statistics
from collections.abc import Sequence
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshplan.constraints.layout import Layout
from meshplan.constraints.pipeline import (
    parse_layout,
    slots_from_counts,
    slots_from_rank_counts,
)
from meshplan.solver.time import step
from meshplan.solver.time.step import STEP_OVERHEAD_US, step_time
from tests.constraints.factories import problem
from tests.solver.time.pipeline_simulation import makespan

WHERE = problem("toy-dense")
#: Backward takes twice as long as forward.
FORWARD = 1 / 3
SLOT_US = st.integers(100, 10_000)


def formula_us(slots_us: Sequence[int], pp: int, ga: int) -> int:
    """What the model says of a pipeline whose slots take so long."""
    slots = slots_from_counts([1] * len(slots_us))
    layout = Layout(pp=pp, vpp=len(slots) // pp, dp=1, ga=ga, gbs=ga, slots=slots)
    where = dataclasses.replace(
        WHERE, model=WHERE.model.model_copy(update={"layers": len(slots_us)})
    )
    with (
        mock.patch.object(step, "slots_us", lambda _, __: slots_us),
        mock.patch.object(step, "p2p_us", lambda problem: 0),
    ):
        time = step_time(where, layout)
    return time.step_us - time.exchange_us - time.optimizer_us - STEP_OVERHEAD_US


def simulated_us(slots_us: Sequence[float], pp: int, ga: int) -> float:
    """What the simulation says of it."""
    forward = [FORWARD * one for one in slots_us]
    backward = [one - part for one, part in zip(slots_us, forward, strict=True)]
    return makespan(forward, backward, pp, ga)


@st.composite
def pipelines(draw: st.DrawFn, *, interleaved: bool) -> tuple[list[int], int, int]:
    """Times of slots, ranks and micro-batches."""
    pp = draw(st.integers(2, 6))
    vpp = draw(st.integers(2, 4)) if interleaved else 1
    ga = pp * draw(st.integers(1, 4)) if interleaved else draw(st.integers(1, 24))
    return draw(st.lists(SLOT_US, min_size=pp * vpp, max_size=pp * vpp)), pp, ga


@pytest.mark.parametrize("vpp", [1, 2, 4])
@pytest.mark.parametrize(("pp", "groups"), [(2, 1), (3, 4), (8, 1), (8, 8), (16, 2)])
def test_equal_slots_are_exact(pp: int, vpp: int, groups: int) -> None:
    """Tests that with equal slots formula and simulation are the same."""
    slots = [900] * (pp * vpp)
    ga = pp * groups
    assert formula_us(slots, pp, ga) == 900 * (ga * vpp + pp - 1)
    assert simulated_us(slots, pp, ga) == pytest.approx(900 * (ga * vpp + pp - 1))


@given(pipelines(interleaved=False))
def test_plain_schedule_is_bounded_from_above(case: tuple[list[int], int, int]) -> None:
    """Tests 1F1B with any slots: the formula is never too low, by (pp-1)/ga too high at most.

    The slowest rank works ``ga*B``, and slower ones than B there are none to fill and drain.
    """
    simulated, formula = simulated_us(*case), formula_us(*case)
    _, pp, ga = case
    assert simulated * (1 - 1e-9) <= formula <= simulated * (1 + (pp - 1) / ga) + 1


@given(pipelines(interleaved=True))
def test_interleaved_schedule_is_between_its_limits(case: tuple[list[int], int, int]) -> None:
    """Tests any slots: at least the slowest rank's work, at most all slots as slow as the slowest.

    The formula lies between these two as well; which is larger, it or the simulation, depends.
    """
    slots, pp, ga = case
    vpp = len(slots) // pp
    least = ga * max(sum(slots[rank::pp]) for rank in range(pp))
    most = (ga * vpp + pp - 1) * max(slots)
    for time in (simulated_us(*case), formula_us(*case)):
        assert least * (1 - 1e-9) <= time <= most * (1 + 1e-9)


def searched_splits(rng: random.Random, *, fewest: int, spread: int) -> tuple[list[int], int, int]:
    """A split as the search makes them, in thousandths of a layer.

    Ranks differ by up to ``spread`` layers, chunks of a rank by one; the embedding counts a tenth
    of a layer and the loss up to 1.2.
    """
    pp, vpp = rng.choice((2, 3, 4, 8)), rng.choice((2, 3, 4))
    base = vpp * rng.randint(fewest, fewest + 3)
    layers = [base + rng.randint(0, spread) for _ in range(pp)]
    slots = [1000 * slot.count for slot in slots_from_rank_counts(layers, vpp)]
    slots[0] += 100
    slots[-1] += rng.randint(0, 1200)
    return slots, pp, pp * rng.choice((1, 2, 4, 8))


@pytest.mark.parametrize(
    ("fewest", "low", "middle", "high"),
    [(1, 0.92, 1.04, 1.29), (4, 0.99, 1.03, 1.11)],
    ids=["1 to 4 layers a chunk", "4 to 7 layers a chunk"],
)
def test_interleaved_formula_on_splits_of_the_search(
    fewest: int, low: float, middle: float, high: float
) -> None:
    """Tests 400 random splits: how far the formula is from the simulation, on either side.

    Too high where few micro-batches fill and drain through slots faster than the slowest, or where
    a rank that has less in one chunk catches up in another; too low where the chunks of all ranks
    grow alike, and forward passes of small ones meet backward passes of large ones.
    """
    rng = random.Random(2)
    cases = [searched_splits(rng, fewest=fewest, spread=2) for _ in range(400)]
    ratios = [formula_us(*case) / simulated_us(*case) for case in cases]
    assert low <= min(ratios)
    assert 1 <= statistics.median(ratios) <= middle
    assert max(ratios) <= high


def test_ranks_that_differ_by_chunk_wait() -> None:
    """Tests where the work of the slowest rank is far too little: DeepSeek-V3 on 8 ranks.

    Three dense layers of half the time lie in the first chunk, where the last rank has one layer,
    as it has MTP and loss, two layers' worth, at the end.  No rank has more than 8.1 layers in
    all, but those with less in one chunk wait there for those with more, and make them wait later:
    the simulated pipeline takes 8 % longer than that rank works.
    """
    slots = parse_layout("Et|(tt|)*6t|(tt|)*23tmL")
    assert len(slots) == 32 and sum(slot.count for slot in slots) == 61
    dense = range(3)
    layers = [
        sum(500 if layer in dense else 1000 for layer in range(slot.first, slot.first + slot.count))
        for slot in slots
    ]
    layers[-1] += 2100
    assert max(sum(layers[rank::8]) for rank in range(8)) == 8100
    simulated = simulated_us(layers, 8, 256)
    assert 1.07 <= simulated / (256 * 8100 + 7 * 3100) <= 1.09
    assert 1.0 <= formula_us(layers, 8, 256) / simulated <= 1.04
