"""Aims at the rules on splits of the layers: layout strings and the framework's even split."""

from __future__ import annotations

import random
from itertools import pairwise

from benchmarks.legality_draws import Draft, base, draw_split

#: Characters that a layout string may get wrongly.
NOISE = "EtmL|(*)23,0 x"


def even_split(rng: random.Random) -> Draft:
    """The framework's own split, for layers that may not split evenly."""
    draft = base(rng)
    draft.degrees["pp"] = rng.choice((2, 3, 4, 5, 7, 8))
    draw_split(draft, rng, rng.choice((1, 1, 2, 3)))
    draft.text = None
    return draft


def _string(rng: random.Random) -> tuple[Draft, list[str]]:
    """A draft whose split is a layout string, as a list of its stages."""
    draft = base(rng)
    draft.changes["mtp_layers"] = rng.choice((0, 1, 1, 2))
    if draft["pp"] == 1:
        draft.degrees["pp"] = rng.choice((2, 3, 4))
    draft.changes["layers"] = max(len(draft.model.layer_pattern or ()), rng.randint(4, 14))
    draft.changes["dense_layers"] = min(draft.model.dense_layers, 1)
    draw_split(draft, rng, rng.choice((1, 2, 2, 3)))
    stages = draft["pp"] * draft["vpp"]
    cuts = sorted(rng.randint(0, draft.model.layers) for _ in range(stages - 1))
    edges = (0, *cuts, draft.model.layers)
    texts = ["t" * (b - a) for a, b in pairwise(edges)]
    texts[0] = "E" + texts[0]
    texts[-1] += "m" * draft.model.mtp_layers + "L"
    return draft, texts


def _written(draft: Draft, stages: list[str]) -> Draft:
    draft.text = "|".join(stages)
    return draft


def legal_string(rng: random.Random) -> Draft:
    """Any spread of the layers over the stages, empty stages included."""
    return _written(*_string(rng))


def mtp_moved(rng: random.Random) -> Draft:
    """All MTP layers in some stage, with or without decoder layers behind it."""
    draft, stages = _string(rng)
    mtp = "m" * max(1, draft.model.mtp_layers)
    stages[-1] = stages[-1].replace("m", "")
    place = rng.randrange(len(stages))
    end = "L" if stages[place].endswith("L") else ""
    stages[place] = stages[place].removesuffix("L") + mtp + end
    if rng.random() < 0.6:  # no decoder behind it, so that other rules decide
        moved = sum(stage.count("t") for stage in stages[place + 1 :])
        stages[place + 1 :] = [stage.replace("t", "") for stage in stages[place + 1 :]]
        first = stages[0]
        stages[0] = "E" + "t" * moved + first[1:]
    return _written(draft, stages)


def mtp_split(rng: random.Random) -> Draft:
    """MTP layers in two stages."""
    draft, stages = _string(rng)
    draft.changes["mtp_layers"] = 2
    stages[-1] = stages[-1].replace("m", "").removesuffix("L") + "mL"
    if draft["vpp"] > 1 and rng.random() < 0.3:
        place = len(stages) - 1 - draft["pp"]
    else:
        place = len(stages) - 2
    moved = sum(stage.count("t") for stage in stages[place + 1 :])
    stages[place + 1 :] = [stage.replace("t", "") for stage in stages[place + 1 :]]
    stages[0] = "E" + "t" * moved + stages[0][1:]
    stages[place] += "m"
    return _written(draft, stages)


def mtp_counted(rng: random.Random) -> Draft:
    """Some other number of MTP layers."""
    draft, stages = _string(rng)
    stages[-1] = stages[-1].replace("m", "").removesuffix("L") + "m" * rng.randint(0, 3) + "L"
    return _written(draft, stages)


def ends(rng: random.Random) -> Draft:
    """Embedding or loss missing, doubled or elsewhere."""
    draft, stages = _string(rng)
    letter = rng.choice("EL")
    here = 0 if letter == "E" else len(stages) - 1
    if rng.random() < 0.6:
        stages[here] = stages[here].replace(letter, "")
    if rng.random() < 0.6:
        place = rng.randrange(len(stages))
        text = stages[place]
        stages[place] = letter + text if letter == "E" else text + letter
    return _written(draft, stages)


def decoders(rng: random.Random) -> Draft:
    """One decoder layer too many or too few."""
    draft, stages = _string(rng)
    place = rng.randrange(len(stages))
    if rng.random() < 0.5:
        stages[place] = stages[place].replace("t", "tt", 1)
    else:
        stages[place] = stages[place].replace("t", "", 1)
    return _written(draft, stages)


def stage_count(rng: random.Random) -> Draft:
    """Stages added or removed."""
    draft, stages = _string(rng)
    where = rng.randint(1, len(stages) - 1)
    added = rng.choice((1, draft["pp"], draft["pp"]))
    if rng.random() < 0.5:
        stages[where:where] = [""] * added
    elif len(stages) > 2:
        del stages[1:2]
    return _written(draft, stages)


def noisy(rng: random.Random) -> Draft:
    """Stray characters and repeats."""
    draft, stages = _string(rng)
    text = "|".join(stages)
    for _ in range(rng.choice((1, 1, 2, 3))):
        place = rng.randrange(len(text) + 1)
        noise = rng.choice((*NOISE, "*2", "(t)*2", "(|)*1", "()*2", "*0"))
        text = text[:place] + noise + text[place + rng.choice((0, 0, 1)) :]
    draft.text = text
    return draft
