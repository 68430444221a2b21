"""Layout strings: meshplan's reading against ``PipelineParallelLayerLayout``."""

from __future__ import annotations

import random

import pytest

from meshplan.constraints.layout import Layout
from meshplan.constraints.layout_rules import ALL_LAYOUT_RULES
from meshplan.constraints.pipeline import LayoutStringError, expand, format_layout, parse_layout
from tests.constraints.slot_draws import any_slots, legal_slots
from tests.peer.client import Peer
from tests.solver.small import small

pytestmark = pytest.mark.peer

#: Pieces that random strings are put together from: sound ones, odd ones and broken ones.
PIECES = (
    *"EtmL|", "t*3", "|*2", "(t|)*3", "(tt|t|)*2", ",", "t*0", "(m)*1", "(|)*2", "(Et)*1",
    "(", ")", "*", "*2", "()*2", "((t)*2|)*2", "(t", "t)*2", "0", "x", " ", "t*2*3", "(*0", ")*0",
)  # fmt: skip
SOUND = 14


def _ours(text: str) -> list[str] | None:
    try:
        return expand(text).split("|")
    except LayoutStringError:
        return None


def _theirs(peer: Peer, text: str) -> list[str] | None:
    answer = peer.ask({"query": "layout", "text": text, "pp": 1})
    stages: list[str] | None = answer.get("stages")
    return stages


@pytest.mark.parametrize(
    ("text", "stages"),
    [
        ("Et*3|(tt|)*29m|L", 32),
        ("Et*4|(t*4|)*14tmL", 16),
        ("Et*2|(t*2|)*34,t*3|(t*2|)*3,tL", 40),
        ("E|t*16|t*16|L", 4),
        ("E|*3tL", 4),
        ("Et|()*3L", None),
        ("Et|(t)L", None),
        ("Et (t|)*2L", None),
        ("Et(*0|L", 2),
    ],
)
def test_known_strings(peer: Peer, text: str, stages: int | None) -> None:
    """Tests published strings and the corners of the grammar, stage by stage."""
    read = _ours(text)
    assert read == _theirs(peer, text)
    assert (None if read is None else len(read)) == stages


def test_random_strings(peer: Peer) -> None:
    """Tests that 2,000 strings, half of them sound, expand to the same stages or to none."""
    rng = random.Random(7)
    readable = 0
    for number in range(2000):
        pieces = PIECES[:SOUND] if number % 2 else PIECES
        text = "".join(rng.choice(pieces) for _ in range(rng.randint(1, 9)))
        ours = _ours(text)
        assert ours == _theirs(peer, text), text
        readable += ours is not None
    assert 1000 <= readable < 1800, "both kinds are met"


def test_written_strings_are_read_back(peer: Peer) -> None:
    """Tests that strings which meshplan writes mean the same stages to megatron-core."""
    rng = random.Random(11)
    for _ in range(300):
        stages = ["t" * rng.choice((0, 1, 2, 2, 2, 3, 7)) for _ in range(rng.randint(2, 24))]
        mtp = rng.choice((0, 1, 2))
        stages[0], stages[-1] = "E" + stages[0], stages[-1] + "m" * mtp + "L"
        text = format_layout(parse_layout("|".join(stages)), mtp)
        assert _theirs(peer, text) == stages, text


def test_exported_splits_are_built_as_they_are_meant(peer: Peer) -> None:
    """Tests that megatron-core builds from an exported string what each slot holds.

    Random splits: empty slots anywhere, E, MTP and L alone in theirs or beside layers, MTP on any
    rank's last chunk.  Its own constructors' questions are asked, rank by rank and chunk by chunk.
    """
    rng = random.Random(23)
    alone = {"E": 0, "m": 0, "L": 0, "": 0}
    for _ in range(600):
        draw = legal_slots(rng)
        text = format_layout(draw.slots, draw.mtp_layers)
        assert parse_layout(text) == draw.slots, text
        answer = peer.ask(
            {"query": "layout", "text": text, "pp": draw.pp, "layers": draw.layers,
             "mtp": draw.mtp_layers}
        )  # fmt: skip
        assert answer["accept"], (text, answer)
        assert answer["vpp"] == draw.vpp
        assert answer["slots"] == [
            {"first": slot.first, "embedding": int(slot.embedding), "decoder": slot.count,
             "mtp": draw.mtp_layers * slot.mtp, "loss": int(slot.loss)}
            for slot in draw.slots
        ], text  # fmt: skip
        for stage in answer["stages"]:
            single = "m" if stage and not stage.strip("m") else stage
            if single in alone:
                alone[single] += 1
    assert min(alone.values()) >= 40, "each kind of lone part is met"


def test_a_split_is_legal_to_both_or_to_none(peer: Peer) -> None:
    """Tests 600 splits whose parts may sit anywhere: our rules on slots against its validation."""
    rng = random.Random(29)
    accepted = 0
    for _ in range(600):
        draw = any_slots(rng)
        problem = small(
            model={"card": "toy-dense", "layers": draw.layers, "mtp_layers": draw.mtp_layers}
        )
        layout = Layout(pp=draw.pp, vpp=draw.vpp, slots=draw.slots)
        broken = [rule.id for rule in ALL_LAYOUT_RULES if rule.check(problem, layout)]
        text = format_layout(draw.slots, draw.mtp_layers)
        answer = peer.ask(
            {"query": "layout", "text": text, "pp": draw.pp, "layers": draw.layers,
             "mtp": draw.mtp_layers}
        )  # fmt: skip
        assert answer["accept"] == (not broken), (text, draw, broken, answer)
        accepted += answer["accept"]
    assert 100 <= accepted <= 500, "both verdicts are met"
