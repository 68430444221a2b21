"""Process groups of random layouts: meshplan's lists against ``initialize_model_parallel``."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from meshplan.constraints.groups import rank_groups
from meshplan.constraints.layout import Layout
from tests.peer.client import Peer

pytestmark = pytest.mark.peer

#: Layouts that are compared, and their largest world.
LAYOUTS, WORLD = 300, 512
#: Kinds of groups that are compared, and megatron-core's names for their orders.
KINDS = ("tp", "cp", "dp", "dp_cp", "tp_cp", "pp", "ep", "etp", "etp_ep", "edp")
DEFAULT, PIPELINE_INSIDE = "tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"


def _divisor(rng: random.Random, number: int, most: int = 64) -> int:
    return rng.choice([n for n in range(1, min(number, most) + 1) if number % n == 0])


def _layouts() -> Iterator[tuple[int, Layout]]:
    """Layouts whose two grids cover the same ranks; worlds of any factors, up to 512."""
    rng = random.Random(512)
    found = 0
    while found < LAYOUTS:
        world = rng.choice((rng.randint(1, WORLD), 8 * rng.randint(1, 64), 2 ** rng.randint(3, 9)))
        pp = _divisor(rng, world, 16)
        tp = _divisor(rng, world // pp, 16)
        cp = _divisor(rng, world // pp // tp)
        etp = _divisor(rng, world // pp, 8)
        ep = _divisor(rng, world // pp // etp)
        dp, edp = world // (tp * cp * pp), world // (etp * ep * pp)
        found += 1
        yield world, Layout(tp=tp, cp=cp, pp=pp, dp=dp, ep=ep, etp=etp, edp=edp)


def _compare(peer: Peer, world: int, layout: Layout, order: str) -> None:
    degrees = {name: getattr(layout, name) for name in ("tp", "cp", "pp", "ep", "etp")}
    query = {"query": "rank_groups", "world": world, "order": order, **degrees}
    answer = peer.ask(query)
    assert answer["accept"], (query, answer)
    ours = rank_groups(layout, order)
    assert set(answer["groups"]) == set(KINDS)
    for kind, groups in answer["groups"].items():
        assert [list(group) for group in ours.kind(kind)] == groups, (kind, query)


def test_groups_of_random_layouts(peer: Peer) -> None:
    """Tests that all groups of 300 layouts are megatron-core's, in its order."""
    folded = 0
    for world, layout in _layouts():
        folded += layout.ep > layout.dp > 0 and layout.cp > 1
        _compare(peer, world, layout, DEFAULT)
    assert folded >= 30, "experts fold over context parallelism in many of them"


def test_groups_with_the_pipeline_inside(peer: Peer) -> None:
    """Tests the other order, on the layouts that it is allowed for: pp == 1 or dp == edp."""
    compared = 0
    for world, layout in _layouts():
        if layout.pp == 1 or layout.dp == layout.edp:
            _compare(peer, world, layout, PIPELINE_INSIDE)
            compared += 1
        else:
            with pytest.raises(ValueError, match="needs dp == edp"):
                rank_groups(layout, PIPELINE_INSIDE)
    assert compared >= 50


def test_the_pipeline_inside_is_refused_on_both_sides(peer: Peer) -> None:
    """Tests that megatron-core, too, refuses the order where the grids differ: dp 4, edp 2."""
    query = {"query": "rank_groups", "world": 16, "order": PIPELINE_INSIDE}
    answer = peer.ask({**query, "tp": 2, "cp": 1, "pp": 2, "ep": 4, "etp": 1})
    assert not answer["accept"]
