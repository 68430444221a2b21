from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshplan.constraints.groups import DEFAULT_ORDER, KINDS, ORDERS, RankGroups, rank_groups
from meshplan.constraints.layout import Layout

PP_BEFORE_DP = ORDERS[1]


def mesh(world: int, tp: int = 1, cp: int = 1, pp: int = 1, ep: int = 1, etp: int = 1) -> Layout:
    """A layout whose ``dp`` and ``edp`` are what the other degrees leave of ``world`` GPUs."""
    dp, rest = divmod(world, tp * cp * pp)
    edp, expert_rest = divmod(world, etp * ep * pp)
    assert rest == expert_rest == 0
    return Layout(tp=tp, cp=cp, pp=pp, dp=dp, ep=ep, etp=etp, edp=edp)


def stage(groups: tuple[tuple[int, ...], ...], size: int) -> tuple[tuple[int, ...], ...]:
    """Groups that lie inside the first ``size`` ranks."""
    return tuple(group for group in groups if max(group) < size)


def test_experts_fold_over_tensor_and_context_parallelism() -> None:
    """Tests 16 GPUs, TP2 CP2 DP2 PP2 and EP4: an EP group is a whole tp*cp block of a stage."""
    groups = rank_groups(mesh(16, tp=2, cp=2, pp=2, ep=4))
    assert stage(groups.tp, 8) == ((0, 1), (2, 3), (4, 5), (6, 7))
    assert stage(groups.cp, 8) == ((0, 2), (1, 3), (4, 6), (5, 7))
    assert stage(groups.dp, 8) == ((0, 4), (1, 5), (2, 6), (3, 7))
    assert stage(groups.dp_cp, 8) == ((0, 2, 4, 6), (1, 3, 5, 7))
    assert stage(groups.tp_cp, 8) == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert stage(groups.ep, 8) == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert stage(groups.edp, 8) == ((0, 4), (1, 5), (2, 6), (3, 7))
    assert groups.etp == tuple((rank,) for rank in range(16))
    # The second stage is the first, 8 ranks on.
    assert groups.pp == tuple((rank, rank + 8) for rank in range(8))
    for kind in ("tp", "cp", "dp", "dp_cp", "ep", "edp"):
        assert groups.kind(kind)[-1] == tuple(r + 8 for r in stage(groups.kind(kind), 8)[-1])


def test_expert_tensor_parallelism_takes_the_neighbours() -> None:
    """Tests the same with EP2 ETP2: ETP has the TP groups, EP the CP groups, 4 ranks dispatch."""
    groups = rank_groups(mesh(16, tp=2, cp=2, pp=2, ep=2, etp=2))
    assert groups.etp == groups.tp
    assert groups.ep == groups.cp
    assert groups.etp_ep == groups.tp_cp


def test_pipeline_before_data() -> None:
    """Tests the other order, TP2 DP4 PP2: stages alternate inside a node, DP has stride 4."""
    layout = Layout(tp=2, dp=4, pp=2, etp=2, edp=4)
    groups = rank_groups(layout, PP_BEFORE_DP)
    assert groups.tp[:2] == ((0, 1), (2, 3))
    assert groups.pp[:3] == ((0, 2), (1, 3), (4, 6))
    assert groups.dp[:2] == ((0, 4, 8, 12), (1, 5, 9, 13))
    assert groups.edp == groups.dp


def test_one_stage_is_one_group() -> None:
    """Tests DeepSeek-V3 at CP32 EP32 PP8 on 256: cp, dp_cp, ep and etp_ep are one stage each."""
    groups = rank_groups(mesh(256, cp=32, pp=8, ep=32))
    stages = tuple(tuple(range(first, first + 32)) for first in range(0, 256, 32))
    assert groups.cp == groups.dp_cp == groups.ep == groups.etp_ep == stages
    assert groups.pp == tuple(tuple(range(rank, 256, 32)) for rank in range(32))
    assert groups.dp == groups.edp == tuple((rank,) for rank in range(256))


def test_expert_groups_span_data_parallel_replicas() -> None:
    """Tests Qwen3-235B, TP4 CP4 PP4 EP32 on 128: DP is 2, and an EP group spans both replicas."""
    layout = mesh(128, tp=4, cp=4, pp=4, ep=32)
    assert (layout.dp, layout.edp) == (2, 1)
    groups = rank_groups(layout)
    assert groups.ep[0] == tuple(range(32))
    assert groups.tp_cp[:2] == (tuple(range(16)), tuple(range(16, 32)))
    assert groups.dp[0] == (0, 16)


def random_mesh(seed: int, largest: int) -> tuple[Layout, str]:
    """A random pair of grids over at most ``largest`` ranks, and an order that they allow."""
    draw = random.Random(seed)

    def split(number: int, parts: int) -> list[int]:
        sizes = []
        for _ in range(parts):
            sizes.append(draw.choice([d for d in range(1, number + 1) if number % d == 0]))
            number //= sizes[-1]
        return [*sizes, number]

    block = draw.randint(1, max(1, largest // 4))
    pp = draw.randint(1, largest // block)
    tp, cp, dp = split(block, 2)
    etp, ep, edp = split(block, 2)
    layout = Layout(tp=tp, cp=cp, dp=dp, pp=pp, etp=etp, ep=ep, edp=edp)
    order = draw.choice(ORDERS) if pp == 1 or dp == edp else DEFAULT_ORDER
    return layout, order


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 1 << 30))
def test_each_kind_partitions_the_ranks(seed: int) -> None:
    """Tests that each rank is in one group of each kind, and that groups have their degree."""
    layout, order = random_mesh(seed, 96)
    groups = rank_groups(layout, order)
    for kind, axes in KINDS.items():
        found = groups.kind(kind)
        size = 1
        for axis in axes:
            size *= int(layout.value(axis))
        assert {len(group) for group in found} == {size}
        assert sorted(rank for group in found for rank in group) == list(range(layout.gpus))
        assert all(list(group) == sorted(group) for group in found)


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 1 << 30))
def test_groups_of_a_rank_are_those_of_the_lists(seed: int) -> None:
    """Tests that the arithmetic for one rank and the whole lists agree for every rank."""
    layout, order = random_mesh(seed, 64)
    groups = rank_groups(layout, order)
    where = {kind: {rank: group for group in groups.kind(kind) for rank in group} for kind in KINDS}
    for rank in range(layout.gpus):
        assert groups.groups_of(rank) == {kind: where[kind][rank] for kind in KINDS}


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 1 << 30))
def test_both_grids_share_stages(seed: int) -> None:
    """Tests the fold identity tp*cp*dp == etp*ep*edp: no expert group leaves its stage."""
    layout, order = random_mesh(seed, 64)
    assert layout.tp * layout.cp * layout.dp == layout.etp * layout.ep * layout.edp
    groups = rank_groups(layout, order)
    stage_of = {rank: s for group in groups.pp for s, rank in enumerate(group)}
    for kind in ("etp_ep", "edp", "ep", "tp_cp", "dp_cp"):
        for group in groups.kind(kind):
            assert len({stage_of[rank] for rank in group}) == 1


def test_largest_cluster() -> None:
    """Tests 131,072 GPUs: the groups of the last rank end with it, where they are blocks."""
    groups = rank_groups(mesh(131_072, tp=8, cp=16, pp=16, ep=64))
    last = groups.groups_of(131_071)
    assert last["tp"] == tuple(range(131_064, 131_072))
    assert last["ep"] == tuple(range(131_008, 131_072))
    assert last["pp"] == tuple(range(8191, 131_072, 8192))
    assert len(last["dp_cp"]) == 1024  # 131072 / (8*16)
    assert sum(map(len, groups.edp)) == 131_072


def test_no_kinds_are_built_before_they_are_asked_for() -> None:
    """Tests that groups_of keeps no lists: a report on a few ranks costs next to nothing."""
    groups = rank_groups(mesh(64, tp=2, pp=2, ep=4))
    groups.groups_of(5)
    assert not set(KINDS) & set(vars(groups))
    assert groups.tp is groups.tp


@pytest.mark.parametrize(
    ("layout", "order", "part"),
    [
        (Layout(tp=2, dp=4, ep=2, edp=2), DEFAULT_ORDER, "2\\*1\\*4\\*1 = 8.*1\\*2\\*2\\*1 = 4"),
        (Layout(tp=2, dp=4, edp=8, pp=2), PP_BEFORE_DP, "dp = 4, edp = 8, pp = 2"),
        (Layout(), "pp-tp-cp-ep-dp", "none of tp-cp-ep-dp-pp and tp-cp-ep-pp-dp"),
    ],
)
def test_impossible_grids_are_refused(layout: Layout, order: str, part: str) -> None:
    """Tests grids of two sizes, the other order with dp != edp, and an order nobody offers."""
    with pytest.raises(ValueError, match=part):
        RankGroups(layout, order)


def test_other_order_without_pipeline_allows_any_expert_grid() -> None:
    """Tests that dp != edp is fine in the other order when there is one stage only."""
    groups = rank_groups(mesh(8, tp=2, ep=4), PP_BEFORE_DP)
    assert groups.ep == ((0, 1, 2, 3), (4, 5, 6, 7))


def test_unknown_ranks_and_kinds_are_refused() -> None:
    """Tests rank 8 of 8, rank -1, and a kind that does not exist."""
    groups = rank_groups(mesh(8))
    for rank in (-1, 8):
        with pytest.raises(IndexError, match="8 ranks 0 to 7"):
            groups.groups_of(rank)
    with pytest.raises(KeyError):
        groups.kind("world")
