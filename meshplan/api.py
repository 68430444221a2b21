"""The functions of the package: scenarios and results in, results out.

Each imports what it runs when it is called, so that importing this module is cheap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import datetime

    from meshplan.constraints.layout import Layout
    from meshplan.scenarios import ModelCard, Scenario
    from meshplan.solver.calibrate.result import CalibrationReport
    from meshplan.solver.compare.diff import DiffReport
    from meshplan.solver.compare.why import WhyReport
    from meshplan.solver.diagnosis.result import Diagnosis
    from meshplan.solver.limits.results import LimitsReport
    from meshplan.solver.memory import MemoryReport
    from meshplan.solver.placement.report import PlacementReport
    from meshplan.solver.progress import Progress
    from meshplan.solver.report.flops import FlopsReport
    from meshplan.solver.results import CheckReport, Infeasible, Plan, Unknown


def load(path: str | Path, overrides: Sequence[str] = ()) -> Scenario:
    """Read a scenario file.

    Parameters
    ----------
    path
        A YAML file.
    overrides
        Changes such as ``workload.seq_len=65536``, applied in order.

    Raises
    ------
    InputError
        If the file cannot be read, or anything in it is not allowed.
    """
    from meshplan.scenarios import load as load_scenario

    return load_scenario(path, overrides)


def solve(
    scenario: Scenario | str | Path,
    *,
    time_limit_s: float | None = None,
    progress: Callable[[Progress], None] | None = None,
    top: int = 0,
    pareto_within: float | None = None,
    binding: bool = False,
) -> Plan | Infeasible | Unknown:
    """Find the best plan of a scenario and prove that none is better, or that there is none.

    Parameters
    ----------
    scenario
        A scenario, or the path of its file.
    time_limit_s
        Seconds after which the best plan so far is returned; None for no limit.
    progress
        Called now and then with the state of the search.
    top
        How many of the fastest degree tuples to rank, each with its fastest plan: ``plan.top``.
    pareto_within
        How much slower than the fastest layout plans may be that enter the Pareto front of
        throughput, DP and memory, ``plan.pareto``, as a fraction; None for no front.
    binding
        Whether to relax each limit, pin and resource by one step and to solve again, for the
        ``relaxations`` of a plan.

    Raises
    ------
    InputError
        If the scenario cannot be read or resolved, or an argument is out of range.
    """
    from meshplan.arguments import check_limit, check_wanted
    from meshplan.constraints.resolve import resolve
    from meshplan.solver.diagnosis.near_misses import with_near_misses
    from meshplan.solver.listings import Wanted
    from meshplan.solver.solve import solve as search

    check_limit(time_limit_s)
    check_wanted(top, pareto_within)
    wanted = Wanted(top, pareto_within, binding)
    problem = resolve(_scenario(scenario))
    found = search(problem, time_limit_s=time_limit_s, progress=progress, wanted=wanted)
    return with_near_misses(found, time_limit_s)


def check(
    scenario: Scenario | str | Path, layout: Layout | Mapping[str, object] | str | None = None
) -> CheckReport:
    """Judge one layout of a scenario: rules broken, memory by stage, step time, advisories.

    Parameters
    ----------
    scenario
        A scenario, or the path of its file.
    layout
        ``"tp=1,cp=32,ep=32,pp=8,vpp=4"`` or a mapping with the same keys; what it leaves open is
        taken from the scenario's pins, then completed.

    Raises
    ------
    InputError
        If the scenario or the layout cannot be read.
    """
    from meshplan.solver.check import check as check_layout

    return check_layout(_scenario(scenario), layout)


def why(
    scenario: Scenario | str | Path,
    layout: Layout | Mapping[str, object] | str | None = None,
    *,
    time_limit_s: float | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> WhyReport:
    """Hold one layout of a scenario against the optimum.

    Which rule it breaks, or by how much it does not fit, or what it loses: the two step times
    term by term, and each decision in which the two differ changed alone.

    Parameters
    ----------
    scenario, layout
        As for :func:`check`.
    time_limit_s, progress
        As for :func:`solve`.

    Raises
    ------
    InputError
        If the scenario or the layout cannot be read, or an argument is out of range.
    """
    from meshplan.arguments import check_limit
    from meshplan.solver.compare.why import why as hold_against

    check_limit(time_limit_s)
    known = _scenario(scenario)
    return hold_against(known, layout, time_limit_s=time_limit_s, progress=progress)


def diagnose(
    scenario: Scenario | str | Path,
    layout: Layout | Mapping[str, object] | str | None = None,
    *,
    time_limit_s: float | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Diagnosis:
    """Say why a scenario has no layout and what would give it one, or how near it is to that.

    Parameters
    ----------
    scenario
        A scenario, or the path of its file.
    layout
        As for :func:`check`: the question is then about this layout, whose values are pins.
    time_limit_s, progress
        As for :func:`solve`; what a limit leaves unfinished is said (``cut_short``).

    Raises
    ------
    InputError
        If the scenario or the layout cannot be read, or an argument is out of range.
    """
    from meshplan.arguments import check_limit
    from meshplan.solver.diagnosis.diagnose import diagnose as search
    from meshplan.solver.diagnosis.stated import with_stated

    check_limit(time_limit_s)
    problem, fields = with_stated(_scenario(scenario), layout)
    return search(problem, time_limit_s=time_limit_s, progress=progress, stated=fields)


def limits(
    scenario: Scenario | str | Path,
    *,
    time_limit_s: float | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> LimitsReport:
    """Find how far each field of a scenario can go before nothing fits, all else as it is.

    The least GPUs and memory of one, the longest sequence, the largest global batch and
    micro-batch, and the most data parallelism, each with the plan that it buys.

    Parameters
    ----------
    scenario
        A scenario, or the path of its file.
    time_limit_s, progress
        As for :func:`solve`, for all of them together; what a limit leaves open is marked.

    Raises
    ------
    InputError
        If the scenario cannot be read, or an argument is out of range.
    """
    from meshplan.arguments import check_limit
    from meshplan.constraints.resolve import resolve
    from meshplan.solver.limits.search import limits as search

    check_limit(time_limit_s)
    return search(resolve(_scenario(scenario)), time_limit_s=time_limit_s, progress=progress)


def diff(
    first: Plan | CheckReport | str | Path,
    second: Plan | CheckReport | str | Path,
    *,
    time_limit_s: float | None = None,
) -> DiffReport:
    """Compare two plans or judged layouts: what differs, and what each decision does alone.

    Parameters
    ----------
    first, second
        Results of :func:`solve` or :func:`check`, or the paths of their JSON.
    time_limit_s
        Seconds after which layers are split near-evenly where a change asks for another split.

    Raises
    ------
    InputError
        If a file cannot be read or is no such result, or an argument is out of range.
    """
    from meshplan.arguments import check_limit
    from meshplan.solver.compare.diff import diff as compare

    check_limit(time_limit_s)
    return compare(first, second, time_limit_s=time_limit_s)


def memory(
    scenario: Scenario | str | Path,
    layout: Layout | Mapping[str, object] | str | None = None,
    *,
    rank: int | None = None,
) -> MemoryReport:
    """Memory of one layout of a scenario: events of each rank, items, what changes would give.

    Parameters
    ----------
    scenario, layout
        As for :func:`check`.
    rank
        Pipeline rank that is shown item by item; the fullest by default.

    Raises
    ------
    InputError
        If the scenario or the layout cannot be read, the layout has no memory to speak of, or
        there is no such rank.
    """
    from meshplan.solver.memory import memory as memory_of

    return memory_of(_scenario(scenario), layout, rank=rank)


def place(result: Plan | CheckReport | str | Path) -> PlacementReport:
    """Place the ranks of a plan or a judged layout on the nodes and GPUs of its cluster.

    Parameters
    ----------
    result
        Of :func:`solve` or :func:`check`, or the path of its JSON.

    Raises
    ------
    InputError
        If a file cannot be read or is no such result, or the layout is not legal.
    """
    from meshplan.solver.placement.report import placement_report

    return placement_report(result)


def flops(
    model: ModelCard | Scenario | str | Path, seq_lens: Iterable[int] | int = ()
) -> FlopsReport:
    """Count the training FLOPs of a model for one token and one sequence, as published figures do.

    Parameters
    ----------
    model
        The name of a model card, a card, a scenario or the path of its file, or the path of a
        Hugging Face ``config.json``.
    seq_lens
        Tokens in a sequence, one length or several; may be left out where a scenario has one.

    Raises
    ------
    InputError
        If the model cannot be found or read, or a length is missing or out of range.
    """
    from meshplan.solver.report.flops import flops as flops_of

    return flops_of(model, seq_lens)


def calibrate(
    runs: str | Path,
    *,
    base: str | Path = "default",
    name: str | None = None,
    date: datetime.date | None = None,
) -> CalibrationReport:
    """Fit the efficiencies of the step-time model to measured runs; needs SciPy.

    Parameters
    ----------
    runs
        A CSV file with a row for each run, as for ``meshplan calibrate``.
    base
        Where the fit starts, and what is kept where the runs cannot tell: ``default``, or the path
        of a calibration.
    name
        Name of the result; else that of the file of runs.
    date
        Day of the fit; today by default.

    Raises
    ------
    InputError
        If SciPy is not installed, a file cannot be read, or a run is not allowed.
    """
    from meshplan.solver.calibrate.result import calibrate as fit_to

    return fit_to(runs, base=base, name=name, date=date)


def _scenario(given: object) -> Scenario:
    """The scenario itself, or the one in the file whose path is given."""
    from meshplan.scenarios import InputError, Scenario

    if isinstance(given, Scenario):
        return given
    if isinstance(given, str | Path):
        return load(given)
    raise InputError(
        f"scenario is a {type(given).__name__}, but must be a Scenario or the path of its file",
        advice='call meshplan.load("my-run.yaml") first.',
    )
