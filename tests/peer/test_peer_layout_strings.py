"""Layout strings: meshplan's reading against ``PipelineParallelLayerLayout``."""

from __future__ import annotations

import random

import pytest

from meshplan.constraints.pipeline import LayoutStringError, expand, format_layout, parse_layout
from tests.peer.client import Peer

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
