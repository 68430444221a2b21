"""Best plan of a tiny problem by trying everything, for tests of the search.

Written apart from the search: no bounds, no dominance, no integer program.  All combinations of
all decisions are built one decision after the other and dropped only where a rule forbids them;
each is then combined with every split of the layers and costed by :mod:`meshplan.solver.judge`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from meshplan.constraints.decisions import GRAPH_FLAGS, RECOMPUTE_FLAGS
from meshplan.constraints.layout import Layout, Slot, Value
from meshplan.constraints.layout_rules import ALL_LAYOUT_RULES
from meshplan.constraints.pipeline import (
    even_slots,
    parse_layout,
    slots_from_rank_counts,
)
from meshplan.constraints.problem import QUANTA_PER_GIB, Problem
from meshplan.constraints.rule import Rule
from meshplan.solver.judge import active_rules, cost

#: Decisions in the order in which they are set.
ORDER: tuple[str, ...] = (
    "pp", "tp", "cp", "dp", "etp", "ep", "edp", "gbs", "mbs", "ga", "vpp", "dispatcher",
    "offload", "cp_comm", "rc_full", *RECOMPUTE_FLAGS, *GRAPH_FLAGS,
)  # fmt: skip
_SOURCES = {"attention_tokens": ("cp", "mbs"), "moe_tokens": ("tp", "cp", "mbs")}


class TooLarge(Exception):
    """More layouts than the caller is ready to try."""


@dataclass(frozen=True)
class Tried:
    """One legal layout and its cost.

    ``scaled`` is the step for the largest batch, us; ``peak`` and ``host`` are those of the
    heaviest rank, and ``event`` is when that rank peaks; ``mesh`` is (tp, cp, pp, ep, etp).
    """

    scaled: int
    step: int
    dp: int
    peak: int
    host: int = 0
    event: str = "backward"
    mesh: tuple[int, ...] = ()


@dataclass(frozen=True)
class Best:
    """What a search must find: steps in us, peak in whole GiB, rounded up.

    ``fastest`` is the least scaled step time; ``dp`` the most DP within the tolerance;
    ``peak_gib`` the least peak with that DP; ``scaled`` the least scaled step time with that
    peak.
    """

    fastest: int
    dp: int
    peak_gib: int
    scaled: int


def tried(problem: Problem, most: int = 1_000_000) -> list[Tried]:
    """Every legal layout of a problem, memory aside, with its cost.

    Raises
    ------
    TooLarge
        If there are more than ``most``.
    """
    layouts: list[Layout] = []
    for cell in cells(problem):
        for slots in splits(problem, int(cell["pp"]), int(cell["vpp"])):
            layout = to_layout(cell, slots)
            if any(rule.check(problem, layout) is not None for rule in ALL_LAYOUT_RULES):
                continue
            layouts.append(layout)
            if len(layouts) > most:
                raise TooLarge
    return tried_layouts(problem, layouts)


def tried_layouts(problem: Problem, layouts: Sequence[Layout]) -> list[Tried]:
    """These layouts with their cost."""
    largest = max(int(value) for value in _domain(problem, "gbs"))
    found = []
    for layout in layouts:
        spent = cost(problem, layout)
        step = spent.time.step_us
        fullest = max(spent.ranks, key=lambda rank: rank.peak)
        host = max(rank.host for rank in spent.ranks)
        scaled = -(-step * largest // layout.gbs)
        mesh = (layout.tp, layout.cp, layout.pp, layout.ep, layout.etp)
        found.append(Tried(scaled, step, layout.dp, spent.peak, host, fullest.event, mesh))
    return found


def best(
    layouts: list[Tried], capacity: int, tolerance: float, host: float = math.inf
) -> Best | None:
    """The best of these layouts that fits, on the GPUs and on the hosts, or None if none does."""
    fitting = [one for one in layouts if one.peak <= capacity and one.host <= host]
    if not fitting:
        return None
    fastest = min(one.scaled for one in fitting)
    fitting = [one for one in fitting if one.scaled <= int(fastest * (1 + tolerance))]
    dp = max(one.dp for one in fitting)
    fitting = [one for one in fitting if one.dp == dp]
    peak = min(whole_gib(one.peak) for one in fitting)
    scaled = min(one.scaled for one in fitting if whole_gib(one.peak) == peak)
    return Best(fastest, dp, peak, scaled)


def whole_gib(peak: int) -> int:
    """GiB that hold ``peak`` quanta, rounded up: the search looks no closer at memory."""
    return -(-peak // QUANTA_PER_GIB)


def cells(
    problem: Problem, rules: Sequence[Rule] | None = None, *, read_only: bool = False
) -> Iterator[dict[str, Value]]:
    """All combinations of decisions that break no rule, slots aside.

    Parameters
    ----------
    rules
        The rules that hold; by default all.
    read_only
        Leave out the decisions that no rule reads, as far as each has a value at all.
    """
    rules = active_rules(problem) if rules is None else rules
    names = [n for n in ORDER if not read_only or n in _read(rules) or not _domain(problem, n)]
    due: dict[str, list[Rule]] = {name: [] for name in names}
    for rule in rules:
        due[max(_read([rule]), key=names.index)].append(rule)
    yield from _extended(problem, names, due, {})


def _read(rules: Sequence[Rule]) -> set[str]:
    """Decisions that rules read, derived quantities resolved."""
    return {d for rule in rules for name in rule.scope for d in _SOURCES.get(name, (name,))}


def _extended(
    problem: Problem, names: list[str], due: dict[str, list[Rule]], cell: dict[str, Value]
) -> Iterator[dict[str, Value]]:
    if len(cell) == len(names):
        yield dict(cell)
        return
    name = names[len(cell)]
    for value in _domain(problem, name):
        cell[name] = value
        if all(_obeys(problem, rule, cell) for rule in due[name]):
            yield from _extended(problem, names, due, cell)
        del cell[name]


def _obeys(problem: Problem, rule: Rule, cell: dict[str, Value]) -> bool:
    return rule.holds(problem, *(_value(problem, cell, name) for name in rule.scope))


def _value(problem: Problem, cell: dict[str, Value], name: str) -> Value:
    if name not in _SOURCES:
        return cell[name]
    tokens = -(-problem.seq_len * int(cell["mbs"]) // int(cell["cp"]))
    return tokens if name == "attention_tokens" else -(-tokens // int(cell["tp"]))


def _domain(problem: Problem, name: str) -> tuple[Value, ...]:
    if name in problem.pinned:
        return tuple(problem.pinned[name])
    if name in ("dp", "edp"):
        return tuple(n for n in range(1, problem.gpus + 1) if problem.gpus % n == 0)
    if name == "ga":
        return tuple(range(1, max(int(v) for v in problem.candidates["gbs"]) + 1))
    return problem.candidates[name]


def splits(problem: Problem, pp: int, vpp: int) -> Iterator[tuple[Slot, ...]]:
    """All splits of the layers in the search space (one where the scenario fixes it)."""
    card = problem.model
    mtp = card.mtp_layers > 0
    if problem.layout_string is not None:
        slots = parse_layout(problem.layout_string)
        if len(slots) == pp * vpp:
            yield slots
    elif problem.even_split or pp * vpp == 1:
        even = even_slots(card.layers, pp, vpp, mtp=mtp)
        if even is not None:
            yield even
    else:
        found: set[tuple[Slot, ...]] = set()
        for ranks in compositions(card.layers, pp):
            for bare_end in (False, True)[: min(vpp, 2)]:
                slots = slots_from_rank_counts(ranks, vpp, mtp=mtp, bare_end=bare_end)
                if all(slot.count for slot in slots[1:-1]):
                    found.add(slots)
        yield from sorted(found, key=lambda slots: [slot.count for slot in slots])


def compositions(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    """All ways to write ``total`` as an ordered sum of ``parts`` numbers from 0."""
    if parts == 1:
        yield (total,)
        return
    for first in range(total + 1):
        for rest in compositions(total - first, parts - 1):
            yield (first, *rest)


def to_layout(cell: dict[str, Value], slots: tuple[Slot, ...]) -> Layout:
    """The layout with these decisions and slots."""
    numbers = ("tp", "cp", "pp", "vpp", "dp", "ep", "etp", "edp", "mbs", "ga", "gbs", "offload")
    return Layout(
        **{name: int(cell[name]) for name in numbers},
        recompute=tuple(flag[3:] for flag in RECOMPUTE_FLAGS if cell[flag]),
        recompute_full=bool(cell["rc_full"]),
        dispatcher=str(cell["dispatcher"]),
        cp_comm=str(cell["cp_comm"]),
        cuda_graphs=tuple(flag[3:] for flag in GRAPH_FLAGS if cell[flag]),
        slots=slots,
    )
