"""Judge one concrete layout of a scenario, with no solver inside: what ``meshplan check`` does."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Literal

from meshplan.constraints.advisories import ALL_ADVISORIES
from meshplan.constraints.layout import Layout
from meshplan.constraints.memory.verdict import verdict
from meshplan.constraints.parts import on_part, part_for
from meshplan.constraints.pipeline import LayoutStringError, parse_layout
from meshplan.constraints.problem import Problem
from meshplan.constraints.resolve import resolve
from meshplan.constraints.rule import Rule
from meshplan.constraints.split_rules import LAYERS_SPLIT_EVENLY
from meshplan.scenarios.checks import shown
from meshplan.scenarios.errors import InputError
from meshplan.scenarios.schema import Scenario
from meshplan.solver.complete import MEANINGLESS, can_cost, complete, with_pins
from meshplan.solver.judge import Cost, active_rules, cost, violations
from meshplan.solver.layout_text import Stated, read_layout, stated_by
from meshplan.solver.nearest import with_nearest
from meshplan.solver.results import CheckReport


def check(
    scenario: Scenario, layout: Layout | Mapping[str, object] | str | None = None
) -> CheckReport:
    """Judge a layout: rules broken, memory by stage, step time, advisories.

    Parameters
    ----------
    scenario
        The question; its pins with one value hold where ``layout`` says nothing.
    layout
        ``"tp=1,cp=32,ep=32,pp=8,vpp=4"`` or a mapping with the same keys: the degrees, and
        ``recompute`` (``moe+mlp``, ``full``, ``none``), ``offload`` (percent), ``dispatcher``,
        ``cp_comm``, ``graphs`` (``attn+moe_router``), ``pipeline`` (a layout string, or ``even``);
        an option may be ``auto``.  A whole :class:`Layout`, of a plan say, is judged as it is.

    Raises
    ------
    InputError
        If the layout cannot be read, or the scenario cannot be resolved.
    """
    if isinstance(layout, Layout):
        problem = _on_used_gpus(resolve(scenario), vars(layout) | {"gpus": layout.gpus})
        report = judge_layout(problem, layout, problem.assumed)
        return _with_nearest(report, stated_by(layout))
    if not isinstance(layout, Mapping | str | None):
        raise InputError(
            f"layout is a {type(layout).__name__}, but must be a text, a mapping or a Layout",
            advice='write "tp=1,cp=32,ep=32,pp=8,vpp=4".',
        )
    stated = read_layout(layout)
    problem = _with_pipeline(scenario, resolve(scenario), stated)
    problem = _on_used_gpus(problem, with_pins(problem, stated).degrees)
    _same_gpus(problem, stated)
    pinned = with_pins(problem, stated)
    whole, completed = complete(problem, pinned)
    # Sentences of the search on what it may try do not hold for one layout.
    kept = tuple(
        text
        for text in problem.assumed
        if not text.startswith(("layout.", "options.", "objective."))
    )
    report = judge_layout(problem, whole, (*completed, *_overridden(problem, stated), *kept))
    return _with_nearest(report, pinned)


def judge_layout(problem: Problem, layout: Layout, assumed: tuple[str, ...] = ()) -> CheckReport:
    """Judge a whole layout; costs are left out where an illegal layout has none."""
    broken = tuple(violations(problem, layout))
    costs = _cost(problem, layout)
    status: Literal["ok", "illegal", "overfull"] = "ok"
    if broken:
        status = "illegal"
    elif costs is not None and verdict(problem, costs.ranks) == "overfull":
        status = "overfull"
    advisories: tuple[tuple[str, str], ...] = ()
    if costs is not None:
        found = ((one.id, one.check(problem, layout, costs.ranks)) for one in ALL_ADVISORIES)
        advisories = tuple((name, text) for name, text in found if text is not None)
    return CheckReport(problem, status, layout, broken, costs, advisories, assumed)


def _with_nearest(report: CheckReport, stated: Stated) -> CheckReport:
    """The report with what a person could change to mend each broken rule."""
    problem, layout = report.problem, report.layout
    rules = _rules(problem)
    mended = (with_nearest(problem, stated, layout, rules, one) for one in report.violations)
    return dataclasses.replace(report, violations=tuple(mended))


def _rules(problem: Problem) -> list[Rule]:
    """Rules on degrees that a layout is held to; asking for the even split is one of them."""
    rules = list(active_rules(problem))
    if LAYERS_SPLIT_EVENLY.applies(problem):
        rules.append(LAYERS_SPLIT_EVENLY)
    return rules


def _cost(problem: Problem, layout: Layout) -> Cost | None:
    if not can_cost(problem, layout):
        return None
    try:
        return cost(problem, layout)
    except MEANINGLESS:
        return None


def _with_pipeline(scenario: Scenario, problem: Problem, stated: Stated) -> Problem:
    """The problem with the pipeline layout that is asked for; refuses one that cannot be read."""
    if "pipeline" in stated.free:
        return dataclasses.replace(problem, layout_string=None, even_split=False)
    if stated.pipeline == "even":
        return dataclasses.replace(problem, layout_string=None, even_split=True)
    text = stated.pipeline or problem.layout_string
    if text is None:
        return problem
    try:
        parse_layout(text)
    except LayoutStringError as error:
        advice = 'write stages of E, t, m and L split by "|", such as Et*3|(tt|)*29m|L.'
        if stated.pipeline is not None:
            raise InputError(
                f"layout has pipeline = {shown(text)}, which {error}", advice=advice
            ) from None
        path = "options.pipeline_layout"
        raise scenario.error_at(path, f"{path} is {shown(text)}, which {error}", advice) from None
    return dataclasses.replace(problem, layout_string=text, even_split=False)


def _on_used_gpus(problem: Problem, degrees: Mapping[str, int]) -> Problem:
    """The problem on as many GPUs as the layout takes, where the scenario leaves that open."""
    part = part_for(problem, degrees) if problem.gpus_open else None
    return problem if part is None else on_part(problem, part)


def _same_gpus(problem: Problem, stated: Stated) -> None:
    gpus = stated.degrees.get("gpus")
    if gpus is not None and gpus != problem.gpus:
        raise InputError(
            f"layout has gpus = {gpus}, but the scenario's cluster has {problem.gpus}",
            advice=f"leave gpus out, or set cluster.gpus={gpus} in the scenario.",
        )


def _overridden(problem: Problem, stated: Stated) -> list[str]:
    """Degrees that the layout gives although the scenario pins others."""
    return [
        f"{name} = {stated.degrees[name]}: given, though the scenario has {pin.text}"
        for pin in problem.pins
        if (name := pin.decision) in stated.degrees and stated.degrees[name] not in pin.values
    ]


__all__ = ["check", "judge_layout"]
