"""What each rank of a pipeline may hold and keeps alive, by its number of layers: numpy tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import numpy as np

from meshplan.constraints.pipeline import kind_counts, rank_slots
from meshplan.constraints.problem import Problem
from meshplan.scenarios.model_card import LayerKind
from meshplan.solver.axes import Array, Mask
from meshplan.solver.known import twin
from meshplan.solver.shapes import Shape, least_layers, main_kind, most_layers, mtp_slot
from meshplan.solver.space import fixed_slots
from meshplan.solver.windows import rank_kind_ranges


@dataclass(frozen=True, eq=False)
class RankTables:
    """What the ranks of a shape may hold; stacked, what those of several shapes may.

    Entry ``[rank, i]`` of each array is about ``layers[rank, i]`` decoder layers, or
    ``layers[0, i]`` where all ranks have the same numbers: consecutive ones.

    Attributes
    ----------
    layers
        Numbers of decoder layers.
    possible
        Whether a rank can hold so many.
    live
        Live layer-micro-batches if all layers were of the main kind.
    count, live_count
        By other kind: least and most layers of it, and least and most live ones.
    live_with_mtp, mtp_live
        ``[i]`` of the rank with the MTP layers: like ``live`` at the moment at which most
        micro-batches of the chunk that holds them are alive, and how many these are.
    most_live
        By rank: most micro-batches of any chunk that are alive at once.
    """

    layers: Array
    possible: Mask
    live: Array
    count: dict[LayerKind, tuple[Array, Array]]
    live_count: dict[LayerKind, tuple[Array, Array]]
    live_with_mtp: Array
    mtp_live: Array
    most_live: Array

    def at(self, shapes: Array) -> RankTables:
        """Of a list of shapes, from stacked tables."""
        return _mapped([self], lambda arrays: arrays[0][shapes])


def stacked(tables: Sequence[RankTables]) -> RankTables:
    """Tables of several shapes of one pipeline degree as one, with a dimension more."""
    return _mapped(tables, np.stack)


def _mapped(tables: Sequence[RankTables], function: Any) -> RankTables:
    """Each array (or pair of them, by kind) as a function of those of all tables."""
    first = tables[0]
    mapped: dict[str, Any] = {}
    for field in fields(first):
        parts = [getattr(one, field.name) for one in tables]
        if isinstance(parts[0], dict):
            mapped[field.name] = {
                kind: tuple(function([part[kind][side] for part in parts]) for side in (0, 1))
                for kind in parts[0]
            }
        else:
            mapped[field.name] = function(parts)
    return RankTables(**mapped)


def rank_tables(problem: Problem, shape: Shape, most: int) -> RankTables:
    """Tables of all ranks of a shape, none of which holds more than ``most`` layers.

    The numbers of layers are the same for all shapes of a pipeline degree, but a split that the
    scenario fixes leaves each rank one.
    """
    return _rank_tables(twin(problem), shape, most)


@lru_cache(maxsize=1024)
def _rank_tables(problem: Problem, shape: Shape, most: int) -> RankTables:
    fixed = fixed_slots(problem, shape.pp, shape.vpp)
    others = tuple(kind for kind in problem.kinds if kind != main_kind(problem))
    moments = _moments(shape)
    if fixed is not None:
        slots = [rank_slots(fixed, shape.pp, rank) for rank in range(shape.pp)]
        sizes = np.array([[[s.count for s in of_rank]] for of_rank in slots], dtype=np.int64)
        layers, possible = sizes.sum(axis=2), np.ones(sizes.shape[:2], dtype=bool)
        counts = [[kind_counts(problem.model, slot) for slot in of_rank] for of_rank in slots]
        held = {k: np.array([[[c[k] for c in of_rank]] for of_rank in counts]) for k in others}
        ranges = {kind: (number, number) for kind, number in held.items()}
    else:
        numbers = _numbers(problem, shape.pp, most)
        least = np.array([least_layers(shape, rank) for rank in range(shape.pp)])[:, None]
        layers = numbers[None, :]
        possible = (layers >= least) & (layers <= min(most, most_layers(problem, shape)))
        sizes = _sizes(shape, numbers.tolist())
        # The first chunks of the ranks before each one hold at least so many layers.
        fewest = np.clip(least[:, 0], problem.model.layers - (shape.pp - 1) * most, most)
        first = [shape.chunks(rank, n)[0] for rank, n in enumerate(fewest.tolist())]
        earlier = np.cumsum([0, *first[:-1]])
        ranges = {kind: rank_kind_ranges(problem, kind, sizes, earlier) for kind in others}
    alive = sizes @ moments.transpose(0, 2, 1)
    # The moment at which most is alive if all layers are alike.
    best = np.take_along_axis(moments, alive.argmax(axis=2)[:, :, None], axis=1)
    rank, chunk = reversed(divmod(mtp_slot(problem, shape), shape.pp))
    late = max(shape.moments(rank), key=lambda x: (x[chunk], sum(x)))
    return RankTables(
        layers=layers,
        possible=possible,
        live=alive.max(axis=2),
        count={kind: (low.sum(axis=2), high.sum(axis=2)) for kind, (low, high) in ranges.items()},
        live_count={
            kind: ((best * low).sum(axis=2), (best * high).sum(axis=2))
            for kind, (low, high) in ranges.items()
        },
        live_with_mtp=sizes[rank] @ np.array(late, dtype=np.int64),
        mtp_live=np.array(late[chunk]),
        most_live=moments.max(axis=(1, 2)),
    )


def _numbers(problem: Problem, pp: int, most: int) -> Array:
    """Layers that a rank can hold when none holds more than ``most``."""
    fewest = max(0, problem.model.layers - (pp - 1) * most)
    return np.arange(min(fewest, most), most + 1)


def _sizes(shape: Shape, numbers: Sequence[int]) -> Array:
    """[rank, i, chunk]: layers of each chunk of a rank with ``numbers[i]`` layers."""
    last = [shape.chunks(shape.pp - 1, n) for n in numbers]
    sizes = np.empty((shape.pp, len(numbers), shape.vpp), dtype=np.int64)
    sizes[:-1] = [shape.chunks(0, n) for n in numbers]
    sizes[-1] = last
    return sizes


@lru_cache(maxsize=1024)
def _moments(shape: Shape) -> Array:
    """[rank, moment, chunk]: live micro-batches; ranks with fewer moments end with zeros."""
    moments = [shape.moments(rank) for rank in range(shape.pp)]
    table = np.zeros((shape.pp, max(map(len, moments)), shape.vpp), dtype=np.int64)
    for rank, vectors in enumerate(moments):
        table[rank, : len(vectors)] = vectors
    return table


def thriftiest(tables: Sequence[RankTables]) -> RankTables:
    """The least that the ranks keep alive under any of several shapes of one pipeline degree.

    The split is free, so that MTP layers are on the last rank.
    """
    everything = stacked(tables)
    possible: Mask = np.logical_or.reduce(everything.possible)

    def least(array: Array, sign: int = 1, where: Mask = everything.possible) -> Array:
        found: Array = np.where(where, sign * array, np.iinfo(np.int64).max).min(axis=0)
        return sign * np.where(where.any(axis=0), found, 0)

    def ranges(pairs: dict[LayerKind, tuple[Array, Array]]) -> dict[LayerKind, tuple[Array, Array]]:
        return {kind: (least(low), least(high, -1)) for kind, (low, high) in pairs.items()}

    return RankTables(
        layers=tables[0].layers,
        possible=possible,
        live=least(everything.live),
        count=ranges(everything.count),
        live_count=ranges(everything.live_count),
        live_with_mtp=least(everything.live_with_mtp, where=everything.possible[:, -1]),
        mtp_live=everything.mtp_live.min(axis=0),
        most_live=everything.most_live.min(axis=0),
    )


__all__ = ["RankTables", "rank_tables", "stacked", "thriftiest"]
