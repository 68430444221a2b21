"""What a sweep came to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from meshplan.sweeps.axes import Axis
from meshplan.sweeps.row import COLUMNS, Row


@dataclass(frozen=True)
class Sweep:
    """The rows of a sweep, in the order of its grid.

    Attributes
    ----------
    name
        Of the scenario that was swept.
    rows
        One for each scenario that has been solved: the swept fields, then ``COLUMNS``.
    scenarios
        How many the grid has.
    """

    name: str
    axes: tuple[Axis, ...]
    rows: tuple[Row, ...]
    scenarios: int

    @property
    def whole(self) -> bool:
        """Whether each scenario has its row."""
        return len(self.rows) == self.scenarios

    @property
    def proved(self) -> bool:
        """Whether each scenario is solved or proved infeasible: no limit stopped any."""
        return self.whole and all(row["status"] in ("optimal", "infeasible") for row in self.rows)

    def counts(self) -> dict[str, int]:
        """Rows by status, the better first."""
        order = ("optimal", "infeasible", "feasible", "unknown", "error")
        said = [row["status"] for row in self.rows]
        return {status: said.count(status) for status in order if status in said}

    def fields(self) -> list[str]:
        """The columns: swept fields, then the others."""
        return [*(axis.field for axis in self.axes), *COLUMNS]

    def to_json(self) -> dict[str, Any]:
        """The sweep as plain data, for JSON."""
        return {
            "meshplan_sweep": 1,
            "name": self.name,
            "over": {axis.field: list(axis.values) for axis in self.axes},
            "rows": [dict(row) for row in self.rows],
        }

    def __str__(self) -> str:
        counts = ", ".join(f"{count} {status}" for status, count in self.counts().items())
        return f"{self.name}: {len(self.rows)} of {self.scenarios} scenarios: {counts or 'none'}"


def sweep_of(
    name: str, axes: tuple[Axis, ...], values: Sequence[tuple[Any, ...]], rows: Mapping[int, Row]
) -> Sweep:
    """Put rows, by their index, into the order of the grid, each with its swept fields."""
    fields = [axis.field for axis in axes]
    ordered = tuple(
        dict(zip(fields, values[index], strict=True))
        | {name: rows[index][name] for name in COLUMNS}
        for index in sorted(rows)
    )
    return Sweep(name, axes, ordered, len(values))


__all__ = ["Sweep", "sweep_of"]
