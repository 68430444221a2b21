"""The search for repairs: lever by lever, then pairs of levers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

from meshplan.constraints.problem import Problem
from meshplan.solver.progress import LimitReached, Progress
from meshplan.solver.repairs.hardware import HARDWARE
from meshplan.solver.repairs.lever import Effort, Lever, Step, values_of
from meshplan.solver.repairs.pins import PINNABLE, AllPins, PinnedDegree
from meshplan.solver.repairs.reasons import Reasons
from meshplan.solver.repairs.results import NoHelp, Repair
from meshplan.solver.repairs.settings import SETTINGS, StateFormats
from meshplan.solver.repairs.trials import Trials
from meshplan.solver.repairs.workload import BatchSize, SequenceLength

#: All levers; repairs of equal effort come in the order of what their plans buy.
LEVERS: tuple[Lever, ...] = (
    *(PinnedDegree(decision) for decision in PINNABLE),
    AllPins(),
    *SETTINGS,
    StateFormats(),
    BatchSize(),
    SequenceLength(),
    *HARDWARE,
)
#: Pairs are looked for where fewer levers than this help alone, and until so many are found.
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
    it of the throughput of their plans; then pairs of those that do not help alone, if few do;
    what a GPU or node would need; and last the levers that do not help alone.

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
        If the deadline passes; what was handed out until then holds.
    """
    yield from search_repairs(Trials(problem, deadline, progress), levers)


def search_repairs(trials: Trials, levers: Sequence[Lever] = LEVERS) -> Iterator[Repair | NoHelp]:
    """The same for a problem that is given by its trials."""
    reasons = Reasons(trials)
    useful = [lever for lever in levers if lever.applies(trials.problem)]
    useless: list[Lever] = []
    helpful: set[str] = set()
    for effort in (one for one in Effort if one is not Effort.FIGURE):
        for repair in _ranked(_singles(trials, reasons, _of(effort, useful), useless)):
            helpful.add(repair.lever)
            yield repair
    if len(helpful) < ENOUGH:
        yield from _pairs(trials, useless)
    yield from _ranked(_singles(trials, reasons, _of(Effort.FIGURE, useful), useless))
    yield from _no_help(reasons, useless)


def _of(effort: Effort, levers: Sequence[Lever]) -> list[Lever]:
    return [lever for lever in levers if lever.effort is effort]


def _singles(
    trials: Trials, reasons: Reasons, levers: Sequence[Lever], useless: list[Lever]
) -> Iterator[Repair]:
    """What each lever does alone; those that do not help are added to ``useless``."""
    for lever in levers:
        trials.tell(f"repair: {lever.name}")
        step = None if reasons.useless(lever) else lever.smallest(trials)
        if step is None:
            useless.append(lever)
            continue
        for one in (step, *lever.further(trials, step)):
            yield _repair(trials, lever.name, one)


def _ranked(found: Iterator[Repair]) -> Iterator[Repair]:
    """Repairs in the order of their throughput; a limit is passed on after those before it."""
    known: list[Repair] = []
    limit: LimitReached | None = None
    try:
        for repair in found:
            known.append(repair)
    except LimitReached as reached:
        limit = reached
    yield from sorted(known, key=_throughput, reverse=True)
    if limit is not None:
        raise limit


def _repair(trials: Trials, lever: str, step: Step) -> Repair:
    plan = trials.plan(values_of(step))
    return Repair(lever, step, plan is not None, plan)


def _throughput(repair: Repair) -> float:
    """Tokens of a GPU and microsecond that the plan of a repair makes."""
    plan = repair.plan
    if plan is None:
        return 0.0
    tokens = plan.layout.gbs * plan.problem.seq_len
    return tokens / plan.cost.time.step_us / plan.problem.gpus


def _no_help(reasons: Reasons, levers: Sequence[Lever]) -> Iterator[NoHelp]:
    """Levers that do not help, those of one reason together."""
    by_reason: dict[str, list[str]] = {}
    for lever in levers:
        reason = None if lever.obscure else reasons.why(lever)
        if reason is not None:
            by_reason.setdefault(reason, []).append(lever.shown(reasons.problem))
    for reason, names in by_reason.items():
        yield NoHelp(", ".join(names), reason)


def _pairs(trials: Trials, levers: Sequence[Lever]) -> Iterator[Repair]:
    """Pairs of levers of which neither helps alone, the least effort first."""
    pairs = [pair for pair in itertools.combinations(levers, 2) if not _overlap(*pair)]
    found = 0
    for _, some in itertools.groupby(sorted(pairs, key=_effort), key=_effort):
        for repair in _ranked(_of_pairs(trials, list(some))):
            found += 1
            yield repair
        if found >= ENOUGH:
            return


def _effort(pair: tuple[Lever, Lever]) -> tuple[int, int]:
    efforts = [int(lever.effort) for lever in pair]
    return max(efforts), sum(efforts)


def _overlap(first: Lever, second: Lever) -> bool:
    """Whether one of them changes what the other does."""
    names = {first.name, second.name}
    if names == {"gpus", "fewer-gpus"}:
        return True
    return "layout" in names and any(name.startswith("layout.") for name in names)


def _of_pairs(trials: Trials, pairs: Sequence[tuple[Lever, Lever]]) -> Iterator[Repair]:
    for first, second in pairs:
        trials.tell(f"repair: {first.name} and {second.name}")
        step = _both(trials, first, second)
        if step is not None:
            yield _repair(trials, f"{first.name}+{second.name}", step)


def _both(trials: Trials, first: Lever, second: Lever) -> Step | None:
    """The smallest steps of two levers, each given the other.

    The second's is looked for with the first at its widest, then the first's.  The widest step of
    a lever is not always the one that leaves the most room (all of the optimizer state on the host
    may be too much for it), so both are looked for again until neither gets smaller.
    """
    widest = values_of(first.widest(trials))
    if trials.trial(widest) is None:
        return None
    given = trials.given(widest)
    step = second.smallest(given) if second.applies(given.problem) else None
    if step is None:
        return None
    smaller = first.smallest(trials.given(values_of(step)))
    while smaller is not None:
        again = second.smallest(trials.given(values_of(smaller)))
        if again is None or again == step:
            return (*smaller, *step)
        step = again
        smaller = first.smallest(trials.given(values_of(step))) or smaller
    return None


__all__ = ["ENOUGH", "LEVERS", "repairs", "search_repairs"]
