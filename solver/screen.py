"""Bounds of cells that hold whatever the virtual pipeline degree is.

Between the coarse bound and that of one shape (:mod:`~meshplan.solver.rank_bounds`): rank by rank
like the latter, with the fewest micro-batches that any of the virtual degrees keeps alive.  A cell
that it excludes needs no bound for each of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from meshplan.constraints.problem import Problem
from meshplan.solver.known import twin
from meshplan.solver.rank_bounds import Bounds
from meshplan.solver.rank_tables import RankTables, rank_tables, stacked, thriftiest
from meshplan.solver.shapes import free_shapes, live_class


@dataclass(frozen=True, eq=False)
class AnyVppBounds(Bounds):
    """Bounds of cells of one pipeline degree over several virtual degrees.

    Of ``shapes``, which have ``vpp = 1``, the levels count, in micro-batches a step;
    ``costs.p2p_us`` is the least over all virtual degrees.

    Attributes
    ----------
    degrees
        The virtual degrees.
    """

    degrees: tuple[int, ...] = (1,)

    def _tables(self, top: int) -> RankTables:
        return stacked(
            [
                _thriftiest(twin(self.problem), shape.pp, self.degrees, shape.level, top)
                for shape in self.shapes
            ]
        )

    def _chunks(self) -> list[int]:
        return [max(self.degrees)] * len(self.shapes)


@lru_cache(maxsize=256)
def _thriftiest(
    problem: Problem, pp: int, degrees: tuple[int, ...], level: int, most: int
) -> RankTables:
    return thriftiest(
        [
            rank_tables(problem, shape, most)
            for vpp in degrees
            for shape in free_shapes(problem, pp, vpp, live_class(pp, vpp, level))
        ]
    )
