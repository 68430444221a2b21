from __future__ import annotations

import itertools

import pytest

from meshplan.constraints.layout import Slot
from meshplan.constraints.pipeline import kind_counts, parse_layout, rank_slots
from meshplan.constraints.problem import Problem
from meshplan.solver.rank_tables import rank_tables
from meshplan.solver.shapes import Shape, free_shapes, least_layers, main_kind, most_layers
from tests.constraints.factories import card, problem
from tests.solver.oracle import splits

GDN = {
    "gdn_key_heads": 8, "gdn_value_heads": 8, "gdn_key_dim": 128, "gdn_value_dim": 128,
    "gdn_conv": 4,
}  # fmt: skip
SHAPES = [(2, 1), (2, 2), (2, 3), (3, 1), (3, 2), (4, 1), (4, 2), (5, 1), (8, 1)]


def _models() -> dict[str, Problem]:
    """Eight layers of one kind, of two with a prefix, and of three in a pattern."""
    return {
        "dense": problem(card("toy-dense", layers=8)),
        "prefix": problem(card("toy-moe", layers=8, dense_layers=3)),
        "pattern": problem(
            card("toy-moe", layers=8, dense_layers=1, layer_pattern=["gdn", "gdn", "full"], **GDN)
        ),
    }


def test_fewest_and_most_layers_are_those_of_all_splits() -> None:
    """Tests the range of layers of a rank against every split of the search space."""
    wrong = []
    for (pp, vpp), layers in itertools.product(SHAPES, (2, 3, 4, 6, 8)):
        where = problem(card("toy-dense", layers=layers))
        shape = Shape(pp, vpp, 2 * pp)
        held = [_by_rank(slots, pp) for slots in splits(where, pp, vpp)]
        if not held:
            assert pp * vpp > layers + 2
            continue
        for rank in range(pp):
            assert least_layers(shape, rank) == min(counts[rank] for counts in held)
        found = most_layers(where, shape), max(max(counts) for counts in held)
        if found[0] < found[1]:
            wrong.append((pp, vpp, layers, *found))
    assert not wrong, "pp, vpp, layers, most_layers, most layers of a rank in some split"


def _by_rank(slots: tuple[Slot, ...], pp: int) -> list[int]:
    return [sum(slot.count for slot in rank_slots(slots, pp, rank)) for rank in range(pp)]


@pytest.mark.parametrize("most", [4, 6, 8])
@pytest.mark.parametrize("name", ["dense", "prefix", "pattern"])
@pytest.mark.parametrize(
    ("pp", "vpp", "bare_end"), [(*s, b) for s in SHAPES for b in (False, True)[: min(s[1], 2)]]
)
def test_rank_tables_contain_all_splits(
    name: str, pp: int, vpp: int, bare_end: bool, most: int
) -> None:
    """Tests that the ranges hold a rank's layers of each kind, in splits of up to ``most`` a rank.

    Live layers are compared at the moment of the table, which is the worst for like layers.
    """
    where = _models()[name]
    shape = Shape(pp, vpp, 2 * pp if vpp > 1 else pp, bare_end=bare_end)
    others = [kind for kind in where.kinds if kind != main_kind(where)]
    table = rank_tables(where, shape, most)
    for rank in range(pp):
        vectors = shape.moments(rank)
        for slots in splits(where, pp, vpp):
            by_rank = _by_rank(slots, pp)
            if max(by_rank) > most or shape.slots(by_rank, mtp=False) != slots:
                continue
            chunks = rank_slots(slots, pp, rank)
            total = sum(slot.count for slot in chunks)
            entry = list(table.layers[0]).index(total)
            assert table.possible[rank, entry]
            live = [
                sum(c * slot.count for c, slot in zip(vector, chunks, strict=True))
                for vector in vectors
            ]
            assert table.live[rank, entry] == max(live)
            worst = vectors[live.index(max(live))]
            for kind in others:
                counts = [kind_counts(where.model, slot)[kind] for slot in chunks]
                low, high = (column[rank, entry] for column in table.count[kind])
                assert low <= sum(counts) <= high
                low, high = (column[rank, entry] for column in table.live_count[kind])
                # Another vector may be as bad; the table names one of them.
                assert low <= max(
                    sum(c * n for c, n in zip(vector, counts, strict=True))
                    for vector, size in zip(vectors, live, strict=True)
                    if size == max(live)
                )
                assert sum(c * n for c, n in zip(worst, counts, strict=True)) <= high or (
                    live.count(max(live)) > 1
                )


def test_every_split_is_one_of_a_shape() -> None:
    """Tests that the two ends of a pipeline give all splits of the space, and no other."""
    for pp, vpp in SHAPES:
        where = problem(card("toy-dense", layers=8))
        held = set(splits(where, pp, vpp))
        shaped = {
            shape.slots(_by_rank(slots, pp), mtp=False)
            for shape in free_shapes(where, pp, vpp, 2 * pp)
            for slots in held
        }
        assert {slots for slots in shaped if all(slot.count for slot in slots[1:-1])} == held


def test_published_split_with_a_bare_end() -> None:
    """Tests DeepSeek-V3's `Et|(tt|)*30mL`: eight ranks of 7 to 8 layers, none in the last slot."""
    where = problem("deepseek-v3")
    shape = Shape(8, 4, 16, bare_end=True)
    assert shape.slots([7, *[8] * 6, 6], mtp=True) == parse_layout("Et|(tt|)*30mL")
    assert shape in free_shapes(where, 8, 4, 16)
