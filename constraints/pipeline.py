"""Pipeline slots: layout strings, even splits, and slots from layer counts per rank.

The grammar is Megatron-Core's ``pipeline_model_parallel_layout`` (Megatron-LM d98e8a64
``core/transformer/pipeline_parallel_layer_layout.py``): ``E`` embedding, ``t`` decoder layer,
``m`` MTP layer, ``L`` loss, ``|`` between stages, ``x*n`` and ``(group)*n`` repeats.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from meshplan.constraints.layout import Slot

if TYPE_CHECKING:
    from meshplan.constraints.problem import Problem
    from meshplan.scenarios.model_card import LayerKind, ModelCard

#: Longest text that a layout string may expand to; real ones have a few hundred characters.
_MOST_CHARACTERS = 20_000
#: Repeats, as Megatron-Core reads them: a group ends at the first ")" after any "(", is not empty,
#: and is unrolled before single characters, which may be any character.
_GROUP = re.compile(r"\(([^)]+)\)\*(\d+)")
_ITEM = re.compile(r"(.)\*(\d+)")


class LayoutStringError(ValueError):
    """A pipeline layout string that the framework would refuse; the text says where."""


def expand(text: str) -> str:
    """Unroll the repeats of a layout string: ``Et*2|(tt|)*2L`` -> ``Ett|tt|tt|L``.

    Raises
    ------
    LayoutStringError
        Unknown characters, nested groups, a group without ``*n``, or an absurd length.
    """
    if len(text) > _MOST_CHARACTERS:
        raise LayoutStringError(f"has {len(text)} characters, more than {_MOST_CHARACTERS}")
    plain = text.replace(",", "")
    for pattern in (_GROUP, _ITEM):
        plain = _unroll(pattern, plain)
    bad = sorted(set(plain) - set("EtmL|"))
    if bad:
        shown = ", ".join(repr(c) for c in bad)
        raise LayoutStringError(f"has {shown} where only E, t, m, L, |, (...)*n and x*n may stand")
    return plain


def _unroll(pattern: re.Pattern[str], text: str) -> str:
    length = len(text)
    for match in pattern.finditer(text):
        if len(match[2]) > 6:
            raise LayoutStringError(f"repeats {match[1]!r} {match[2]} times")
        length += len(match[1]) * int(match[2])
        if length > _MOST_CHARACTERS:
            raise LayoutStringError(f"expands to more than {_MOST_CHARACTERS} characters")
    return pattern.sub(lambda match: match[1] * int(match[2]), text)


def parse_layout(text: str) -> tuple[Slot, ...]:
    """Slots of a layout string, in the order of the layers (slot ``i`` is rank ``i % pp``).

    Raises
    ------
    LayoutStringError
        If the string cannot be read; whether it suits a model is a matter of the rules.
    """
    slots: list[Slot] = []
    first = 0
    for stage in expand(text).split("|"):
        if not re.fullmatch(r"E?t*m*L?", stage):
            raise LayoutStringError(
                f"has the stage {stage!r}; a stage is E, then t, then m, then L"
            )
        count = stage.count("t")
        slots.append(Slot(first, count, "E" in stage, "m" in stage, "L" in stage))
        first += count
    return tuple(slots)


def format_layout(slots: Sequence[Slot], mtp_layers: int) -> str:
    """Shortest readable layout string of ``slots``, runs of equal stages as groups."""
    stages = [
        "E" * slot.embedding + "t" * slot.count + "m" * (mtp_layers * slot.mtp) + "L" * slot.loss
        for slot in slots
    ]
    parts: list[str] = []
    last = len(stages) - 1
    position = 0
    for stage, run in groupby(stages):
        count = len(list(run))
        ends = position + count - 1 == last
        repeated = count - 1 if ends else count  # the last stage takes no separator after it
        if repeated > 1 and stage:
            parts.append(f"({_short(stage)}|)*{repeated}")
        else:
            parts.append(f"{_short(stage)}|" * repeated)
        if ends:
            parts.append(_short(stage))
        position += count
    return "".join(parts)


def _short(stage: str) -> str:
    """``Etttt`` -> ``Et*4``; two equal letters stay as they are."""
    out = ""
    for letter, run in groupby(stage):
        count = len(list(run))
        out += letter * count if count < 3 else f"{letter}*{count}"
    return out


def slots_from_counts(counts: Sequence[int], *, mtp: bool = True) -> tuple[Slot, ...]:
    """Slots with these decoder layer counts; E in the first, MTP (if any) and loss in the last."""
    slots: list[Slot] = []
    first = 0
    last = len(counts) - 1
    for index, count in enumerate(counts):
        slots.append(Slot(first, count, index == 0, mtp and index == last, index == last))
        first += count
    return tuple(slots)


def chunk_counts(
    layers: int, vpp: int, *, last_rank: bool, bare_end: bool = False
) -> tuple[int, ...]:
    """Spread a rank's decoder layers over its chunks so that they differ by one at most.

    Chunks that stay alive for shorter get the odd layers: the later ones, except that on the
    last rank the final chunk, which also holds MTP and loss, comes last.  With ``bare_end`` that
    one holds these alone (needs ``vpp > 1``).
    """
    if last_rank and bare_end:
        return (*chunk_counts(layers, vpp - 1, last_rank=False), 0)
    base, extra = divmod(layers, vpp)
    order = list(range(vpp - 1, -1, -1))
    if last_rank and vpp > 1:
        order = order[1:] + order[:1]
    counts = [base] * vpp
    for chunk in order[:extra]:
        counts[chunk] += 1
    return tuple(counts)


def slots_from_rank_counts(
    layers: Sequence[int], vpp: int, *, mtp: bool = True, bare_end: bool = False
) -> tuple[Slot, ...]:
    """Slots from decoder layers per pipeline rank, each rank's spread by :func:`chunk_counts`."""
    pp = len(layers)
    chunks = [
        chunk_counts(n, vpp, last_rank=rank == pp - 1, bare_end=bare_end)
        for rank, n in enumerate(layers)
    ]
    counts = [chunks[rank][v] for v in range(vpp) for rank in range(pp)]
    return slots_from_counts(counts, mtp=mtp)


def even_slots(layers: int, pp: int, vpp: int, *, mtp: bool = True) -> tuple[Slot, ...] | None:
    """The framework's own even split, or None where it has none.

    Plain division of the layers, else with the embedding and the loss counted as a layer each
    (``account_for_embedding/loss_in_pipeline_split``), else with either one alone.
    """
    return next(even_splits(layers, pp, vpp, mtp=mtp), None)


def even_splits(layers: int, pp: int, vpp: int, *, mtp: bool = True) -> Iterator[tuple[Slot, ...]]:
    """All even splits of the framework, :func:`even_slots` first."""
    stages = pp * vpp
    for embedding, loss in ((0, 0), (1, 1), (1, 0), (0, 1)):
        total = layers + embedding + loss
        if total % stages == 0:
            counts = [total // stages] * stages
            counts[0] -= embedding
            counts[-1] -= loss
            if min(counts) >= 0:
                yield slots_from_counts(counts, mtp=mtp)


def balanced_slots(problem: Problem, pp: int, vpp: int) -> tuple[Slot, ...]:
    """Slots of a near-even split, for any number of layers.

    The embedding, each MTP layer and the loss count as a layer of their rank and of their slot, so
    that the first and the last get fewer decoder layers.  Odd layers go to later ranks and chunks,
    which keep fewer micro-batches alive, but not to the two ends if others can take them.
    """
    first, last = 1, 1 + problem.model.mtp_layers
    load = [0] * pp
    load[0] += first
    load[-1] += last
    layers = [0] * pp
    # Odd layers first to the ranks between the ends, the last of them before the others.
    preference = [*range(pp - 2, 0, -1), 0, pp - 1] if pp > 1 else [0]
    for _ in range(problem.model.layers):
        rank = min(preference, key=load.__getitem__)
        load[rank] += 1
        layers[rank] += 1
    chunks = []
    for rank, number in enumerate(layers):
        held = [0] * vpp
        held[0] += first * (rank == 0)
        held[-1] += last * (rank == pp - 1)
        chunks.append(_filled(number, held, last_rank=rank == pp - 1))
    counts = [chunks[rank][v] for v in range(vpp) for rank in range(pp)]
    return slots_from_counts(counts, mtp=problem.model.mtp_layers > 0)


def _filled(layers: int, load: list[int], *, last_rank: bool) -> list[int]:
    """Layers of each chunk of a rank whose chunks carry ``load`` already: each to the emptiest."""
    load, counts = [*load], [0] * len(load)
    order = [*range(len(load) - 1, -1, -1)]
    if last_rank:
        order = order[1:] + order[:1]
    for _ in range(layers):
        chunk = min(order, key=load.__getitem__)
        load[chunk] += 1
        counts[chunk] += 1
    return counts


def kind_counts(card: ModelCard, slot: Slot) -> Counter[LayerKind]:
    """How many decoder layers of each kind a slot holds."""
    return Counter(card.layer_kinds[slot.first : slot.first + slot.count])


def rank_slots(slots: Sequence[Slot], pp: int, rank: int) -> tuple[Slot, ...]:
    """Slots of one pipeline rank, chunk after chunk."""
    return tuple(slots[rank::pp])
