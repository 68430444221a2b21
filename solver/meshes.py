"""All legal degree tuples of one pipeline degree: the rules over degrees, joined into one table.

Rules whose scope lies within the degrees are checked as soon as the last degree of their scope
is set, so the join prunes early.  CP-SAT gets the result as one table of allowed assignments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from meshplan.constraints.problem import Problem
from meshplan.constraints.rule import Rule

#: Degrees of the joined table, in the order in which they are set.  ``dp``, ``edp`` and ``ga``
#: follow from the ones before them.
MESH: tuple[str, ...] = ("tp", "cp", "dp", "etp", "ep", "edp", "gbs", "mbs", "ga")

#: Rules that define a derived degree: without the rule (diagnosis) the degree is the quotient
#: rounded down, at least 1, so that the other rules can still be judged.
DEFINING: dict[str, str] = {
    "dp": "world-dense-divisible",
    "edp": "world-expert-divisible",
    "ga": "gbs-divisible",
}


@dataclass(frozen=True)
class MeshTable:
    """Legal rows over :data:`MESH` for one pipeline degree."""

    pp: int
    rows: tuple[tuple[int, ...], ...]

    def projections(self, names: Sequence[str]) -> list[tuple[int, ...]]:
        """Distinct values of ``names`` over all rows, sorted."""
        columns = [MESH.index(name) for name in names]
        return sorted({tuple(row[c] for c in columns) for row in self.rows})

    def values(self, name: str) -> list[int]:
        """Distinct values of one degree."""
        return [value for (value,) in self.projections((name,))]


def mesh_table(
    problem: Problem,
    pp: int,
    rules: Iterable[Rule],
    pins: dict[str, tuple[int | str, ...]],
    extra: Callable[[dict[str, int]], bool] | None = None,
) -> MeshTable:
    """Join all rules within the degrees, for pipeline degree ``pp``.

    Parameters
    ----------
    pins
        Allowed values of pinned decisions; they replace the candidates.
    extra
        A further test of a complete row (``pp`` included).
    """
    rules = tuple(rules)
    known = {"pp", *MESH}
    inside = [rule for rule in rules if set(rule.scope) <= known]
    ready: dict[str, list[Rule]] = {name: [] for name in ("pp", *MESH)}
    order = ("pp", *MESH)
    for rule in inside:
        last = max(rule.scope, key=order.index)
        ready[last].append(rule)
    enforced = {rule.id for rule in rules}
    row: dict[str, int] = {"pp": pp}
    rows: list[tuple[int, ...]] = []
    if not all(rule.holds(problem, *(row[n] for n in rule.scope)) for rule in ready["pp"]):
        return MeshTable(pp, ())

    def extend(depth: int) -> None:
        if depth == len(MESH):
            if extra is None or extra(row):
                rows.append(tuple(row[name] for name in MESH))
            return
        name = MESH[depth]
        for value in _values(problem, name, row, enforced, pins):
            row[name] = value
            if all(rule.holds(problem, *(row[n] for n in rule.scope)) for rule in ready[name]):
                extend(depth + 1)
        row.pop(name, None)

    extend(0)
    return MeshTable(pp, tuple(rows))


def _values(
    problem: Problem,
    name: str,
    row: dict[str, int],
    enforced: set[str],
    pins: dict[str, tuple[int | str, ...]],
) -> Iterator[int]:
    if name in DEFINING:
        total, divisor = _quotient(problem, name, row)
        exact = total % divisor == 0 and total > 0
        if not exact and DEFINING[name] in enforced:
            return
        value = max(1, total // divisor)
        if name not in pins or value in pins[name]:
            yield value
        return
    yield from (int(value) for value in pins.get(name, problem.candidates[name]))


def _quotient(problem: Problem, name: str, row: dict[str, int]) -> tuple[int, int]:
    if name == "dp":
        return problem.gpus, row["pp"] * row["tp"] * row["cp"]
    if name == "edp":
        return problem.gpus, row["pp"] * row["etp"] * row["ep"]
    return row["gbs"], row["mbs"] * row["dp"]
