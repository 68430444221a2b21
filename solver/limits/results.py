"""What is known of the limits, as data; text and JSON are made from this alone."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any, Literal

from meshplan.constraints.problem import Problem
from meshplan.solver.results import Plan


@dataclass(frozen=True)
class Limit:
    """How far one field can go.

    Attributes
    ----------
    path
        The field: ``cluster.gpus``, ``workload.seq_len``, or a figure of the nodes
        (``node_type.hbm_gib``).
    title
        In words: ``least GPUs``.
    now
        What the scenario says; None where it leaves the field open.
    value
        The least or largest value with which some layout is possible; None if none is known.
    proved
        Whether all values beyond it, in the steps that ``proof`` names, are refuted; for no
        value, whether all are.
    bounded
        False where the value is the most that a scenario may ask for.
    proof
        What was asked about, and what is proved.
    plan
        The best plan with this value; None without one, or where the time was up before.
    """

    path: str
    title: str
    now: float | None
    value: int | None
    proved: bool
    proof: str
    bounded: bool = True
    plan: Plan | None = None


@dataclass(frozen=True)
class LimitsReport:
    """The limits of a scenario, each with all other fields as they are.

    Attributes
    ----------
    possible
        Whether the scenario as it stands has a layout; None if that is not known.
    limits
        In a fixed order; fields that the scenario does not say are not among them.
    wall_s
        Seconds that the search took.
    """

    problem: Problem
    possible: bool | None
    limits: tuple[Limit, ...]
    wall_s: float

    @property
    def proved(self) -> bool:
        """Whether every limit is proved, and has its plan."""
        return self.possible is not None and all(
            one.proved and (one.value is None or one.plan is not None) for one in self.limits
        )

    @property
    def status(self) -> Literal["proved", "unfinished"]:
        """Whether a time limit left anything open."""
        return "proved" if self.proved else "unfinished"

    def to_json(self) -> dict[str, Any]:
        """The limits as plain data, ``meshplan_result: 1``."""
        from meshplan.solver.report.limits import limits_data

        return limits_data(self)

    def __str__(self) -> str:
        from meshplan.solver.report.limits import limits_text

        return limits_text(self)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


__all__ = ["Limit", "LimitsReport"]
