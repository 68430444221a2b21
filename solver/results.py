"""What the public functions return: plans, proofs of infeasibility, judgements of a layout."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from meshplan.constraints.layout import Layout
from meshplan.constraints.problem import Problem
from meshplan.constraints.rule import Violation
from meshplan.solver.judge import Cost
from meshplan.solver.shown import Shown

if TYPE_CHECKING:
    from meshplan.solver.diagnosis.result import Diagnosis


@dataclass(frozen=True)
class Proof:
    """How good the answer is proved to be.

    Attributes
    ----------
    objective, bound
        Step time of the best plan by throughput, and a proved lower bound of it, in seconds,
        for the largest batch of the scenario.
    gap
        Relative gap between the two; 0 when proved.
    wall_s
        Seconds that the search took.
    cells, programs
        Cells that the bounds looked at, and CP-SAT programs solved.
    """

    objective: float
    bound: float
    gap: float
    wall_s: float
    cells: int = 0
    programs: int = 0


@dataclass(frozen=True)
class Alternative:
    """Another layout, beside the plan, with what it costs."""

    layout: Layout
    step_s: float
    peak_gib: float
    note: str = ""


@dataclass(frozen=True)
class Relaxation:
    """One thing that holds the plan, relaxed by one step, and the scenario solved again.

    Attributes
    ----------
    key
        Name for tools: ``memory``, ``network``, or the scenario's field (``tp``, ``min_dp``).
    change
        What was relaxed, in words.
    path
        The scenario's field for it; None where it is the hardware.
    status
        ``optimal`` (proved) or ``unknown`` (a limit came first).
    step_s
        Step time of the fastest layout; None where it is not known.
    gain
        Throughput of that layout over that of the fastest one of the scenario as it is, less 1.
    layout
        That layout.
    """

    key: str
    change: str
    path: str | None
    status: Literal["optimal", "unknown"]
    step_s: float | None
    gain: float | None
    layout: Layout | None


@dataclass(frozen=True)
class TriedPart:
    """A number of GPUs that the search could have used.

    Attributes
    ----------
    gpus, group
        GPUs, in each NVLink domain a multiple of ``group``.
    status
        ``used``; ``slower`` (searched: no plan on them is faster); ``bound`` (excluded by its
        bound); ``none`` (proved that no layout fits); ``open`` (a limit came first).
    step_s
        What no plan on them beats, in seconds, for the largest batch; None with ``none``.
    """

    gpus: int
    group: int
    status: Literal["used", "slower", "bound", "none", "open"]
    step_s: float | None


@dataclass(frozen=True)
class Plan(Shown):
    """A layout with its memory, time and proof.

    ``status`` is ``optimal`` (proved) or ``feasible`` (a limit stopped the proof).

    Attributes
    ----------
    alternatives
        A few other layouts within the tolerance, by their bounds; not a ranking.
    top
        The fastest degree tuples (tp, cp, pp, ep, etp), each with its fastest plan, in order.
    pareto
        All plans of which none is better in throughput, DP and memory (whole GiB) at once.
    relaxations
        What one step more of each limit, pin and resource gains.
    unfinished
        Which of ``top``, ``pareto`` and ``binding`` was asked for and cut short.
    parts
        The numbers of GPUs that were chosen from, the fastest bounds first; empty where the
        scenario fixes it.
    near_misses
        What the plan is close to, in sentences: little memory to spare, no data parallelism,
        neighbours that do not fit.
    """

    problem: Problem
    status: Literal["optimal", "feasible"]
    layout: Layout
    cost: Cost
    proof: Proof
    advisories: tuple[tuple[str, str], ...] = ()
    binding: tuple[str, ...] = ()
    alternatives: tuple[Alternative, ...] = ()
    top: tuple[Alternative, ...] = ()
    pareto: tuple[Alternative, ...] = ()
    relaxations: tuple[Relaxation, ...] = ()
    unfinished: tuple[str, ...] = ()
    parts: tuple[TriedPart, ...] = ()
    near_misses: tuple[str, ...] = ()
    stopped_by: Literal["limit", "interrupt"] | None = None

    @property
    def proved(self) -> bool:
        """Whether all that was asked for is proved."""
        return self.status == "optimal" and not self.unfinished

    def to_json(self) -> dict[str, Any]:
        """The plan as plain data, by the contract ``meshplan_result: 1``."""
        from meshplan.solver.report.data import plan_data

        return plan_data(self)


@dataclass(frozen=True)
class Conflict:
    """Facts that cannot hold together.

    Attributes
    ----------
    rules
        Rule ids, catalogue order.
    pins
        The scenario's own fields that take part, as written (``layout.cp = 64``).
    text
        The conflict in the user's numbers.
    minimal
        Whether it is proved that no fact can be left out.
    """

    rules: tuple[str, ...]
    pins: tuple[str, ...]
    text: str
    minimal: bool


@dataclass(frozen=True)
class Infeasible(Shown):
    """No layout obeys all rules, pins and limits: proved, with the facts that clash."""

    problem: Problem
    conflicts: tuple[Conflict, ...]
    wall_s: float
    status: Literal["infeasible"] = "infeasible"

    @cached_property
    def diagnosis(self) -> Diagnosis:
        """Why nothing is possible and what would help; made when it is first asked for."""
        from meshplan.solver.diagnosis.diagnose import diagnose

        return diagnose(self.problem)

    def to_json(self) -> dict[str, Any]:
        """The diagnosis as plain data, by the contract ``meshplan_result: 1``."""
        from meshplan.solver.report.data import infeasible_data

        return infeasible_data(self)


@dataclass(frozen=True)
class Unknown(Shown):
    """A limit stopped the search before any plan was found; ``bound`` is what is proved."""

    problem: Problem
    bound: float
    wall_s: float
    stopped_by: Literal["limit", "interrupt"] = "limit"
    status: Literal["unknown"] = "unknown"

    def to_json(self) -> dict[str, Any]:
        """The answer as plain data, by the contract ``meshplan_result: 1``."""
        from meshplan.solver.report.data import unknown_data

        return unknown_data(self)


@dataclass(frozen=True)
class CheckReport(Shown):
    """Judgement of one concrete layout.

    ``cost`` is None where an illegal layout has no meaning to cost (its slots do not cover the
    layers, say).
    """

    problem: Problem
    status: Literal["ok", "illegal", "overfull"]
    layout: Layout
    violations: tuple[Violation, ...]
    cost: Cost | None
    advisories: tuple[tuple[str, str], ...] = ()
    assumed: tuple[str, ...] = field(default=())

    def to_json(self) -> dict[str, Any]:
        """The judgement as plain data, by the contract ``meshplan_result: 1``."""
        from meshplan.solver.report.data import check_data

        return check_data(self)
