"""The search: the best plan of a scenario and the proof that none is better.

1.  For each pipeline degree the rules over degrees are joined into legal rows, and every cost is
    tabulated once per combination of the decisions that it reads (:mod:`~meshplan.solver.space`,
    :mod:`~meshplan.solver.costs`).  A *cell* fixes every decision but the layers' places.
2.  Every cell gets a lower bound of its step time that holds for every split
    (:mod:`~meshplan.solver.bounds`).
3.  Cells are handed to CP-SAT in the order of their bounds; the integer program of a cell places
    its layers on all pipeline slots (:mod:`~meshplan.solver.program`).  When the next bound is no
    better than the best plan found, the best plan is proved optimal.
4.  The same way, within ``dp_tolerance`` of the best step time: the most DP; with that DP the
    least peak memory in whole GiB; then the least step time; then the canonical order of decisions.

Every plan is costed again by :mod:`~meshplan.solver.judge` before it is returned.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from operator import itemgetter

import numpy as np

from meshplan.constraints.decisions import DECISIONS
from meshplan.constraints.layout import Layout, Value
from meshplan.constraints.memory.verdict import fills_host
from meshplan.constraints.problem import QUANTA_PER_GIB, Problem
from meshplan.constraints.rule import Rule
from meshplan.solver.axes import Array, Mask
from meshplan.solver.cell_solver import CellSolver
from meshplan.solver.cells import UNLIMITED, Cell, Pool, Region, in_order
from meshplan.solver.found import Found, canonical_key
from meshplan.solver.judge import active_rules, cost, violations
from meshplan.solver.refuted import Refuted, memory_vectors
from meshplan.solver.regions import Space

#: Cells that the first round of deepening looks at, at least; each round looks at twice as many.
_FIRST_ROUND = 256
#: Growth of the step-time limit from one round of deepening to the next, at least.
_GROWTH = 1.02
#: Share of the memory that the cells of :meth:`Search._good_plan` need at most, how many of them
#: are looked at in each region, and how many are tried.
_ROOMY = 0.9
_SCREENED = 256
_TRIED = 4
#: Mesh rows of each pipeline degree that are looked at before all others, wave after wave.
_WAVES = (24,)
#: Times as many are few: these are looked at all at once.
_FEW = 4
#: Cells of a pipeline degree that a mere search for feasibility tries first.
_ROOMIEST = 16
#: How far beyond the limit of its round a program may look for a plan.
_WIDER = 1.3
#: Parts of the tolerance within which other degrees are looked for, one after the other.
_ROUNDS = (0.1, 0.3, 1)


class Search(CellSolver):
    """One search.

    Parameters
    ----------
    rules, pins, capacity
        What holds; by default what the problem says.
    deadline
        ``time.monotonic()`` after which :class:`~meshplan.solver.progress.LimitReached` is raised.
    report
        Called with the best scaled step time so far and its lower bound.
    reach
        How much slower than the fastest plan the slowest plans may be that are asked for, as a
        fraction; None if there is no limit.
    """

    def __init__(
        self,
        problem: Problem,
        *,
        rules: Sequence[Rule] | None = None,
        pins: dict[str, tuple[Value, ...]] | None = None,
        capacity: int | None = None,
        deadline: float | None = None,
        report: Callable[[int | None, int], None] | None = None,
        reach: float | None = None,
    ) -> None:
        space = Space(
            problem,
            tuple(active_rules(problem) if rules is None else rules),
            problem.pinned if pins is None else pins,
            problem.capacity if capacity is None else capacity,
            deadline,
        )
        super().__init__(space)
        self.report, self.reach = report, reach
        #: Memory of cells that do not fit, however long the step.
        self.overfull = Refuted()
        self.best: Found | None = None
        #: Scaled step time that a plan must beat to be looked for, if there is one.
        self.ceiling: int | None = None
        self.bound = 0

    def best_step(self) -> int | None:
        """Scaled step time that a plan must beat: of the best so far, else the ceiling."""
        return self.ceiling if self.best is None else self.scaled_step(self.best)

    def lower_capacity(self, capacity: int) -> None:
        """Go on with less memory; bounds that were worked out for more of it still hold."""
        assert capacity <= self.capacity
        self.space.capacity = self.capacity = capacity

    def start_from(self, layout: Layout) -> None:
        """Begin with a layout that is one of the space, if it is legal and fits."""
        if violations(self.problem, layout):
            return
        spent = cost(self.problem, layout)
        if spent.peak <= self.capacity and not fills_host(self.problem, spent.ranks):
            decisions = {name: layout.value(name) for name in DECISIONS}
            self.take(Found(decisions, layout.slots, spent.time.step_us, spent.peak))

    def must_beat(self, step: int) -> None:
        """Look for plans that are faster than a scaled step time only."""
        self.ceiling, self.space.most = step, step - 1

    def take(self, found: Found) -> None:
        """Make a plan the best one; what is out of reach of it is not wanted any more."""
        self.best = found
        if self.reach is not None:
            self.space.most = int(self.scaled_step(found) * (1 + self.reach))

    # -- feasibility -----------------------------------------------------------------------------

    def any_plan(self) -> bool:
        """Whether any layout obeys the rules and pins and fits in memory."""
        regions = []
        for region in self.space.each_region():
            if self._any_fits(self._roomiest(region)):
                return True
            regions.append(region)
        return any(self._any_fits(self.space.pools([region], UNLIMITED)) for region in regions)

    def regions(self) -> list[Region]:
        """Regions with all cells that may be wanted, by pipeline degree.

        On the way good plans are looked for, first among the rows with the least bounds: rows and
        cells that are out of ``reach`` then need no tables.
        """
        found: list[Region] = []
        if self.reach is None:
            for region in self.space.each_region():
                found.append(region)
                self._improve(region)
            return found
        bounded = [(self.space.least_step(rows), rows) for rows in self.space.each_rows()]
        bounded.sort(key=lambda item: int(item[0].min()))
        for number in (None,) if self.best_step() is not None else (*_WAVES, None):
            for i, (least, rows) in enumerate(bounded):
                near = np.flatnonzero(least <= self.space.most)
                near = near[np.argsort(least[near], kind="stable")]
                chosen, left = _spread(near, number)
                bounded[i] = least[left], rows.some(left)
                part = self.space.region(rows.some(chosen)) if len(chosen) else None
                if part is not None:
                    found.append(part)
                    self._improve(part)
        return sorted(found, key=lambda region: region.pp)

    def _improve(self, region: Region) -> None:
        """Look for a better plan among some cells of a region."""
        if self.best_step() is None:
            self.first_plan(region)
        self._good_plan(region)
        self._tell(self.best_step())

    def first_plan(self, region: Region) -> bool:
        """Whether one of the cells of a region that need the least memory has a plan."""
        for pool in self._roomiest(region):
            for _, cell in in_order([pool], [pool.least]):
                found = self._solve(cell, "step", UNLIMITED, self.capacity)
                if found is not None:
                    self.take(found)
                    return True
        return False

    def _roomiest(self, region: Region) -> Iterator[Pool]:
        roomiest = np.argsort(region.memory, kind="stable")[:_ROOMIEST]
        return self.space.refine(region, roomiest, UNLIMITED)

    def _any_fits(self, pools: Iterable[Pool]) -> bool:
        """Whether some cell fits: those that need the least come first.

        No step is too long here, so a cell that needs as much memory everywhere as one that does
        not fit is left out.
        """
        for pool in pools:
            vectors = memory_vectors(pool.costs, pool.ga)
            for index in np.argsort(vectors.sum(axis=1), kind="stable"):
                known = (pool.shape, 0, vectors[index], UNLIMITED, self.capacity)
                if self.overfull.excludes(*known):
                    continue
                found = self._solve((pool, int(index)), "step", UNLIMITED, self.capacity)
                if found is not None:
                    self.best = found
                    return True
                self.overfull.add(*known)
        return False

    def _good_plan(self, region: Region) -> None:
        """Look for a good plan among the fastest cells with memory to spare.

        The fastest cells of all often leave so little memory that no split fits; a time limit
        then would leave no plan but that of :meth:`first_plan`.
        """
        best = self.best_step()
        most = UNLIMITED if best is None else best - 1
        roomy = np.flatnonzero(region.memory <= _ROOMY * region.pp * self.capacity)
        fastest = roomy[np.argsort(region.bounds[roomy], kind="stable")[:_SCREENED]]
        self.space.screen(region, fastest, most)
        fastest = fastest[np.argsort(region.bounds[fastest], kind="stable")[:_TRIED]]
        pools = list(self.space.refine(region, fastest[region.bounds[fastest] <= most], most))
        cells = in_order(pools, [pool.least for pool in pools])
        for bound, cell in itertools.islice(cells, _TRIED):
            found = self._solve(cell, "step", min(most, int(bound * _WIDER)), self.capacity)
            if found is not None:
                self.take(found)
                return

    # -- the phases ------------------------------------------------------------------------------

    def fastest(self, regions: Sequence[Region]) -> int | None:
        """Least scaled step time, proved; None if nothing fits.

        Iterative deepening on the step time: a round refines all cells whose bound lies within
        its limit and solves those whose refined bound does, best first.  A plan found is optimal
        once no bound is below it; without one the next round has a wider limit.
        """
        if not regions:
            return None
        coarse = np.sort(np.concatenate([r.bounds for r in regions]))
        if not len(coarse):
            return None
        self.bound = max(self.bound, int(coarse[0]))
        cells, most = _FIRST_ROUND, 0
        best = self.best_step()
        while True:
            widest = UNLIMITED if cells >= len(coarse) else int(coarse[cells])
            most = min(max(widest, int(most * _GROWTH)), UNLIMITED)
            if best is not None:
                most = min(most, best)
            best = self._fastest_of(self.space.pools(regions, most), most, best)
            if best is not None and best <= most:
                self.bound = best
                return best
            self.bound = most + 1
            if most >= UNLIMITED:
                return None
            cells *= 2

    def _fastest_of(self, pools: list[Pool], most: int, best: int | None) -> int | None:
        """Best of these cells and of the best so far; it may lie beyond ``most``."""
        wide = min(int(most * _WIDER), UNLIMITED)
        for bound, cell in in_order(pools, [pool.least for pool in pools]):
            if best is not None and bound >= best:
                break
            self.bound = max(self.bound, bound)
            limit = wide if best is None else min(wide, best - 1)
            found = self._solve(cell, "step", limit, self.capacity)
            if found is not None:
                self.best = found
                best = self.scaled_step(self.best)
            self._tell(best)
        return best

    def _tell(self, best: int | None) -> None:
        if self.report is not None:
            self.report(best, self.bound)

    def most_data_parallel(self, regions: Sequence[Region], most: int) -> list[Pool]:
        """Cells with the most DP for which some plan within ``most`` exists."""
        degrees = [r.dp[r.indices[0][r.bounds <= most]] for r in regions]
        for dp in sorted({int(v) for one in degrees for v in np.unique(one)}, reverse=True):
            chosen = self.space.pools(regions, most, partial(_with_dp, dp))
            if self.best is not None and self.best.decisions["dp"] == dp:
                return chosen
            for _, cell in in_order(chosen, [pool.least for pool in chosen]):
                found = self._solve(cell, "step", most, self.capacity)
                if found is not None:
                    self.best = found
                    return chosen
        return []

    def least_peak(self, pools: list[Pool], most: int, tries: int | None = None) -> int:
        """Least peak memory among these cells within ``most``, in whole GiB.

        With ``tries`` only so many cells are solved: a small peak then, not surely the least.

        Returns
        -------
        int
            The limit in quanta: a whole number of GiB, or the capacity.
        """
        assert self.best is not None
        limit = min(_whole_gib(self.best.peak), self.capacity)
        cells = in_order(pools, self.space.least_peaks(pools, most))
        for bound, cell in itertools.islice(cells, tries):
            if _whole_gib(bound) >= limit:
                break
            below = _whole_gib(limit) - QUANTA_PER_GIB
            found = self._solve(cell, "peak", most, below, bound)
            if found is not None:
                self.best = found
                limit = _whole_gib(self.best.peak)
        return limit

    def canonical(self, pools: list[Pool], most: int, peak: int) -> None:
        """Among plans within this peak: the least step time, then the canonical order."""
        assert self.best is not None
        if self.best.peak <= peak:
            most = min(most, self.scaled_step(self.best))
        kept = self.space.within(pools, most, peak)
        best = self.scaled_step(self.best)
        for bound, cell in in_order(kept, [pool.least for pool in kept]):
            if bound >= best:
                break
            found = self._solve(cell, "step", best - 1, peak)
            if found is not None:
                self.best = found
                best = self.scaled_step(self.best)
        ties = [(pool, i) for pool in kept for i in range(len(pool.ga)) if pool.least[i] <= best]
        for cell in sorted(ties, key=_canonical_key):
            found = self._solve(cell, "step", best, peak)
            if found is not None:
                self.best = found
                return

    def others(
        self, regions: Sequence[Region], most: int, seen: set[tuple[int, ...]], count: int
    ) -> list[Found]:
        """Up to ``count`` plans of other degrees within ``most``, in the order of their bounds.

        ``seen`` are (tp, cp, pp, ep, etp) that are not wanted again.
        """
        found: list[Found] = []
        tried = set(seen)
        for part in _ROUNDS:
            limit = self.bound + int((most - self.bound) * part)
            pools = self.space.pools(regions, limit, partial(_other_degrees, tried))
            for cell in _in_canonical_order(pools):
                if len(found) == count:
                    return found
                pool, index = cell
                degrees = pool.region.degrees[int(pool.indices[0][index])]
                if degrees in tried:
                    continue
                tried.add(degrees)
                other = self._solve(cell, "step", most, self.capacity)
                if other is not None:
                    found.append(other)
        return found


def _spread(ordered: Array, number: int | None) -> tuple[Array, Array]:
    """About ``number`` of some rows (None for all), first densely and then ever fewer; the others.

    Both ascending.
    """
    if number is None or len(ordered) <= _FEW * number:
        return np.sort(ordered), ordered[:0]
    at = np.unique(np.geomspace(1, len(ordered), number).astype(np.int64) - 1)
    return np.sort(ordered[at]), np.sort(np.delete(ordered, at))


def _in_canonical_order(pools: Sequence[Pool]) -> Iterator[Cell]:
    """Cells by their bounds, those of equal bounds in the canonical order of their decisions."""
    cells = in_order(pools, [pool.least for pool in pools])
    for _, equal in itertools.groupby(cells, key=itemgetter(0)):
        yield from sorted((cell for _, cell in equal), key=_canonical_key)


def _canonical_key(cell: Cell) -> tuple[int, ...]:
    pool, index = cell
    return canonical_key(pool.decisions(index))


def _with_dp(dp: int, region: Region) -> Mask:
    """Mesh rows with this data parallelism."""
    return np.equal(region.dp, dp)


def _other_degrees(tried: set[tuple[int, ...]], region: Region) -> Mask:
    """Mesh rows with degrees that were not tried yet."""
    return np.array([row not in tried for row in region.degrees], dtype=bool)


def _whole_gib(quanta: int) -> int:
    """Quanta rounded up to whole GiB."""
    return -(-quanta // QUANTA_PER_GIB) * QUANTA_PER_GIB
