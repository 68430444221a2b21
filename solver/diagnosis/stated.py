"""A layout that a person states, as pins of the scenario: what is diagnosed then."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from meshplan.constraints.layout import Layout
from meshplan.constraints.parts import fixed_to, part_for
from meshplan.constraints.problem import Problem
from meshplan.constraints.resolve import resolve
from meshplan.scenarios.errors import InputError
from meshplan.scenarios.schema import Scenario
from meshplan.solver.changed import changed_problem
from meshplan.solver.diagnosis.gpus import with_fixed_gpus
from meshplan.solver.layout_text import Stated, read_layout, stated_by

#: Fields of the scenario for the names of a layout text; all other degrees are under ``layout``.
_FIELDS = {
    "gbs": "workload.global_batch_size",
    "recompute": "options.recompute",
    "offload": "options.optimizer_offload",
    "dispatcher": "options.dispatcher",
    "cp_comm": "layout.cp_comm",
    "graphs": "options.cuda_graphs",
    "pipeline": "options.pipeline_layout",
}


def with_stated(
    scenario: Scenario, layout: Layout | Mapping[str, object] | str | None
) -> tuple[Problem, tuple[str, ...]]:
    """The problem whose pins are the stated layout, and the fields that it states.

    What the layout leaves open stays as the scenario has it.

    Raises
    ------
    InputError
        If the layout cannot be read, or holds a value that no scenario takes.
    """
    problem = resolve(scenario)
    if layout is None:
        return with_fixed_gpus(problem), ()
    stated = stated_by(layout) if isinstance(layout, Layout) else read_layout(layout)
    if problem.gpus_open and (part := part_for(problem, stated.degrees)) is not None:
        problem = fixed_to(problem, part)
    gpus = stated.degrees.get("gpus", problem.gpus)
    if gpus != problem.gpus:
        raise InputError(
            f"layout has gpus = {gpus}, but the scenario's cluster has {problem.gpus}",
            advice=f"leave gpus out, or set cluster.gpus={gpus} in the scenario.",
        )
    values = dict(_values(stated))
    return changed_problem(problem, values), tuple(values)


def _values(stated: Stated) -> Iterator[tuple[str, object]]:
    """Fields of the scenario and what the layout makes of them."""
    for name, degree in stated.degrees.items():
        if name != "gpus":
            yield _field(name), degree
    if stated.recompute is not None:
        modules = list(stated.recompute) or "none"
        yield _FIELDS["recompute"], "full" if stated.recompute_full else modules
    if stated.offload is not None:
        yield _FIELDS["offload"], stated.offload / 100
    if stated.graphs is not None:
        yield _FIELDS["graphs"], list(stated.graphs) or "none"
    for name in ("dispatcher", "cp_comm", "pipeline"):
        value = getattr(stated, name)
        if value is not None:
            yield _FIELDS[name], value
    for name in sorted(stated.free):
        path = _field(name)
        yield path, "auto" if path.startswith("options.") else None


def _field(name: str) -> str:
    return _FIELDS.get(name, f"layout.{name}")
