"""Why a lever cannot help, in the scenario's numbers."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

from meshplan.constraints.memory.items import itemize
from meshplan.constraints.problem import QUANTA_PER_GIB, Problem
from meshplan.solver.diagnosis.conflict import conflict
from meshplan.solver.diagnosis.legality import Legality
from meshplan.solver.diagnosis.memory_words import room_text
from meshplan.solver.found import to_layout
from meshplan.solver.judge import active_rules
from meshplan.solver.repairs.lever import Lever, values_of
from meshplan.solver.repairs.trials import Trials
from meshplan.solver.results import Conflict
from meshplan.solver.search import Search

#: More memory than any layout needs, quanta.
_AMPLE = 1 << 40
_STATE = ("weights", "gradients", "optimizer")
#: Decisions that leave weights, gradients and optimizer state as they are.
_NEUTRAL = ("mbs", "ga", "dispatcher", "cp_comm", "rc_", "cg_")


class Reasons:
    """Why levers do not help in one problem."""

    def __init__(self, trials: Trials) -> None:
        self.trials, self.problem = trials, trials.problem
        present = trials.trial({})
        assert present is not None
        self.legal = present.least is not None

    def useless(self, lever: Lever) -> bool:
        """Whether it is proved already that a lever does not help."""
        return self.legal and lever.neutral and self.state > self.problem.capacity

    @cached_property
    def state(self) -> int:
        """Least memory of a GPU on average, in quanta, with one token a sequence.

        Whatever the micro-batch, the recompute, the dispatcher; 0 where no layout is legal then.
        """
        search = self._bare(None)
        search.any_plan()
        return search.space.least_mean_memory or 0

    def _bare(self, capacity: int | None) -> Search:
        """A search with one token a sequence, without rules on its length and neutral pins."""
        problem = self.problem
        pins = tuple(pin for pin in problem.pins if not pin.decision.startswith(_NEUTRAL))
        bare = replace(problem, seq_len=1, pins=pins)
        rules = [rule for rule in active_rules(problem) if "workload.seq_len" not in rule.fields]
        return Search(bare, rules=rules, capacity=capacity, deadline=self.trials.deadline)

    @cached_property
    def conflict(self) -> Conflict:
        """The clash of rules and pins, where there is one."""
        return conflict(self.problem, self.trials.deadline)

    def why(self, lever: Lever) -> str | None:
        """Why a lever does not help; None where no scenario may have any of its steps."""
        if self.useless(lever):
            return self._state_text
        widest = self.trials.trial(values_of(lever.widest(self.trials)))
        if widest is None:
            return None
        if widest.least is None:
            if not self.legal and self._still_clashes(widest.problem):
                return self.conflict.text
            return conflict(widest.problem, self.trials.deadline).text
        room, gpus = room_text(widest.problem), widest.problem.gpus
        on = f"on {gpus:,} GPUs " if gpus != self.problem.gpus else ""
        if widest.least <= widest.problem.capacity:
            return (
                f"{on}the fullest GPU of every layout still needs more memory than there is: {room}"
            )
        least = widest.least / QUANTA_PER_GIB
        return f"{on}each GPU must still hold at least {least:,.1f} GiB on average, and {room}"

    def _still_clashes(self, problem: Problem) -> bool:
        """Whether the rules and pins that clash do so in a changed problem, too."""
        wanted = set(self.conflict.rules)
        rules = [rule for rule in active_rules(problem) if rule.id in wanted]
        paths = [pin.partition(" = ")[0] for pin in self.conflict.pins]
        return not Legality(problem, rules).possible([*wanted, *paths])

    @cached_property
    def _state_text(self) -> str:
        least = self.state / QUANTA_PER_GIB
        text = (
            f"even with one token in a sequence each GPU must hold at least {least:,.1f} GiB on "
            f"average, and {room_text(self.problem)}"
        )
        return text + self._largest_part()

    def _largest_part(self) -> str:
        """What makes up most of the state of the leanest layout that was met."""
        search = self._bare(_AMPLE)
        if not search.any_plan() or search.best is None:
            return ""
        layout = to_layout(search.best.decisions, search.best.slots)
        best: tuple[int, ...] = (0, 0, 0)
        for rank in range(layout.pp):
            items = itemize(search.problem, layout, rank)
            state = [item for item in items if item.part in _STATE]
            held = sum(item.quanta for item in state if "routed experts" in item.name)
            cast = sum(item.quanta for item in items if item.part == "update")
            best = max(best, (sum(item.quanta for item in state), held, cast))
        whole, routed, update = (quanta / QUANTA_PER_GIB for quanta in best)
        degrees = f"tp = {layout.tp}, pp = {layout.pp}"
        degrees += f", ep = {layout.ep}" if routed else ""
        share = f", {routed:,.1f} GiB of it of the routed experts" if routed else ""
        step = f", and the optimizer step takes {update:,.1f} GiB beside" if update else ""
        return (
            f"; with {degrees}, say, weights, gradients and optimizer state take up to "
            f"{whole:,.1f} GiB{share}{step}"
        )


__all__ = ["Reasons"]
