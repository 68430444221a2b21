"""What a person could change to mend a broken rule: the nearest legal values of one setting.

A value counts only if the whole layout, completed anew around it, obeys the rule and breaks no
other rule than before.  So for ``ep = 6`` on 8 GPUs with 64 experts it names 4 and 8, which suit
both grid and experts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from math import lcm

from meshplan.constraints.decisions import (
    DEGREES,
    DERIVED,
    GRAPH_FLAGS,
    GRAPH_SCOPES,
    RECOMPUTE_FLAGS,
    RECOMPUTE_MODULES,
)
from meshplan.constraints.layout import Layout, Value
from meshplan.constraints.problem import Problem, scope_values
from meshplan.constraints.rule import Rule, Violation
from meshplan.scenarios.checks import MAX_DEGREE
from meshplan.solver.change import with_degrees
from meshplan.solver.layout_text import Stated

#: Values that are named of each setting, at most.
_MOST = 2
#: Degrees that follow unless they are stated, and what a person sets instead.
_FOLLOWING = {"dp": ("tp", "cp", "pp"), "edp": ("etp", "ep", "pp"), "ga": ("gbs",)}
#: Rules on the grids, which another number of GPUs can satisfy.
_GRIDS = ("world-dense-divisible", "world-expert-divisible")
_SEQUENCE = "workload.seq_len"
#: Tokens per rank that 8-bit GEMMs need are multiples of at most this.
_LARGEST_TILE = 32


def with_nearest(
    problem: Problem,
    stated: Stated,
    layout: Layout,
    rules: Sequence[Rule],
    violation: Violation,
) -> Violation:
    """The violation with the values of each setting that mend it, nearest first.

    Parameters
    ----------
    stated
        What the person fixed; every other degree follows a change.
    layout
        The completed layout that breaks the rule.
    rules
        All rules that it is held to.
    """
    rule = next((one for one in rules if one.id == violation.rule), None)
    if rule is None:  # a rule on slots: the remedy is another layout string
        return violation
    search = _Search(problem, stated, layout, rules)
    found: dict[str, list[Value]] = {}
    for name in _settings(rule, stated):
        if name in DEGREES:
            values: list[Value] = list(search.degrees(rule, name))
        else:
            values = search.options(rule, name)
        if values:
            found[name] = values
    if _SEQUENCE in rule.fields and (lengths := search.lengths(rule)):
        found["seq_len"] = list(lengths)
    if rule.id in _GRIDS and (clusters := search.clusters()):
        found["gpus"] = list(clusters)
    return dataclasses.replace(violation, nearest=_as_stated(found, layout))


def _as_stated(found: dict[str, list[Value]], layout: Layout) -> dict[str, list[Value]]:
    """The values by the names of a layout text: ``rc_full = 0`` as ``recompute = none``."""
    stated: dict[str, list[Value]] = {}
    for name, values in found.items():
        if name == "rc_full" or name in RECOMPUTE_FLAGS:
            key, present, every = "recompute", layout.recompute, RECOMPUTE_MODULES
        elif name in GRAPH_FLAGS:
            key, present, every = "graphs", layout.cuda_graphs, GRAPH_SCOPES
        else:
            stated[name] = values
            continue
        module = name[3:]
        for value in values:
            kept = [m for m in every if (value if m == module else m in present)]
            text = "full" if name == "rc_full" and value else "+".join(kept) or "none"
            if text not in stated.setdefault(key, []):
                stated[key].append(text)
    return stated


def _settings(rule: Rule, stated: Stated) -> list[str]:
    """Decisions of the rule's scope that a person sets."""
    names = [source for name in rule.scope for source in DERIVED.get(name, (name,))]
    set_by = (
        (name,) if name in stated.degrees else _FOLLOWING.get(name, (name,)) for name in names
    )
    return list(dict.fromkeys(name for group in set_by for name in group))


class _Search:
    """Tries values around one layout."""

    def __init__(
        self, problem: Problem, stated: Stated, layout: Layout, rules: Sequence[Rule]
    ) -> None:
        self.problem, self.stated, self.layout, self.rules = problem, stated, layout, rules
        self.broken = {one.id for one in rules if not _holds(one, problem, layout)}

    def degrees(self, rule: Rule, name: str) -> list[int]:
        """Values of a degree, or of the batch, that mend ``rule`` and break nothing new.

        If some of them mend every rule that reads the degree, only those are named.
        """
        mending: list[int] = []
        harmless: list[int] = []
        for value in self._near(name):
            changed = self._changed(name, value)
            if not _holds(rule, self.problem, changed):
                continue
            broken = self._still_broken(changed)
            if any(one.id not in self.broken for one in broken):
                continue
            harmless.append(value)
            if not any(name in one.scope for one in broken):
                mending.append(value)
                if len(mending) == _MOST:
                    break
        return (mending or harmless)[:_MOST]

    def options(self, rule: Rule, name: str) -> list[Value]:
        """Values of an option that alone satisfy ``rule``."""
        now = self.layout.value(name)
        tried: Sequence[Value]
        if isinstance(now, str):
            tried = self.problem.candidates.get(name, ())
        elif name == "offload":
            tried = self._percents_nearest_first()
        else:  # a recompute module or graph scope, in or out
            tried = (0, 1)
        index = rule.scope.index(name)
        values = list(scope_values(self.problem, self.layout, rule.scope))
        legal: list[Value] = []
        for value in tried:
            values[index] = value
            if value != now and rule.holds(self.problem, *values):
                legal.append(value)
        return legal[:_MOST]

    def _percents_nearest_first(self) -> list[int]:
        return sorted(range(101), key=lambda percent: abs(percent - self.layout.offload))

    def _still_broken(self, changed: Layout) -> list[Rule]:
        """Rules that a changed layout breaks, without those that follow from other faults."""
        broken = [one for one in self.rules if not _holds(one, self.problem, changed)]
        if any(one.id in _GRIDS for one in broken):
            # Where a grid does not fit, dp and ga are rounded: rules on them mean nothing.
            broken = [
                one for one in broken if one.id in _GRIDS or not set(_FOLLOWING) & set(one.scope)
            ]
        # Options that are not stated are chosen anew.
        chosen = {n for n in ("cp_comm", "dispatcher") if getattr(self.stated, n) is None}
        return [one for one in broken if not chosen & set(one.scope)]

    def _changed(self, name: str, value: int) -> Layout:
        return with_degrees(self.problem, self.stated, self.layout, {name: value})

    def _near(self, name: str) -> list[int]:
        """Other values worth a try: divisions, multiples and neighbours of the present one."""
        now = int(self.layout.value(name))
        numbers = {now // d for d in range(1, 65)} | {now + d for d in range(-8, 9)}
        numbers |= {now * d for d in range(2, 9)} | {1 << i for i in range(18)}
        if name == "gbs":
            layout = self.layout
            for step in (layout.mbs * layout.dp, layout.mbs * layout.dp * layout.pp):
                numbers |= {(now // step + d) * step for d in range(-2, 3)}
            numbers.add(layout.mbs * layout.dp * layout.ga)
        near = (number for number in numbers if 1 <= number <= MAX_DEGREE and number != now)
        return sorted(near, key=lambda number: (abs(number - now), number))

    def lengths(self, rule: Rule) -> list[int]:
        """Sequence lengths that mend ``rule``, below and above: whole shards on every rank."""
        layout, now = self.layout, self.problem.seq_len
        step = lcm(2 * layout.cp if layout.cp > 1 else 1, layout.cp * layout.tp)
        for wider in (step, step * _LARGEST_TILE):
            lengths = [now // wider * wider, (now // wider + 1) * wider]
            lengths = [n for n in lengths if n > 0 and self._at_length(rule, n)]
            if lengths:
                return lengths
        return []

    def _at_length(self, rule: Rule, seq_len: int) -> bool:
        return _holds(rule, dataclasses.replace(self.problem, seq_len=seq_len), self.layout)

    def clusters(self) -> list[int]:
        """Numbers of GPUs that both grids cover, below and above the present one."""
        layout, given = self.layout, self.stated.degrees
        grids = (layout.tp * layout.cp * layout.pp, layout.etp * layout.ep * layout.pp)
        step, now = lcm(*grids), self.problem.gpus
        fixed = {
            grid * getattr(layout, degree)
            for grid, degree in zip(grids, ("dp", "edp"), strict=True)
            if degree in given
        }
        sizes = sorted(fixed) or [now // step * step, (now // step + 1) * step]
        fitting = [n for n in sizes if 0 < n <= MAX_DEGREE and n % step == 0 and n != now]
        return fitting if len(fixed) <= 1 else []


def _holds(rule: Rule, problem: Problem, layout: Layout) -> bool:
    return rule.holds(problem, *scope_values(problem, layout, rule.scope))
