"""Orders of segments in which stage borders are segment borders, against all orders."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from meshplan.solver.placement.borders import grouped


def _borders(sizes: tuple[int, ...], stage: int) -> int:
    """Stage borders inside the ranks that are borders of segments laid out in this order."""
    ends = list(itertools.accumulate(sizes))[:-1]
    return sum(1 for end in ends if end % stage == 0)


@st.composite
def segments(draw: st.DrawFn) -> tuple[list[int], int]:
    """Up to 6 segments that hold whole stages together."""
    stage = draw(st.integers(1, 12))
    sizes = draw(st.lists(st.integers(1, 18), min_size=1, max_size=6))
    sizes[-1] += -sum(sizes) % stage
    return sizes, stage


@given(segments())
def test_no_order_of_few_segments_has_more_borders(drawn: tuple[list[int], int]) -> None:
    """Tests groups and bound against every permutation."""
    sizes, stage = drawn
    found = grouped(sizes, stage)
    assert sorted(found.order) == list(range(len(sizes)))
    for group in found.groups:
        assert sum(sizes[index] for index in group) % stage == 0
    best = max(_borders(order, stage) for order in itertools.permutations(sizes))
    assert _borders(tuple(sizes[index] for index in found.order), stage) == best
    assert len(found.groups) - 1 == best
    assert found.bound == len(found.groups)


def test_two_hundred_racks_in_sixteen_stages_are_proved() -> None:
    """Tests racks of 72, 64, 56 and 40 GPUs: every stage gets whole racks."""
    sizes = [72] * 96 + [64] * 64 + [56] * 16 + [40] * 16
    stage = sum(sizes) // 16
    assert stage == 6 * 72 + 4 * 64 + 56 + 40
    found = grouped(sizes, stage)
    assert len(found.groups) == found.bound == 16


def test_many_groups_are_bounded_where_no_program_is_solved() -> None:
    """Tests 3,000 segments of 1 and 2 in stages of 3: pairs are found to be the best or bounded."""
    found = grouped([1, 2] * 1500, 3)
    assert sorted(found.order) == list(range(3000))
    # Three of 1 and three of 2 make whole stages; 1 + 2 would make more, which the bound says.
    assert (len(found.groups), found.bound) == (1000, 1500)
