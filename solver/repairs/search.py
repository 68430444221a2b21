"""The search for repairs: lever by lever, then pairs of levers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

from meshplan.constraints.problem import Problem
from meshplan.solver.progress import Progress
from meshplan.solver.repairs.hardware import HARDWARE
from meshplan.solver.repairs.lever import Effort, Lever, values_of
from meshplan.solver.repairs.pins import PINNABLE, AllPins, PinnedDegree
from meshplan.solver.repairs.reasons import reason
from meshplan.solver.repairs.results import Change, NoHelp, Repair
from meshplan.solver.repairs.settings import SETTINGS
from meshplan.solver.repairs.trials import Trials
from meshplan.solver.repairs.workload import BatchSize, SequenceLength

#: All levers; repairs of equal effort come in the order of what their plans buy.
LEVERS: tuple[Lever, ...] = (
    *(PinnedDegree(decision) for decision in PINNABLE),
    AllPins(),
    *SETTINGS,
    BatchSize(),
    SequenceLength(),
    *HARDWARE,
)
#: Pairs are looked for where fewer single levers than this help, and until so many are found.
ENOUGH = 3


def repairs(
    problem: Problem,
    *,
    deadline: float | None = None,
    progress: Callable[[Progress], None] | None = None,
    levers: Sequence[Lever] = LEVERS,
) -> Iterator[Repair | NoHelp]:
    """The smallest changes that make an infeasible problem feasible.

    Single levers first, in the order of :class:`~meshplan.solver.repairs.lever.Effort` and within
    it of the throughput of their plans; then pairs, if few single ones help.

    Parameters
    ----------
    problem
        One that is proved infeasible.
    deadline
        Of ``time.monotonic()``.
    levers
        What may be changed.

    Raises
    ------
    LimitReached
        If the deadline passes; what was found until then has been handed out, and holds.
    """
    trials = Trials(problem, deadline, progress)
    useful = [lever for lever in levers if lever.applies(problem)]
    useless: list[Lever] = []
    found = 0
    for effort in Effort:
        single: list[Repair] = []
        for lever in useful:
            if lever.effort is not effort:
                continue
            trials.tell(lever.name)
            step = lever.smallest(trials)
            if step is None:
                useless.append(lever)
                continue
            steps = [step, *lever.further(trials, step)]
            single += [_repair(trials, lever.name, (one,)) for one in steps]
        found += len({one.lever for one in single})
        yield from sorted(single, key=_throughput, reverse=True)
    for lever in useless:
        yield _no_help(trials, lever)
    if found < ENOUGH:
        yield from itertools.islice(_pairs(trials, useless), ENOUGH)


def _repair(trials: Trials, lever: str, changes: tuple[Change, ...]) -> Repair:
    plan = trials.plan(values_of(*changes))
    return Repair(lever, changes, plan is not None, plan)


def _throughput(repair: Repair) -> float:
    """Tokens of a GPU and second that the plan of a repair makes."""
    plan = repair.plan
    if plan is None:
        return 0.0
    tokens = plan.layout.gbs * plan.problem.seq_len
    return tokens / plan.cost.time.step_us / plan.problem.gpus


def _no_help(trials: Trials, lever: Lever) -> NoHelp:
    widest = lever.widest(trials.problem)
    return NoHelp(lever.name, reason(trials, widest, trials.trial(values_of(widest))))


def _pairs(trials: Trials, useless: Sequence[Lever]) -> Iterator[Repair]:
    """Pairs of levers of which neither helps by itself, the least effort first."""
    pairs = sorted(
        itertools.combinations(useless, 2), key=lambda pair: pair[0].effort + pair[1].effort
    )
    for first, second in pairs:
        trials.tell(f"{first.name} and {second.name}")
        changes = _both(trials, first, second)
        if changes is not None:
            yield _repair(trials, f"{first.name}+{second.name}", changes)


def _both(trials: Trials, first: Lever, second: Lever) -> tuple[Change, Change] | None:
    """The smallest steps of two levers: of one with the other at its widest, then of the other."""
    widest = first.widest(trials.problem)
    if trials.trial(values_of(widest)) is None:
        return None
    given = trials.given(values_of(widest))
    if not second.applies(given.problem):
        return None
    step = second.smallest(given)
    if step is None:
        return None
    smaller = first.smallest(trials.given(values_of(step)))
    assert smaller is not None  # its widest step works
    return smaller, step


__all__ = ["ENOUGH", "LEVERS", "repairs"]
