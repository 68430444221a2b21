"""Why nothing is possible: one irreducible set of facts that cannot hold together.

Facts are the rules, the memory of the GPUs, and what the scenario pins.  The set is shrunk by our
own exact procedure, in an order that keeps what a person can change: leaving any fact out makes
the rest possible.  A clash of rules and pins is found by :mod:`~meshplan.solver.legality`; if these
agree, memory is part of the conflict, and a search decides which pins and limits are as well.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from meshplan.constraints.layout import Layout, Value
from meshplan.constraints.layout_rules import ALL_LAYOUT_RULES
from meshplan.constraints.pipeline import parse_layout
from meshplan.constraints.problem import QUANTA_PER_GIB, Problem
from meshplan.constraints.rule import Rule
from meshplan.solver.judge import active_rules
from meshplan.solver.legality import Legality
from meshplan.solver.program import LimitReached
from meshplan.solver.results import Conflict
from meshplan.solver.search import Search

#: Id of the fact that the layers must fit into the GPUs' memory.
MEMORY = "memory-capacity"
#: Capacity that stands for no limit, in quanta (256 TiB).
UNLIMITED = 1 << 30


@dataclass(frozen=True)
class Fact:
    """One thing that a layout must respect: a rule, the memory, or a field of the scenario."""

    id: str
    is_pin: bool


def facts(problem: Problem) -> list[Fact]:
    """All facts, those a person is least likely to change first."""
    rules = [Fact(rule.id, is_pin=False) for rule in active_rules(problem)]
    rules += [Fact(rule.id, is_pin=False) for rule in broken_layout_rules(problem)]
    pins = [Fact(path, is_pin=True) for path in dict.fromkeys(p.path for p in problem.pins)]
    if problem.layout_string is not None or problem.even_split:
        pins.append(Fact("options.pipeline_layout", is_pin=True))
    return [*rules, Fact(MEMORY, is_pin=False), *pins]


def broken_layout_rules(problem: Problem) -> list:  # type: ignore[type-arg]
    """Rules on slots that the scenario's layout string breaks, whatever the degrees."""
    if problem.layout_string is None:
        return []
    slots = parse_layout(problem.layout_string)
    layout = Layout(pp=len(slots), vpp=1, slots=slots)
    return [rule for rule in ALL_LAYOUT_RULES if rule.check(problem, layout) is not None]


#: Rules that are the user's own limits, not the framework's: a memory conflict may rest on them.
LIMIT_RULES = ("tp-within-domain", "etp-within-domain", "ep-within-domain", "min-dp")


def conflict(problem: Problem, deadline: float | None = None) -> Conflict:
    """One irreducible conflict of a problem that is proved infeasible."""
    everything = facts(problem)
    broken = broken_layout_rules(problem)
    if broken:
        core = [broken[0].id, "options.pipeline_layout"]
        return _worded(problem, everything, core, minimal=True)
    legality = Legality(problem, active_rules(problem))
    named = [fact.id for fact in everything if fact.id != MEMORY]
    if not legality.possible(named):
        return _worded(problem, everything, legality.core(named), minimal=True)
    return _memory_conflict(problem, everything, deadline)


def _memory_conflict(
    problem: Problem, everything: Sequence[Fact], deadline: float | None
) -> Conflict:
    """Which pins and limits leave too little memory; the framework's own rules always hold."""
    movable = [f for f in everything if f.is_pin or f.id in LIMIT_RULES]
    try:
        core = quickxplain(movable, lambda kept: _fits(problem, kept, deadline))
        minimal = True
    except LimitReached:
        core, minimal = frozenset(movable), False
    return _worded(problem, everything, [MEMORY, *(f.id for f in core)], minimal=minimal)


def _worded(
    problem: Problem, everything: Sequence[Fact], core: Sequence[str], *, minimal: bool
) -> Conflict:
    rules = tuple(f.id for f in everything if f.id in core and not f.is_pin)
    paths = [f.id for f in everything if f.id in core and f.is_pin]
    pins = tuple(_pin_text(problem, path) for path in paths)
    return Conflict(rules, pins, _text(problem, rules, paths, pins), minimal=minimal)


def quickxplain(
    everything: Sequence[Fact], possible: Callable[[Sequence[Fact]], bool]
) -> frozenset[Fact]:
    """Irreducible subset of facts that is impossible; empty if no fact at all is possible.

    Junker 2004; facts late in the sequence are kept rather than early ones.
    """

    def explain(background: list[Fact], added: bool, candidates: list[Fact]) -> list[Fact]:
        if added and not possible(background):
            return []
        if len(candidates) == 1:
            return candidates
        half = len(candidates) // 2
        late, early = candidates[half:], candidates[:half]
        from_early = explain(background + late, bool(late), early)
        from_late = explain(background + from_early, bool(from_early), late)
        return from_early + from_late

    if not everything or not possible([]):
        return frozenset()
    return frozenset(explain([], False, list(everything)))


def _fits(problem: Problem, kept: Sequence[Fact], deadline: float | None) -> bool:
    """Whether any layout fits in memory with these pins and limits and all other rules."""
    ids = {fact.id for fact in kept}
    if "options.pipeline_layout" not in ids:
        problem = replace(problem, layout_string=None, even_split=False)
    search = Search(
        problem,
        rules=[r for r in active_rules(problem) if r.id in ids or r.id not in LIMIT_RULES],
        pins={pin.decision: pin.values for pin in problem.pins if pin.path in ids},
        deadline=deadline,
    )
    return search.any_plan()


def _pin_text(problem: Problem, path: str) -> str:
    if path == "options.pipeline_layout":
        return f"options.pipeline_layout = {problem.layout_string or 'even'}"
    return next(pin.text for pin in problem.pins if pin.path == path)


def _text(
    problem: Problem, rules: tuple[str, ...], paths: Sequence[str], pins: tuple[str, ...]
) -> str:
    """The conflict in one sentence, with the scenario's own numbers."""
    named = {rule.id: rule for rule in active_rules(problem)}
    reasons = [_rule_text(problem, named[r], paths) for r in rules if r in named]
    reasons += [
        text
        for rule in broken_layout_rules(problem)
        if rule.id in rules and (text := _layout_text(problem, rule)) is not None
    ]
    if MEMORY in rules:
        reasons.append(_memory_text(problem, rules, paths))
    cause = "; and ".join(reasons)
    if not pins:
        return f"{cause[:1].upper()}{cause[1:]}."
    return f"Because {' and '.join(pins)}: {cause}."


def _layout_text(problem: Problem, rule) -> str | None:  # type: ignore[no-untyped-def]
    assert problem.layout_string is not None
    slots = parse_layout(problem.layout_string)
    text: str | None = rule.check(problem, Layout(pp=len(slots), slots=slots))
    return text


def _rule_text(problem: Problem, rule: Rule, paths: Sequence[str]) -> str:
    """The rule's sentence for the smallest values, pins respected, that break it."""
    pinned = {pin.decision: pin.values for pin in problem.pins if pin.path in paths}
    best: str | None = None
    for values in itertools.islice(itertools.product(*_columns(problem, rule, pinned)), 20_000):
        if not rule.holds(problem, *values):
            best = rule.explain(problem, *values)
            break
    return best or f"{rule.id}: {rule.formula}"


def _columns(
    problem: Problem, rule: Rule, pinned: dict[str, tuple[Value, ...]]
) -> list[Sequence[Value]]:
    columns: list[Sequence[Value]] = []
    for name in rule.scope:
        values = pinned.get(name, problem.candidates.get(name, (1,)))
        columns.append(list(itertools.islice(iter(values), 64)))
    return columns


def _memory_text(problem: Problem, rules: tuple[str, ...], paths: Sequence[str]) -> str:
    node = problem.node_type
    usable = problem.capacity / QUANTA_PER_GIB
    pins = {pin.decision: pin.values for pin in problem.pins if pin.path in paths}
    dropped = set(LIMIT_RULES) - set(rules)
    kept = [rule for rule in active_rules(problem) if rule.id not in dropped]
    search = Search(problem, rules=kept, pins=pins, capacity=UNLIMITED)
    least = search.least_mean_memory()
    room = (
        f"{node.name} has {usable:.1f} GiB usable ({node.hbm_gib:.1f} less "
        f"{problem.limits.memory_headroom:.0%} headroom)"
    )
    if least is None or least <= problem.capacity:
        return f"no split of the layers over the pipeline stages fits: {room}"
    return f"each GPU must hold at least {least / QUANTA_PER_GIB:.1f} GiB on average, and {room}"
