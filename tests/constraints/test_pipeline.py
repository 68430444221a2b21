from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshplan.constraints.layout import Slot
from meshplan.constraints.pipeline import (
    LayoutStringError,
    chunk_counts,
    even_slots,
    expand,
    format_layout,
    kind_counts,
    parse_layout,
    rank_slots,
    slots_from_counts,
    slots_from_rank_counts,
)
from tests.constraints.factories import card
from tests.constraints.slot_draws import legal_slots

COUNTS = st.lists(st.integers(0, 9), min_size=1, max_size=40)


@given(COUNTS, st.integers(0, 3))
def test_format_and_parse_are_inverse(counts: list[int], mtp_layers: int) -> None:
    """Tests that a layout string says what the slots are, MTP beside the loss."""
    slots = slots_from_counts(counts, mtp=mtp_layers > 0)
    text = format_layout(slots, mtp_layers)
    assert parse_layout(text) == slots
    assert expand(text).count("m") == mtp_layers


@given(st.integers(0, 2**32))
def test_any_legal_split_is_written_and_read_back(seed: int) -> None:
    """Tests empty slots anywhere, and E, MTP and L alone or beside layers, against the slots."""
    draw = legal_slots(random.Random(seed))
    text = format_layout(draw.slots, draw.mtp_layers)
    assert parse_layout(text) == draw.slots
    assert format_layout(parse_layout(text), draw.mtp_layers) == text
    letters = expand(text)
    assert [letters.count(letter) for letter in "EtmL|"] == [
        1, draw.layers, draw.mtp_layers, 1, draw.pp * draw.vpp - 1,
    ]  # fmt: skip


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.booleans(), st.integers(0, 2), st.booleans()),
        min_size=1,
        max_size=24,
    )
)
def test_parse_reads_any_stages(stages: list[tuple[int, bool, int, bool]]) -> None:
    """Tests stages with any parts, written letter by letter, against counting them."""
    text = "|".join("E" * e + "t" * n + "m" * m + "L" * end for n, e, m, end in stages)
    slots = parse_layout(text)
    first = 0
    for slot, (count, embedding, mtp, loss) in zip(slots, stages, strict=True):
        assert slot == Slot(first, count, embedding, mtp > 0, loss)
        first += count


@given(st.lists(st.sampled_from(["tt|", "t*3|", "(t|)*2", "(tt|t|)*3", "|"]), max_size=6))
def test_repeats_unroll(parts: list[str]) -> None:
    """Tests groups and repeats anywhere in the string against unrolling them by hand."""
    unrolled = {"tt|": "tt|", "t*3|": "ttt|", "(t|)*2": "t|t|", "(tt|t|)*3": "tt|t|" * 3, "|": "|"}
    text = "E" + "".join(parts) + "L"
    assert expand(text) == "E" + "".join(unrolled[part] for part in parts) + "L"


@pytest.mark.parametrize(
    ("text", "stages", "layers", "first", "last"),
    [
        ("Et|(tt|)*30mL", 32, 61, "Et", "mL"),  # DeepSeek-V3, pp8 vpp4
        ("Et*4|(t*4|)*14tmL", 16, 61, "Etttt", "tmL"),  # DeepSeek-V3, pp4 vpp4 (GB300)
        ("Et*3|(t*4|)*14t*2mL", 16, 61, "Ettt", "ttmL"),  # DeepSeek-V3, pp16
        ("Et|(tt|)*30L", 32, 61, "Et", "L"),  # Kimi-K2, pp16 vpp2
        ("Et*2|(t*2|)*34,t*3|(t*2|)*3,tL", 40, 80, "Ett", "tL"),  # Llama-3 70B, pp4 vpp10
        ("E|t*16|t*16|L", 4, 32, "E", "L"),  # embedding and loss alone
        ("Et*3|(tt|)*29m|L", 32, 61, "Ettt", "L"),  # MTP and loss alone
    ],
)
def test_published_strings(text: str, stages: int, layers: int, first: str, last: str) -> None:
    """Tests strings of published recipes: stages, decoder layers, and the two ends."""
    plain = expand(text).split("|")
    assert (plain[0], plain[-1]) == (first, last)
    slots = parse_layout(text)
    assert len(slots) == stages
    assert sum(slot.count for slot in slots) == layers
    assert parse_layout(format_layout(slots, 1)) == slots


def test_zero_repeats_vanish() -> None:
    """Tests that t*0 and (..)*0 leave nothing."""
    assert expand("Et*0t|(tt|)*0L") == "Et|L"


@pytest.mark.parametrize(
    "text",
    ["E t|L", "E((t|)*2)*2L", "E(t|)L", "Ex|L", "Et*|L", "tE|L", "Emt|L", "ELt", "Et*9999999|L"],
)
def test_bad_strings_are_refused(text: str) -> None:
    """Tests blanks, nested or bare groups, unknown letters, wrong order and absurd repeats."""
    with pytest.raises(LayoutStringError):
        parse_layout(text)


def test_even_split_of_qwen3_235b() -> None:
    """Tests 94 + embedding + loss = 96 = 4*12*2: every slot holds two, the two ends one."""
    slots = even_slots(94, 4, 12, mtp=False)
    assert slots is not None
    assert [slot.count for slot in slots] == [1, *[2] * 46, 1]
    assert [sum(s.count for s in rank_slots(slots, 4, rank)) for rank in range(4)] == [
        23, 24, 24, 23,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("layers", "pp", "vpp", "counts"),
    [
        (32, 4, 2, [4] * 8),  # plain division
        (6, 4, 2, [0, 1, 1, 1, 1, 1, 1, 0]),  # with embedding and loss
        (7, 4, 2, [0, 1, 1, 1, 1, 1, 1, 1]),  # with the embedding alone
        (80, 8, 1, [10] * 8),
    ],
)
def test_even_splits(layers: int, pp: int, vpp: int, counts: list[int]) -> None:
    """Tests the framework's divisions in their order: layers, both ends, embedding, loss."""
    slots = even_slots(layers, pp, vpp)
    assert slots is not None
    assert [slot.count for slot in slots] == counts


def test_no_even_split() -> None:
    """Tests DeepSeek-V3: 61, 62 and 63 are no multiples of 32."""
    assert even_slots(61, 8, 4) is None


@given(st.integers(0, 200), st.integers(1, 24), st.booleans())
def test_chunks_of_a_rank_add_up(layers: int, vpp: int, last_rank: bool) -> None:
    """Tests that the chunks hold all layers of the rank and differ by one at most."""
    chunks = chunk_counts(layers, vpp, last_rank=last_rank)
    assert len(chunks) == vpp
    assert sum(chunks) == layers
    assert max(chunks) - min(chunks) <= 1


@given(st.lists(st.integers(0, 30), min_size=1, max_size=16), st.integers(1, 12), st.booleans())
def test_slots_of_ranks_cover_all_layers(ranks: list[int], vpp: int, mtp: bool) -> None:
    """Tests that every layer is in one slot, in order, and each rank holds what it was given."""
    pp = len(ranks)
    slots = slots_from_rank_counts(ranks, vpp, mtp=mtp)
    assert len(slots) == pp * vpp
    first = 0
    for slot in slots:
        assert slot.first == first
        first += slot.count
    held = [sum(slot.count for slot in rank_slots(slots, pp, rank)) for rank in range(pp)]
    assert held == ranks
    assert [slot.embedding for slot in slots] == [True, *[False] * (len(slots) - 1)]
    assert slots[-1].loss and slots[-1].mtp is mtp


def test_kinds_of_a_slot() -> None:
    """Tests that the dense prefix of the toy model is in its first slot."""
    model = card("toy-moe")  # 6 layers, the first dense
    counts = [dict(kind_counts(model, slot)) for slot in slots_from_counts([2, 4])]
    dense, moe = model.kinds
    assert counts == [{dense: 1, moe: 1}, {moe: 4}]
