"""Pipeline shapes: what each rank can hold, and which micro-batches it keeps alive.

A shape is (pp, vpp, live class, end).  The search space of a free split: every slot but the first
and the last holds at least one layer, and the chunks of a rank differ by one layer at most, but for
the last slot, which may hold none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from meshplan.constraints.layout import Slot
from meshplan.constraints.pipeline import (
    chunk_counts,
    kind_counts,
    rank_slots,
    slots_from_rank_counts,
)
from meshplan.constraints.problem import Problem
from meshplan.constraints.schedule import live_chunks
from meshplan.scenarios.model_card import LayerKind
from meshplan.solver.axes import Array
from meshplan.solver.space import fixed_slots
from meshplan.solver.windows import rank_kind_range


def live_class(pp: int, vpp: int, ga: int) -> int:
    """Micro-batches a step beyond which the live sets of all ranks stay the same."""
    return min(ga, 2 * pp if vpp > 1 else pp)


@dataclass(frozen=True)
class Shape:
    """One pipeline shape.

    ``level`` is the live class of the micro-batches a step, ``extra`` the chunks that the schedule
    runs forward beyond its warm-up; with ``bare_end`` the last slot holds no decoder layer.
    """

    pp: int
    vpp: int
    level: int
    extra: int = 0
    bare_end: bool = False

    def chunks(self, rank: int, layers: int) -> tuple[int, ...]:
        """Layers of each chunk of a rank that holds ``layers`` of them."""
        last = rank == self.pp - 1
        return chunk_counts(layers, self.vpp, last_rank=last, bare_end=self.bare_end)

    def slots(self, layers: Sequence[int], *, mtp: bool) -> tuple[Slot, ...]:
        """Slots of ranks with so many layers each."""
        return slots_from_rank_counts(layers, self.vpp, mtp=mtp, bare_end=self.bare_end)

    def moments(self, rank: int) -> tuple[tuple[int, ...], ...]:
        """Live micro-batches of each chunk of a rank at the worst moments of the step."""
        return live_chunks(self.pp, self.vpp, self.level, rank, self.extra)


@dataclass(frozen=True, eq=False)
class RankTable:
    """What one rank may hold: entry ``i`` of every array is ``layers[i]`` decoder layers.

    Attributes
    ----------
    layers
        Number of decoder layers.
    live
        Live layer-micro-batches if all layers were of the main kind.
    count, live_count
        By other kind: least and most layers of it, and least and most live ones.
    live_with_mtp, mtp_live
        Like ``live`` at the moment at which most micro-batches of the chunk that holds (or, on
        another rank, would hold) the MTP layers are alive, and how many these are.
    most_live
        Most micro-batches of any chunk that are alive at once.
    """

    layers: Array
    live: Array
    count: dict[LayerKind, tuple[Array, Array]]
    live_count: dict[LayerKind, tuple[Array, Array]]
    live_with_mtp: Array
    mtp_live: int
    most_live: int


def main_kind(problem: Problem) -> LayerKind:
    """The most frequent kind of layer."""
    counts = problem.kind_counts
    return max(problem.kinds, key=lambda kind: counts[kind])


@lru_cache(maxsize=4096)
def rank_table(problem: Problem, shape: Shape, rank: int, most: int) -> RankTable:
    """Tables of one rank for up to ``most`` layers (a fixed split has a single entry)."""
    main = main_kind(problem)
    others = tuple(kind for kind in problem.kinds if kind != main)
    vectors = shape.moments(rank)
    fixed = fixed_slots(problem, shape.pp, shape.vpp)
    fewest = [_fewest(problem, shape, r, most) for r in range(rank)]
    earlier = sum(shape.chunks(r, n)[0] for r, n in enumerate(fewest))
    entries: list[tuple[tuple[int, ...], dict[LayerKind, tuple[tuple[int, int], ...]]]] = []
    if fixed is not None:
        slots = rank_slots(fixed, shape.pp, rank)
        entries.append((tuple(s.count for s in slots), _exact(problem, slots, others)))
    else:
        for n in range(least_layers(shape, rank), most + 1):
            chunks = shape.chunks(rank, n)
            ranges = {
                kind: rank_kind_range(problem, kind, chunks, shape.pp, rank, earlier)
                for kind in others
            }
            entries.append((chunks, ranges))
    live: list[int] = []
    count: dict[LayerKind, list[tuple[int, int]]] = {kind: [] for kind in others}
    live_count: dict[LayerKind, list[tuple[int, int]]] = {kind: [] for kind in others}
    for chunks, ranges in entries:
        best = max(vectors, key=lambda x, c=chunks: _dot(x, c))  # type: ignore[misc]
        live.append(_dot(best, chunks))
        for kind in others:
            lows, highs = [r[0] for r in ranges[kind]], [r[1] for r in ranges[kind]]
            count[kind].append((sum(lows), sum(highs)))
            live_count[kind].append((_dot(best, lows), _dot(best, highs)))
    chunk = mtp_slot(problem, shape) // shape.pp
    late = max(vectors, key=lambda x: (x[chunk], sum(x)))
    return RankTable(
        layers=np.array([sum(chunks) for chunks, _ in entries], dtype=np.int64),
        live=np.array(live, dtype=np.int64),
        count={kind: _columns(pairs) for kind, pairs in count.items()},
        live_count={kind: _columns(pairs) for kind, pairs in live_count.items()},
        live_with_mtp=np.array([_dot(late, chunks) for chunks, _ in entries], dtype=np.int64),
        mtp_live=late[chunk],
        most_live=max(max(vector) for vector in vectors),
    )


def mtp_slot(problem: Problem, shape: Shape) -> int:
    """Slot that holds the MTP layers: the last, unless a given layout has them elsewhere."""
    fixed = fixed_slots(problem, shape.pp, shape.vpp) or ()
    return next((i for i, slot in enumerate(fixed) if slot.mtp), shape.pp * shape.vpp - 1)


def least_layers(shape: Shape, rank: int) -> int:
    """Fewest layers of a rank in a free split: one a slot, none needed beside E or L."""
    if shape.pp == 1:
        return 0
    return shape.vpp - (rank in (0, shape.pp - 1))


def _fewest(problem: Problem, shape: Shape, rank: int, most: int) -> int:
    """Fewest layers of a rank when no rank holds more than ``most``."""
    return max(least_layers(shape, rank), problem.model.layers - (shape.pp - 1) * most)


def most_layers(problem: Problem, shape: Shape) -> int:
    """Most layers that one rank can hold while the others keep their fewest."""
    fewest = [least_layers(shape, rank) for rank in range(shape.pp)]
    return problem.model.layers - sum(fewest) + max(fewest)


def _exact(
    problem: Problem, slots: tuple[Slot, ...], others: tuple[LayerKind, ...]
) -> dict[LayerKind, tuple[tuple[int, int], ...]]:
    counts = [kind_counts(problem.model, slot) for slot in slots]
    return {kind: tuple((c[kind], c[kind]) for c in counts) for kind in others}


def _columns(pairs: list[tuple[int, int]]) -> tuple[Array, Array]:
    array = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return array[:, 0], array[:, 1]


def _dot(a: tuple[int, ...], b: tuple[int, ...] | list[int]) -> int:
    return sum(x * y for x, y in zip(a, b, strict=True))


def free_shapes(problem: Problem, pp: int, vpp: int, level: int) -> tuple[Shape, ...]:
    """Shapes of these degrees: one for a given split, else one for each end of the pipeline."""
    extra = problem.extra_warmup
    if vpp == 1 or fixed_slots(problem, pp, vpp) is not None:
        return (Shape(pp, vpp, level, extra),)
    return tuple(Shape(pp, vpp, level, extra, bare_end=bare) for bare in (False, True))
