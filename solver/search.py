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
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import numpy as np

from meshplan.constraints.layout import Value
from meshplan.constraints.memory.verdict import fills_host
from meshplan.constraints.problem import QUANTA_PER_GIB, Problem
from meshplan.constraints.rule import Rule
from meshplan.solver.axes import Array, Mask
from meshplan.solver.found import Found, InternalError, canonical_key, to_layout
from meshplan.solver.judge import active_rules, cost
from meshplan.solver.placements import IMPOSSIBLE, exact_bounds
from meshplan.solver.program import Answer, Goal, solve_program
from meshplan.solver.rank_bounds import Bounds
from meshplan.solver.refuted import Refuted, memory_vectors
from meshplan.solver.regions import UNLIMITED, Cell, Pool, Region, Space, in_order

#: Cells that the first round of deepening looks at, at least; each round looks at twice as many.
_FIRST_ROUND = 256
#: Growth of the step-time limit from one round of deepening to the next, at least.
_GROWTH = 1.02
#: Share of the memory that the cells of :meth:`Search.first_good_plans` need at most, and how many
#: of them are tried for each pipeline degree.
_ROOMY = 0.7
_TRIED = 2
#: Cells of a pipeline degree that a mere search for feasibility tries first.
_ROOMIEST = 16
#: How far beyond the limit of its round a program may look for a plan.
_WIDER = 1.3
#: Parts of the tolerance within which other degrees are looked for, one after the other.
_ROUNDS = (0.1, 0.3, 1)


class Search:
    """One search; :meth:`run` is the algorithm."""

    def __init__(
        self,
        problem: Problem,
        *,
        rules: Sequence[Rule] | None = None,
        pins: dict[str, tuple[Value, ...]] | None = None,
        capacity: int | None = None,
        deadline: float | None = None,
        report: Callable[[int | None, int], None] | None = None,
    ) -> None:
        self.problem = problem
        self.capacity = problem.capacity if capacity is None else capacity
        self.space = Space(
            problem,
            tuple(active_rules(problem) if rules is None else rules),
            problem.pinned if pins is None else pins,
            self.capacity,
            deadline,
        )
        self.statistics = self.space.statistics
        self.deadline = deadline
        self.report = report
        self.refuted = Refuted()
        #: Memory of cells that do not fit, however long the step.
        self.overfull = Refuted()
        self.best: Found | None = None
        #: Scaled step time that a plan must beat to be looked for, if there is one.
        self.ceiling: int | None = None
        self.bound = 0

    # -- the programs ----------------------------------------------------------------------------

    def _solve(
        self, cell: Cell, minimise: str, most: int, peak: int, least: int = 0
    ) -> Found | None:
        """Plan of one cell with the best split, or None if none lies within the limits.

        ``least`` is a lower bound of the peak.
        """
        pool, index = cell
        gbs = int(pool.scale[index])
        most_step = int(self.space.unscaled(most, pool.scale[index]))
        vector = pool.vectors[index]
        if self.refuted.excludes(pool.shape, gbs, vector, most_step, peak):
            return None
        single = pool.take(np.array([index]))
        least = int(pool.step[index]) if minimise == "step" else least
        answer = self._answer(single, Goal(minimise, [most_step], peak, least))
        if answer is None:
            self.refuted.add(pool.shape, gbs, vector, most_step, peak)
            return None
        if answer.proved and minimise == "step":
            self.refuted.add(pool.shape, gbs, vector, answer.objective - 1, peak)
        elif answer.proved:
            self.refuted.add(pool.shape, gbs, vector, most_step, answer.objective - 1)
        return self._found(single, answer, minimise)

    def _answer(self, cell: Pool, goal: Goal) -> Answer | None:
        """Best split of one cell, from all its placements if they are few, else by a program."""
        problem, shape, ga = self.problem, cell.shape, int(cell.ga[0])
        most_step = int(goal.most_step[0])
        exact = exact_bounds(problem, shape, cell.costs, ga, most_step, goal.most_peak)
        if exact is IMPOSSIBLE:
            return None
        if exact is not None:
            step = goal.minimise == "step"
            objective = exact.step if step else exact.peak
            slots = shape.slots(
                exact.fastest if step else exact.leanest, mtp=problem.model.mtp_layers > 0
            )
            return Answer(0, slots, objective, objective, proved=True)
        limit = 1e6 if self.deadline is None else self.deadline - time.monotonic()
        self.statistics.programs += 1
        return solve_program(problem, shape, cell.costs, [ga], goal, limit)

    def _found(self, pool: Pool, answer: Answer, minimised: str) -> Found:
        """The plan of an answer, costed again without the solver.

        Raises
        ------
        InternalError
            If the two disagree.
        """
        decisions = pool.decisions(answer.cell)
        layout = to_layout(decisions, answer.slots)
        spent = cost(self.problem, layout)
        found = Found(decisions, answer.slots, spent.time.step_us, spent.peak)
        confirmed = found.step if minimised == "step" else found.peak
        no_room = fills_host(self.problem, spent.ranks)
        if confirmed != answer.objective or found.peak > self.capacity or no_room:
            raise InternalError(
                f"the solver's {minimised} is {answer.objective} and the checker's {confirmed} "
                f"(peak {found.peak} of {self.capacity}) for {layout}"
            )
        return found

    def best_of(self, cell: Cell, most: int, peak: int) -> Found | None:
        """The fastest plan of one cell within a scaled step time and a peak, if there is one."""
        return self._solve(cell, "step", most, peak)

    def best_step(self) -> int | None:
        """Scaled step time that a plan must beat: of the best so far, else the ceiling."""
        return self.ceiling if self.best is None else self.scaled_step(self.best)

    def scaled_step(self, found: Found) -> int:
        """Step time of a plan scaled to the largest batch."""
        return -(-found.step * self.space.largest_batch // int(found.decisions["gbs"]))

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
        """All regions; on the way some plan is looked for, as a limit for what follows."""
        regions = []
        for region in self.space.each_region():
            regions.append(region)
            if self.best is None and self.first_plan(region):
                self._tell(self.best_step())
        return regions

    def first_plan(self, region: Region) -> bool:
        """Whether one of the cells of a region that need the least memory has a plan."""
        for pool in self._roomiest(region):
            for _, cell in in_order([pool], [pool.least]):
                found = self._solve(cell, "step", UNLIMITED, self.capacity)
                if found is not None:
                    self.best = found
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

    def first_good_plans(self, regions: Sequence[Region]) -> None:
        """Look for a good plan among the fastest cells with memory to spare.

        The fastest cells of all often leave so little memory that no split fits; the time limit
        then would leave no plan but that of :meth:`first_plan`.
        """
        for region in regions:
            roomy = np.flatnonzero(region.memory <= _ROOMY * region.pp * self.capacity)
            fastest = roomy[np.argsort(region.bounds[roomy], kind="stable")[:_TRIED]]
            best = self.best_step()
            most = UNLIMITED if best is None else best - 1
            pools = list(self.space.refine(region, fastest, most))
            cells = in_order(pools, [pool.least for pool in pools])
            for bound, cell in itertools.islice(cells, _TRIED):
                limit = min(most, int(bound * _WIDER))
                found = self._solve(cell, "step", limit, self.capacity)
                if found is not None:
                    self.best = found
                    break
            self._tell(self.best_step())

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

    def least_peak(self, pools: list[Pool], most: int) -> int:
        """Least peak memory among these cells within ``most``, in whole GiB.

        Returns
        -------
        int
            The limit in quanta: a whole number of GiB, or the capacity.
        """
        assert self.best is not None
        limit = min(_whole_gib(self.best.peak), self.capacity)
        keys = [self._peak_bounds(pool, most) for pool in pools]
        for bound, cell in in_order(pools, keys):
            if _whole_gib(bound) >= limit:
                break
            below = _whole_gib(limit) - QUANTA_PER_GIB
            found = self._solve(cell, "peak", most, below, bound)
            if found is not None:
                self.best = found
                limit = _whole_gib(self.best.peak)
        return limit

    def _peak_bounds(self, pool: Pool, most: int) -> Array:
        bounds = Bounds(self.problem, (pool.shape,), pool.costs, pool.ga)
        return bounds.least_peak(self.capacity, self.space.unscaled(most, pool.scale))

    def canonical(self, pools: list[Pool], most: int, peak: int) -> None:
        """Among plans within this peak: the least step time, then the canonical order."""
        assert self.best is not None
        if self.best.peak <= peak:
            most = min(most, self.scaled_step(self.best))
        kept = [pool for some in pools for pool in self.space.bounded(some, most, peak)]
        best = self.scaled_step(self.best)
        for bound, cell in in_order(kept, [pool.least for pool in kept]):
            if bound >= best:
                break
            found = self._solve(cell, "step", best - 1, peak)
            if found is not None:
                self.best = found
                best = self.scaled_step(self.best)
        ties = [
            (canonical_key(pool.decisions(i)), pool, i)
            for pool in kept
            for i in range(len(pool.ga))
            if pool.least[i] <= best
        ]
        for _, pool, i in sorted(ties, key=lambda item: item[0]):
            found = self._solve((pool, i), "step", best, peak)
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
            for _, cell in in_order(pools, [pool.least for pool in pools]):
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


def _with_dp(dp: int, region: Region) -> Mask:
    """Mesh rows with this data parallelism."""
    return np.equal(region.dp, dp)


def _other_degrees(tried: set[tuple[int, ...]], region: Region) -> Mask:
    """Mesh rows with degrees that were not tried yet."""
    return np.array([row not in tried for row in region.degrees], dtype=bool)


def _whole_gib(quanta: int) -> int:
    """Quanta rounded up to whole GiB."""
    return -(-quanta // QUANTA_PER_GIB) * QUANTA_PER_GIB
