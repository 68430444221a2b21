"""Random pipeline slots: splits that megatron-core takes, and splits that it may not."""

from __future__ import annotations

import dataclasses
import random
from dataclasses import dataclass

from meshplan.constraints.layout import Slot


@dataclass(frozen=True)
class SlotDraw:
    """Slots of a pipeline, and the model that they are for."""

    pp: int
    vpp: int
    slots: tuple[Slot, ...]
    layers: int
    mtp_layers: int


def legal_slots(rng: random.Random) -> SlotDraw:
    """A legal split: any slot may be empty, E, MTP and L alone or beside layers.

    MTP comes after all decoder layers, in the last chunk of any rank.
    """
    pp, vpp = rng.choice((1, 2, 3, 4, 8)), rng.choice((1, 1, 2, 3, 5))
    vpp = vpp if pp > 1 else 1
    stages = pp * vpp
    mtp_layers = rng.choice((0, 1, 1, 2))
    loss = stages - 1 - (rng.randrange(min(pp, stages)) if rng.random() < 0.2 else 0)
    embedding = rng.randrange(loss + 1) if rng.random() < 0.15 else 0
    mtp = loss
    if mtp_layers:
        first = max(embedding, stages - pp)
        loss = max(loss, first)
        mtp = loss if rng.random() < 0.3 else rng.randint(first, loss)
    last = mtp if mtp_layers else loss
    counts = [0] * stages
    holders = list(range(embedding, last + 1))
    bare = [place for place in (embedding, mtp, loss) if len(holders) > 1 and rng.random() < 0.5]
    holders = [place for place in holders if place not in bare] or holders
    for _ in range(rng.randint(1, 3 * stages)):
        counts[rng.choice(holders)] += 1
    return _draw(pp, vpp, counts, embedding, mtp if mtp_layers else None, loss, mtp_layers)


def any_slots(rng: random.Random) -> SlotDraw:
    """A legal split, or one with a part moved, doubled or missing, or a layer too few."""
    draw = legal_slots(rng)
    if rng.random() < 0.4:
        return draw
    slots = list(draw.slots)
    part = rng.choice(("embedding", "loss", "mtp") if draw.mtp_layers else ("embedding", "loss"))
    if rng.random() < 0.7:
        slots = [dataclasses.replace(slot, **{part: False}) for slot in slots]
    if rng.random() < 0.8:
        place = rng.randrange(len(slots))
        slots[place] = dataclasses.replace(slots[place], **{part: True})
    layers = draw.layers + (rng.random() < 0.1)
    return dataclasses.replace(draw, slots=tuple(slots), layers=layers)


def _draw(
    pp: int,
    vpp: int,
    counts: list[int],
    embedding: int,
    mtp: int | None,
    loss: int,
    mtp_layers: int,
) -> SlotDraw:
    slots: list[Slot] = []
    first = 0
    for place, count in enumerate(counts):
        slots.append(Slot(first, count, place == embedding, place == mtp, place == loss))
        first += count
    return SlotDraw(pp, vpp, tuple(slots), first, mtp_layers)
