"""The best plan of one cell: its layers' places, by all placements or by a program."""

from __future__ import annotations

import time

import numpy as np

from meshplan.constraints.memory.verdict import fills_host
from meshplan.solver.cells import Cell, Pool
from meshplan.solver.found import Found, InternalError, to_layout
from meshplan.solver.judge import cost
from meshplan.solver.placements import IMPOSSIBLE, exact_bounds
from meshplan.solver.program import Answer, Goal, solve_program
from meshplan.solver.refuted import Refuted
from meshplan.solver.regions import Space
from meshplan.solver.space import fixed_slots


class CellSolver:
    """Plans of the cells of a space.

    Cells that excluded ones of the same shape exclude are not solved (:class:`Refuted`).
    """

    def __init__(self, space: Space) -> None:
        self.space, self.problem = space, space.problem
        self.capacity, self.deadline = space.capacity, space.deadline
        self.statistics = space.statistics
        self.refuted = Refuted()

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
            slots = fixed_slots(problem, shape.pp, shape.vpp) or shape.slots(
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

    def scaled_step(self, found: Found) -> int:
        """Step time of a plan scaled to the largest batch."""
        return -(-found.step * self.space.largest_batch // int(found.decisions["gbs"]))
