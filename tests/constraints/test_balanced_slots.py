from __future__ import annotations

import pytest

from meshplan.constraints.pipeline import balanced_slots, even_slots, parse_layout
from tests.constraints.factories import problem


def _layers_by_rank(name: str, pp: int, vpp: int) -> list[int]:
    slots = balanced_slots(problem(name), pp, vpp)
    return [sum(slot.count for slot in slots[rank::pp]) for rank in range(pp)]


def test_ends_get_fewer_layers() -> None:
    """Tests DeepSeek-V3 on 8 ranks: 61 layers + E + MTP + loss = 64, so 8 a rank all told."""
    assert _layers_by_rank("deepseek-v3", 8, 4) == [7, 8, 8, 8, 8, 8, 8, 6]


def test_the_slot_with_the_loss_counts_as_full_as_the_others() -> None:
    """Tests the split of the Megatron-Bridge recipe on H100: 64 by 32 slots, ``Et|(tt|)*30mL``.

    Ranks go through the chunks together, so a layer beside MTP and loss would keep all waiting.
    """
    assert balanced_slots(problem("deepseek-v3"), 8, 4) == parse_layout("Et|(tt|)*30mL")


def test_odd_layers_go_to_later_middle_ranks() -> None:
    """Tests 6 layers + E + loss on 4 ranks: 8 = 4*2; and on 3 ranks, where 2 ranks carry 3."""
    assert _layers_by_rank("toy-moe", 4, 1) == [1, 2, 2, 1]
    assert _layers_by_rank("toy-moe", 3, 1) == [2, 3, 1]


@pytest.mark.parametrize(("pp", "vpp"), [(1, 1), (2, 3), (7, 1), (8, 4), (64, 1), (16, 12)])
def test_every_layer_is_placed_once_in_order(pp: int, vpp: int) -> None:
    """Tests that any number of slots holds the 61 layers, with E first and MTP and loss last."""
    slots = balanced_slots(problem("deepseek-v3"), pp, vpp)
    assert len(slots) == pp * vpp
    assert sum(slot.count for slot in slots) == 61
    assert [slot.first for slot in slots] == [
        sum(slot.count for slot in slots[:index]) for index in range(len(slots))
    ]
    assert [slot.embedding for slot in slots].index(True) == 0
    assert slots[-1].loss and slots[-1].mtp


def test_models_without_mtp_have_no_mtp_slot() -> None:
    """Tests that no slot claims MTP layers that Qwen3-235B does not train."""
    assert not any(slot.mtp for slot in balanced_slots(problem("qwen3-235b-a22b"), 4, 5))
    even = even_slots(94, 4, 12, mtp=False)
    assert even is not None and not any(slot.mtp for slot in even)
