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
    least peak memory; then the least step time; then the canonical order of decisions.

Every plan is costed again by :mod:`~meshplan.solver.judge` before it is returned.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from meshplan.constraints.decisions import DECISIONS, GRAPH_SCOPES, RECOMPUTE_MODULES
from meshplan.constraints.layout import Layout, Slot, Value
from meshplan.constraints.problem import Problem
from meshplan.constraints.rule import Rule
from meshplan.solver.axes import Axes
from meshplan.solver.bounds import NEVER, Bounds, coarse_bounds, mesh_column
from meshplan.solver.costs import CellCosts, cell_costs
from meshplan.solver.judge import active_rules, cost
from meshplan.solver.meshes import MESH
from meshplan.solver.program import Answer, Goal, solve_program
from meshplan.solver.refuted import Refuted, cost_vectors
from meshplan.solver.shapes import Shape, live_class
from meshplan.solver.space import build_axes, vpp_choices

#: Cells that the first round of deepening looks at, at least; each round looks at twice as many.
_FIRST_ROUND = 256
#: Growth of the step-time limit from one round of deepening to the next, at least.
_GROWTH = 1.02
#: Cells of a pipeline degree that a mere search for feasibility tries first.
_ROOMIEST = 16
#: Cells whose coarse bounds, and whose refined bounds, are computed in one go.
_CELLS_AT_ONCE = 1_000_000
_REFINED_AT_ONCE = 8192
#: How far beyond the limit of its round a program may look for a plan.
_WIDER = 1.3
#: Limit of a round without a limit, us (51 days); times the largest batch it stays below 2^63.
_UNLIMITED = 1 << 42


@dataclass(frozen=True, eq=False)
class Region:
    """Cells of one pipeline degree whose memory may suffice, with their coarse bounds.

    Attributes
    ----------
    indices
        Position of each cell along every axis but vpp.
    bounds, memory
        Least step time of each cell, scaled; least memory of all its stages together, quanta.
    vpp_allowed
        By mesh row and vpp: whether the rules allow them together.
    ga, gbs
        By mesh row.
    least_memory
        Least memory of all stages together over all legal cells, also of those left out.
    """

    pp: int
    axes: Axes
    costs: CellCosts
    indices: tuple[np.ndarray, ...]
    bounds: np.ndarray
    memory: np.ndarray
    vpp_allowed: np.ndarray
    ga: np.ndarray
    gbs: np.ndarray
    least_memory: int


@dataclass(frozen=True, eq=False)
class Pool:
    """Cells of one pipeline shape with refined bounds, best first.

    ``indices`` are positions along the axes but vpp; ``least`` is the bound of the step time
    scaled to the largest batch.
    """

    region: Region
    shape: Shape
    vpp_index: int
    indices: tuple[np.ndarray, ...]
    costs: CellCosts
    ga: np.ndarray
    scale: np.ndarray
    least: np.ndarray
    step: np.ndarray

    def take(self, chosen: np.ndarray) -> Pool:
        """Some of the cells, in the given order."""
        return replace(
            self,
            indices=tuple(index[chosen] for index in self.indices),
            costs=self.costs.take(chosen),
            ga=self.ga[chosen],
            scale=self.scale[chosen],
            least=self.least[chosen],
            step=self.step[chosen],
        )

    def least_step(self) -> int:
        """Bound of the first cell's step time, us (not scaled)."""
        return int(self.step[0])

    def decisions(self, cell: int) -> dict[str, Value]:
        """All decisions of one cell."""
        return self.region.axes.values(
            (*(int(index[cell]) for index in self.indices), self.vpp_index)
        )


class InternalError(Exception):
    """Solver and checker disagree: a fault of meshplan, never a result."""


@dataclass
class Statistics:
    """What the search did."""

    cells: int = 0
    refined: int = 0
    programs: int = 0
    program_s: float = 0.0


@dataclass(frozen=True)
class Found:
    """A plan found by a program."""

    decisions: dict[str, Value]
    slots: tuple[Slot, ...]
    step: int
    peak: int


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
        self.rules = tuple(active_rules(problem) if rules is None else rules)
        self.pins = problem.pinned if pins is None else pins
        self.capacity = problem.capacity if capacity is None else capacity
        self.deadline = deadline
        self.report = report
        self.statistics = Statistics()
        self.refuted = Refuted()
        self.best: Found | None = None
        self.bound = 0
        self.largest_batch = max(int(v) for v in self.pins.get("gbs", problem.candidates["gbs"]))

    # -- the spaces ------------------------------------------------------------------------------

    def regions(self) -> list[Region]:
        """Cells of every pipeline degree that has legal rows."""
        return list(self.each_region())

    def each_region(self) -> Iterator[Region]:
        """One pipeline degree after the other."""
        for pp in self.pins.get("pp", self.problem.candidates["pp"]):
            vpp = vpp_choices(self.problem, int(pp), self.pins)
            if not vpp:
                continue
            axes = build_axes(self.problem, int(pp), self.rules, self.pins, vpp)
            if 0 not in axes.shape:
                yield self._region(axes)

    def _region(self, axes: Axes) -> Region:
        """Tabulate costs and coarse bounds, some mesh rows at a time to bound the memory used."""
        mesh_only = {"pp", *MESH}
        mixed = [rule for rule in self.rules if not set(rule.scope) <= mesh_only]
        costs = cell_costs(axes)
        vpp_allowed = axes.allowed(rule for rule in mixed if "vpp" in rule.scope)
        allowed = axes.allowed(rule for rule in mixed if "vpp" not in rule.scope)
        vpp_allowed = np.broadcast_to(vpp_allowed, (len(axes.mesh), 1, 1, 1, 1, axes.shape[5]))
        vpp_allowed = vpp_allowed[:, 0, 0, 0, 0, :]
        any_vpp = vpp_allowed.any(axis=1).reshape(-1, 1, 1, 1, 1, 1)
        ga, gbs = mesh_column(axes, "ga"), mesh_column(axes, "gbs")
        a_row = math.prod(axes.shape[1:5])
        step_rows = max(1, _CELLS_AT_ONCE // a_row)
        parts: list[tuple[np.ndarray, ...]] = []
        least_memory = NEVER
        for start in range(0, len(axes.mesh), step_rows):
            stop = start + step_rows
            part = costs.rows(start, stop)
            step, memory = coarse_bounds(self.problem, axes.pp, part, ga[start:stop])
            legal = any_vpp[start:stop] & (allowed[start:stop] if len(allowed) > 1 else allowed)
            full = (len(ga[start:stop]), *axes.shape[1:5], 1)
            memory = np.broadcast_to(np.where(legal, memory, NEVER), full)
            least_memory = min(least_memory, int(memory.min()))
            chosen = np.nonzero(memory <= axes.pp * self.capacity)
            scaled = self._scaled(np.broadcast_to(step, full)[chosen], gbs[start:stop][chosen[0], 0, 0, 0, 0, 0])
            parts.append((chosen[0] + start, *chosen[1:5], scaled, memory[chosen]))
        joined = [np.concatenate(columns) for columns in zip(*parts, strict=True)]
        self.statistics.cells += math.prod(axes.shape)
        return Region(
            axes.pp,
            axes,
            costs,
            tuple(joined[:5]),
            joined[5],
            joined[6],
            vpp_allowed,
            ga[:, 0, 0, 0, 0, 0],
            gbs[:, 0, 0, 0, 0, 0],
            least_memory,
        )

    def _scaled(self, step: np.ndarray, gbs: np.ndarray) -> np.ndarray:
        """Step time scaled to the largest batch, rounded up."""
        return -(-np.minimum(step, _UNLIMITED) * self.largest_batch // gbs)

    def pools(self, regions: Sequence[Region], most: int) -> list[Pool]:
        """Cells whose refined bound of the scaled step time is at most ``most``."""
        found = []
        for region in regions:
            chosen = np.nonzero(region.bounds <= most)[0]
            if len(chosen):
                found += self._refine(region, chosen, most)
        return found

    def _refine(self, region: Region, chosen: np.ndarray, most: int) -> Iterator[Pool]:
        indices = tuple(index[chosen] for index in region.indices)
        ga, gbs = region.ga[indices[0]], region.gbs[indices[0]]
        for vpp_index, (vpp,) in enumerate(region.axes.others["vpp"]):
            legal = region.vpp_allowed[indices[0], vpp_index]
            classes = np.array([live_class(region.pp, int(vpp), int(g)) for g in ga])
            for level in np.unique(classes[legal]):
                part = np.nonzero(legal & (classes == level))[0]
                shape = Shape(region.pp, int(vpp), int(level))
                for start in range(0, len(part), _REFINED_AT_ONCE):
                    some = part[start : start + _REFINED_AT_ONCE]
                    at = tuple(index[some] for index in indices)
                    costs = region.costs.at((*at, np.full_like(at[0], vpp_index)))
                    none = np.zeros_like(ga[some])
                    pool = Pool(
                        region, shape, vpp_index, at, costs, ga[some], gbs[some], none, none
                    )
                    yield from self._bounded(pool, most)

    def _bounded(self, pool: Pool, most: int) -> Iterator[Pool]:
        """The cells of a pool whose refined bound is at most ``most``, best first."""
        bounds = Bounds(self.problem, pool.shape, pool.costs, pool.ga)
        step = bounds.least_step(self.capacity, int(self._unscaled(most, pool.scale).max()))
        self.statistics.refined += len(step)
        least = np.where(step < NEVER, self._scaled(step, pool.scale), NEVER)
        keep = np.nonzero(least <= most)[0]
        if len(keep):
            keep = keep[np.argsort(least[keep], kind="stable")]
            yield replace(pool, least=least, step=step).take(keep)

    def _unscaled(self, most: int, gbs: np.ndarray) -> np.ndarray:
        """Most step time of a batch of ``gbs`` whose scaled time is at most ``most``."""
        return most * gbs // self.largest_batch

    # -- the programs ----------------------------------------------------------------------------

    @staticmethod
    def _in_order(
        pools: Sequence[Pool], keys: Sequence[np.ndarray]
    ) -> Iterator[tuple[int, Pool]]:
        """Cells one by one in the order of their keys, ties in the order of the pools."""
        if not pools:
            return
        merged = np.concatenate(keys)
        owner = np.repeat(np.arange(len(pools)), [len(key) for key in keys])
        position = np.concatenate([np.arange(len(key)) for key in keys])
        for index in np.argsort(merged, kind="stable"):
            pool = pools[int(owner[index])]
            yield int(merged[index]), pool.take(position[index : index + 1])

    def _solve(self, cell: Pool, minimise: str, most: int, peak: int, least: int) -> Answer | None:
        """Best split of one cell, or None if none lies within the limits."""
        gbs = int(cell.scale[0])
        most_step = int(self._unscaled(most, cell.scale)[0])
        vector = cost_vectors(cell.costs, cell.ga)[0]
        if self.refuted.excludes(cell.shape, gbs, vector, most_step, peak):
            return None
        started = time.monotonic()
        limit = 1e6 if self.deadline is None else self.deadline - started
        goal = Goal(minimise, [most_step], peak, least)
        self.statistics.programs += 1
        ga = [int(cell.ga[0])]
        answer = solve_program(self.problem, cell.shape, cell.costs, ga, goal, limit)
        self.statistics.program_s += time.monotonic() - started
        if answer is None:
            self.refuted.add(cell.shape, gbs, vector, most_step, peak)
        elif answer.proved and minimise == "step":
            self.refuted.add(cell.shape, gbs, vector, answer.objective - 1, peak)
        elif answer.proved:
            self.refuted.add(cell.shape, gbs, vector, most_step, answer.objective - 1)
        return answer

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
        if confirmed != answer.objective or found.peak > self.capacity:
            raise InternalError(
                f"the solver's {minimised} is {answer.objective} and the checker's {confirmed} "
                f"(peak {found.peak} of {self.capacity}) for {layout}"
            )
        return found

    def scaled_step(self, found: Found) -> int:
        """Step time of a plan scaled to the largest batch."""
        return -(-found.step * self.largest_batch // int(found.decisions["gbs"]))

    # -- feasibility -----------------------------------------------------------------------------

    def any_plan(self) -> bool:
        """Whether any layout obeys the rules and pins and fits in memory."""
        regions = []
        for region in self.each_region():
            roomiest = np.argsort(region.memory, kind="stable")[:_ROOMIEST]
            if self._any_of(self._refine(region, roomiest, _UNLIMITED)):
                return True
            if len(region.memory) > len(roomiest):
                regions.append(region)
        return any(self._any_of(self.pools([region], _UNLIMITED)) for region in regions)

    def _any_of(self, pools: Iterable[Pool]) -> bool:
        for pool in pools:
            for _, cell in self._in_order([pool], [pool.least]):
                if self._solve(cell, "step", _UNLIMITED, self.capacity, 0) is not None:
                    return True
        return False

    def least_mean_memory(self) -> int | None:
        """Least memory per GPU, averaged over the stages, of any legal layout; None if none."""
        least = [region.least_memory // region.pp for region in self.regions()]
        return min(least) if least else None

    # -- the phases ------------------------------------------------------------------------------

    def fastest(self, regions: Sequence[Region]) -> int | None:
        """Least scaled step time, proved; None if nothing fits.

        Iterative deepening on the step time: a round refines all cells whose bound lies within
        its limit and solves those whose refined bound does, best first.  A plan found is optimal
        once no bound is below it; without one the next round has a wider limit.
        """
        coarse = np.sort(np.concatenate([r.bounds for r in regions]))
        if not len(coarse):
            return None
        self.bound = max(self.bound, int(coarse[0]))
        cells, most, best = _FIRST_ROUND, 0, None
        while True:
            widest = _UNLIMITED if cells >= len(coarse) else int(coarse[cells])
            most = min(max(widest, int(most * _GROWTH)), _UNLIMITED)
            if best is not None:
                most = min(most, best)
            best = self._fastest_of(self.pools(regions, most), most, best)
            if best is not None and best <= most:
                self.bound = best
                return best
            self.bound = most + 1
            if most >= _UNLIMITED:
                return None
            cells *= 2

    def _fastest_of(self, pools: list[Pool], most: int, best: int | None) -> int | None:
        """Best of these cells and of the best so far; it may lie beyond ``most``."""
        wide = min(int(most * _WIDER), _UNLIMITED)
        for bound, cell in self._in_order(pools, [pool.least for pool in pools]):
            if best is not None and bound >= best:
                break
            self.bound = max(self.bound, bound)
            limit = wide if best is None else best - 1
            answer = self._solve(cell, "step", limit, self.capacity, cell.least_step())
            if answer is not None:
                self.best = self._found(cell, answer, "step")
                best = self.scaled_step(self.best)
            self._tell(best)
        return best

    def _tell(self, best: int | None) -> None:
        if self.report is not None:
            self.report(best, self.bound)

    def most_data_parallel(self, pools: list[Pool], most: int) -> list[Pool]:
        """Cells with the most DP for which some plan within ``most`` exists."""
        for dp in sorted({int(v) for pool in pools for v in self._dp(pool)}, reverse=True):
            chosen = [pool.take(np.nonzero(self._dp(pool) == dp)[0]) for pool in pools]
            chosen = [pool for pool in chosen if len(pool.ga)]
            if self.best is not None and self.best.decisions["dp"] == dp:
                return chosen
            for _, cell in self._in_order(chosen, [pool.least for pool in chosen]):
                answer = self._solve(cell, "step", most, self.capacity, cell.least_step())
                if answer is not None:
                    self.best = self._found(cell, answer, "step")
                    return chosen
        return []

    def _dp(self, pool: Pool) -> np.ndarray:
        return mesh_column(pool.region.axes, "dp")[pool.indices[0], 0, 0, 0, 0, 0]

    def least_peak(self, pools: list[Pool], most: int) -> int:
        """Least peak memory among these cells within ``most``; the best plan has it."""
        assert self.best is not None
        best = self.best.peak
        keys = [self._peak_bounds(pool, most) for pool in pools]
        for bound, cell in self._in_order(pools, keys):
            if bound >= best:
                break
            answer = self._solve(cell, "peak", most, best - 1, bound)
            if answer is not None:
                self.best = self._found(cell, answer, "peak")
                best = self.best.peak
        return best

    def _peak_bounds(self, pool: Pool, most: int) -> np.ndarray:
        most_step = int(self._unscaled(most, pool.scale).max())
        bounds = Bounds(self.problem, pool.shape, pool.costs, pool.ga)
        return bounds.least_peak(self.capacity, most_step)

    def canonical(self, pools: list[Pool], most: int, peak: int) -> None:
        """Among plans with this peak: the least step time, then the canonical order."""
        assert self.best is not None
        kept = []
        for pool in pools:
            key = self._peak_bounds(pool, most)
            kept.append(pool.take(np.nonzero(key <= peak)[0]))
        kept = [pool for pool in kept if len(pool.ga)]
        best = self.scaled_step(self.best)
        for bound, cell in self._in_order(kept, [pool.least for pool in kept]):
            if bound >= best:
                break
            answer = self._solve(cell, "step", best - 1, peak, cell.least_step())
            if answer is not None:
                self.best = self._found(cell, answer, "step")
                best = self.scaled_step(self.best)
        ties = [
            (canonical_key(pool.decisions(cell)), pool, cell)
            for pool in kept
            for cell in range(len(pool.ga))
            if pool.least[cell] <= best
        ]
        for _, pool, cell in sorted(ties, key=lambda item: item[0]):
            single = pool.take(np.array([cell]))
            answer = self._solve(single, "step", best, peak, single.least_step())
            if answer is not None:
                self.best = self._found(single, answer, "step")
                return

    def others(
        self, pools: list[Pool] | Sequence[Pool], most: int, seen: set[tuple[int, ...]], count: int
    ) -> list[Found]:
        """Up to ``count`` plans of other degrees within ``most``, in the order of their bounds.

        ``seen`` are (tp, cp, pp, ep, etp) that are not wanted again.
        """
        found: list[Found] = []
        tried = set(seen)
        for _, cell in self._in_order(pools, [pool.least for pool in pools]):
            if len(found) == count:
                break
            named = cell.decisions(0)
            degrees = tuple(int(named[n]) for n in ("tp", "cp", "pp", "ep", "etp"))
            if degrees in tried:
                continue
            tried.add(degrees)
            answer = self._solve(cell, "step", most, self.capacity, cell.least_step())
            if answer is not None:
                found.append(self._found(cell, answer, "step"))
        return found


def canonical_key(decisions: dict[str, Value]) -> tuple[tuple[int, int | str], ...]:
    """Order of decisions that breaks the last ties: the smallest values, in catalogue order."""
    return tuple(
        (0, value) if isinstance(value, int) else (1, value)
        for value in (decisions[name] for name in DECISIONS)
    )


def to_layout(decisions: dict[str, Value], slots: tuple[Slot, ...]) -> Layout:
    """Layout with these decisions and slots."""
    degrees = {
        name: int(decisions[name])
        for name in ("tp", "cp", "pp", "vpp", "dp", "ep", "etp", "edp", "mbs", "ga", "gbs")
    }
    return Layout(
        **degrees,
        recompute=tuple(m for m in RECOMPUTE_MODULES if decisions[f"rc_{m}"]),
        recompute_full=bool(decisions["rc_full"]),
        offload=int(decisions["offload"]),
        dispatcher=str(decisions["dispatcher"]),
        cp_comm=str(decisions["cp_comm"]),
        cuda_graphs=tuple(s for s in GRAPH_SCOPES if decisions[f"cg_{s}"]),
        slots=slots,
    )
