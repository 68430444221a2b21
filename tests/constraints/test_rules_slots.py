"""Rules on concrete pipeline slots: strings that the framework accepts, and ones it refuses."""

from __future__ import annotations

import pytest

from meshplan.constraints.layout import Layout, Slot
from meshplan.constraints.layout_rules import ALL_LAYOUT_RULES
from meshplan.constraints.problem import Problem
from tests.constraints.factories import card, layout, problem

DEEPSEEK = problem("deepseek-v3", gpus=256)
TOY = problem(gpus=8)  # 6 decoder layers, no MTP
TOY_MTP = problem(card("toy-moe", mtp_layers=1))


def broken(where: Problem, what: Layout) -> dict[str, str]:
    """Broken slot rules and their texts."""
    texts = {one.id: one.check(where, what) for one in ALL_LAYOUT_RULES}
    return {rule_id: text for rule_id, text in texts.items() if text is not None}


@pytest.mark.parametrize(
    ("text", "pp", "vpp"),
    [
        ("Et|(tt|)*30mL", 8, 4),
        ("Et*4|(t*4|)*14tmL", 4, 4),
        ("Et*4|(t*4|)*14tmL", 2, 8),
        ("Et*4|(t*4|)*14tmL", 16, 1),
        ("Et*3|(t*4|)*14t*2mL", 16, 1),
        ("Et*3|(tt|)*29m|L", 8, 4),  # MTP alone in slot 30: the last chunk of rank 6
    ],
)
def test_published_layouts_are_legal(text: str, pp: int, vpp: int) -> None:
    """Tests that strings which Megatron-LM accepts for DeepSeek-V3 break nothing."""
    assert broken(DEEPSEEK, layout(text, pp=pp, vpp=vpp)) == {}


@pytest.mark.parametrize("text", ["E|ttt|ttt|L", "Ettt|ttt||L", "Et|tt|tt|tL"])
def test_standalone_and_empty_stages_are_legal(text: str) -> None:
    """Tests that the embedding or the loss may be alone, and a stage empty."""
    assert broken(TOY, layout(text, pp=4)) == {}


def test_slots_must_be_set() -> None:
    """Tests that a layout without slots breaks one rule, not all."""
    assert broken(TOY, layout(pp=4)) == {
        "layout-stage-count": "the layout has 0 slots, but pp*vpp = 4*1 = 4"
    }


@pytest.mark.parametrize(
    ("rule_id", "where", "bad", "says", "neighbour"),
    [
        ("layout-stage-count", TOY, ("Ett|tt|ttL", 2, 1), "3 slots, but pp*vpp = 2*1 = 2",
         ("Ett|tt|ttL", 3, 1)),
        ("layout-first-embedding", TOY, ("tt|Ett|ttL", 3, 1), "embedding is in slot 1",
         ("Ett|tt|ttL", 3, 1)),
        ("layout-first-embedding", TOY, ("Ett|Ett|ttL", 3, 1), "in slots 0, 1",
         ("Ett|tt|ttL", 3, 1)),
        ("layout-last-loss", TOY, ("EttL|tt|tt", 3, 1), "loss is in slot 0; it belongs in the "
         "last slot (2)", ("Ett|tt|ttL", 3, 1)),
        ("layout-last-loss", TOY, ("Ett|tt|tt", 3, 1), "loss is in no slot", ("Ett|tt|ttL", 3, 1)),
        ("layout-decoder-count", DEEPSEEK, ("Et|(tt|)*29|mL", 16, 2), "hold 59 decoder layers, "
         "but deepseek-v3 has 61", ("Et|(tt|)*30mL", 16, 2)),
        ("layout-mtp-count", TOY, ("Ettt|tttmL", 2, 1), "hold 1 MTP layers, but toy-moe trains 0",
         ("Ettt|tttL", 2, 1)),
        ("layout-mtp-count", TOY_MTP, ("Ettt|tttL", 2, 1), "hold 0 MTP layers, but toy-moe trains "
         "1", ("Ettt|tttmL", 2, 1)),
        ("layout-mtp-after-decoders", TOY_MTP, ("Etttm|tttL", 2, 1), "slot 1 holds decoder layers "
         "after the MTP layers of slot 0", ("Ettt|tttmL", 2, 1)),
        ("layout-mtp-last-vpp", TOY_MTP, ("Ettt|tttm||L", 2, 2), "chunk 0 of pipeline rank 1",
         ("Ettt|ttt|m|L", 2, 2)),
        ("layout-mtp-one-stage", TOY_MTP, ("Ettt|ttt|m|mL", 2, 2), "in slots 2, 3",
         ("Ettt|ttt||mL", 2, 2)),
    ],
)  # fmt: skip
def test_slot_rules(
    rule_id: str,
    where: Problem,
    bad: tuple[str, int, int],
    says: str,
    neighbour: tuple[str, int, int],
) -> None:
    """Tests that each rule refuses its own fault with numbers, and lets a neighbour pass."""
    text, pp, vpp = bad
    assert says in broken(where, layout(text, pp=pp, vpp=vpp))[rule_id]
    text, pp, vpp = neighbour
    assert broken(where, layout(text, pp=pp, vpp=vpp)) == {}


def test_layers_run_in_order() -> None:
    """Tests that a gap between slots is found even if the count is right."""
    slots = (Slot(0, 3, embedding=True), Slot(4, 3, loss=True))
    faults = broken(TOY, Layout(pp=2, slots=slots))
    assert faults == {"layout-layer-order": "slot 1 starts at decoder layer 4, not at layer 3"}


def test_mtp_layers_of_a_string_are_counted() -> None:
    """Tests that ``mm`` is refused for one MTP layer, which the slots alone cannot tell."""
    text = "Ettt|tttmmL"
    where = problem(TOY_MTP.model, layout_string=text)
    assert broken(where, layout(text, pp=2)) == {
        "layout-mtp-count": "the slots hold 2 MTP layers, but toy-moe trains 1"
    }


@pytest.mark.parametrize("text", ["|Ettt|tttL", "Ettt|tttL|", "||Ettt|tttL||"])
def test_empty_stages_outside_of_the_ends_are_legal(text: str) -> None:
    """Tests that embedding and loss are first and last of what there is, as in megatron-core."""
    stages = text.count("|") + 1
    assert broken(TOY, layout(text, pp=stages)) == {}


def test_an_even_split_must_exist() -> None:
    """Tests that 6 layers on 5 stages are refused where the framework is to split them itself."""
    even = problem(even_split=True)
    assert broken(even, layout("Ett|t|t|t|tL", pp=5))["layers-pp-default"].startswith("6 layers")
    assert broken(even, layout("E|tt|tt|ttL", pp=4)) == {}, "6 + 2 ends split over 4"
    assert broken(TOY, layout("Ett|t|t|t|tL", pp=5)) == {}, "a free split needs no even one"
