"""Pipeline shapes: what each rank can hold, and which micro-batches it keeps alive.

A shape is (pp, vpp, live class, end).  The search space of a free split: every slot but the first
and the last holds at least one layer, and the chunks of a rank differ by one layer at most, but for
the last slot, which may hold none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from meshplan.constraints.layout import Slot
from meshplan.constraints.pipeline import chunk_counts, slots_from_rank_counts
from meshplan.constraints.problem import Problem
from meshplan.constraints.schedule import live_chunks
from meshplan.scenarios.model_card import LayerKind
from meshplan.solver.space import fixed_slots


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


def main_kind(problem: Problem) -> LayerKind:
    """The most frequent kind of layer."""
    counts = problem.kind_counts
    return max(problem.kinds, key=lambda kind: counts[kind])


def mtp_slot(problem: Problem, shape: Shape) -> int:
    """Slot that holds the MTP layers: the last, unless a given layout has them elsewhere."""
    fixed = fixed_slots(problem, shape.pp, shape.vpp) or ()
    return next((i for i, slot in enumerate(fixed) if slot.mtp), shape.pp * shape.vpp - 1)


def least_layers(shape: Shape, rank: int) -> int:
    """Fewest layers of a rank in a free split: one a slot, none needed beside E or L."""
    if shape.pp == 1:
        return 0
    return shape.vpp - (rank in (0, shape.pp - 1))


def most_layers(problem: Problem, shape: Shape) -> int:
    """Most layers that one rank can hold while the others keep their fewest."""
    fewest = [least_layers(shape, rank) for rank in range(shape.pp)]
    return problem.model.layers - sum(fewest) + max(fewest)


def free_shapes(problem: Problem, pp: int, vpp: int, level: int) -> tuple[Shape, ...]:
    """Shapes of these degrees: one for a given split, else one for each end of the pipeline."""
    extra = problem.extra_warmup
    if vpp == 1 or fixed_slots(problem, pp, vpp) is not None:
        return (Shape(pp, vpp, level, extra),)
    return tuple(Shape(pp, vpp, level, extra, bare_end=bare) for bare in (False, True))
