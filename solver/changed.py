"""A problem resolved again from its scenario with some fields changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from meshplan.constraints.problem import Problem
from meshplan.constraints.resolve import resolve
from meshplan.scenarios import from_mapping

#: What paths of figures of the hardware start with; no scenario has such a field.
NODE = "node_type."


def changed_problem(problem: Problem, values: Mapping[str, object]) -> Problem:
    """The problem whose scenario has other values.

    Parameters
    ----------
    values
        By path: what a field of the scenario is to be (``layout.ep``; None leaves it open), or a
        figure of the node type (``node_type.hbm_gib``).

    Raises
    ------
    InputError
        If such a scenario is refused.
    """
    fields = {path: value for path, value in values.items() if not path.startswith(NODE)}
    figures = {
        path.removeprefix(NODE): value for path, value in values.items() if path.startswith(NODE)
    }
    if fields:
        data: dict[str, Any] = dict(problem.asked)
        for path, value in fields.items():
            data = _with_field(data, path.split("."), value)
        problem = resolve(from_mapping(data))
    return with_node(problem, figures) if figures else problem


def with_node(problem: Problem, figures: Mapping[str, object]) -> Problem:
    """The problem on nodes with other figures (``hbm_gib``), all else as it is."""
    node = problem.node_type.model_copy(update=figures)
    whole = None if problem.whole is None else replace(problem.whole, node_type=node)
    return replace(problem, cluster=replace(problem.cluster, node_type=node), whole=whole)


def asked_value(problem: Problem, path: str) -> Any:
    """What the scenario says at a path; None where it leaves it open."""
    value: Any = problem.asked
    for key in path.split("."):
        if not isinstance(value, Mapping) or key not in value:
            return None
        value = value[key]
    return value


def _with_field(data: Mapping[str, Any], keys: list[str], value: object) -> dict[str, Any]:
    first, *rest = keys
    if rest:
        return {**data, first: _with_field(data.get(first, {}), rest, value)}
    kept = {key: part for key, part in data.items() if key != first}
    return kept if value is None else {**kept, first: value}


__all__ = ["NODE", "asked_value", "changed_problem", "with_node"]
