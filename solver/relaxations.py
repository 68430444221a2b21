"""What holds the optimum: each limit, pin and resource relaxed by one step, and solved again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from meshplan.constraints.layout import Layout
from meshplan.constraints.problem import QUANTA_PER_GIB, Problem
from meshplan.solver.changed import changed_problem, with_node
from meshplan.solver.found import to_layout
from meshplan.solver.progress import LimitReached, Progress
from meshplan.solver.results import Plan, Relaxation
from meshplan.solver.search import Search

#: A faster link, a larger peak or more memory of a node: so many times as much.
_STEP = 1.1
#: Resources of a GPU or node: key, what it is called, its figures, the unit they are shown in.
_RESOURCES: tuple[tuple[str, str, tuple[str, ...], str], ...] = (
    ("compute", "tensor-core peak", ("bf16_tflops", "fp8_tflops", "fp4_tflops"), ""),
    ("hbm", "memory bandwidth", ("hbm_tbps",), "TB/s"),
    ("nvlink", "NVLink", ("nvlink_gbps",), "GB/s a GPU"),
    ("network", "network", ("nic_gbps",), "GB/s a GPU"),
    ("host_link", "link to host memory", ("host_link_gbps",), "GB/s a GPU"),
)


@dataclass(frozen=True)
class _Relaxed:
    """A problem with one thing relaxed, and how much memory it has."""

    key: str
    change: str
    path: str | None
    problem: Problem
    capacity: int


def relaxations(
    plan: Plan,
    *,
    started: float | None = None,
    deadline: float | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Iterator[Relaxation]:
    """Solve the scenario of a plan again, with one thing after the other relaxed.

    What is compared is the fastest layout of each, proved, with that of the scenario as it is
    (``plan.proof.objective``), by tokens per second.

    Parameters
    ----------
    plan
        A proved plan.
    started
        ``time.monotonic()`` from which progress counts; by default now.
    deadline
        Of ``time.monotonic()``; what is not solved by then has the status ``unknown``.
    """
    began = time.monotonic() if started is None else started
    base_s = plan.proof.objective / _largest_batch(plan.problem)
    yield _tolerance(plan)
    every = list(_each(plan))
    for number, relaxed in enumerate(every, 1):
        phase = f"relaxing {relaxed.key} ({number} of {len(every)})"

        def report(best: int | None, bound: int, phase: str = phase) -> None:
            if progress is not None:
                gap = None if best is None else (best - bound) / best
                incumbent = None if best is None else best / 1e6
                elapsed = time.monotonic() - began
                progress(Progress(elapsed, incumbent, bound / 1e6, gap, phase))

        search = Search(
            relaxed.problem, capacity=relaxed.capacity, deadline=deadline, report=report, reach=0
        )
        search.start_from(plan.layout)
        yield _solved(relaxed, search, base_s)


def _solved(relaxed: _Relaxed, search: Search, base_s: float) -> Relaxation:
    status: Literal["optimal", "unknown"] = "optimal"
    step: int | None
    layout: Layout | None = None
    try:
        step = search.fastest(search.regions())
    except LimitReached:
        step, status = None, "unknown"
    if step is None:
        return Relaxation(relaxed.key, relaxed.change, relaxed.path, status, None, None, None)
    assert search.best is not None  # the plan itself is still one
    layout = to_layout(search.best.decisions, search.best.slots)
    each_s = step / 1e6 / _largest_batch(relaxed.problem)
    return Relaxation(
        relaxed.key, relaxed.change, relaxed.path, status, search.best.step / 1e6,
        base_s / each_s - 1, layout,
    )  # fmt: skip


def _largest_batch(problem: Problem) -> int:
    return max(int(size) for size in problem.domain("gbs"))


def _tolerance(plan: Plan) -> Relaxation:
    """What the preference for data parallelism and headroom costs: known without a search."""
    problem = plan.problem
    fastest = (one.layout for one in plan.alternatives if one.note == "fastest")
    tolerance = problem.limits.dp_tolerance
    own_s = plan.cost.time.step_us / 1e6 / plan.layout.gbs * _largest_batch(problem)
    return Relaxation(
        "dp_tolerance",
        f"objective.dp_tolerance: 0 instead of {tolerance:g}",
        "objective.dp_tolerance",
        "optimal",
        plan.proof.objective,
        own_s / plan.proof.objective - 1,
        next(fastest, plan.layout),
    )


def _each(plan: Plan) -> Iterator[_Relaxed]:
    yield from _memory(plan.problem)
    yield from _fields(plan.problem)
    yield from _resources(plan.problem)


def _memory(problem: Problem) -> Iterator[_Relaxed]:
    capacity = problem.capacity
    more = capacity + QUANTA_PER_GIB
    sizes = f"{more / QUANTA_PER_GIB:.1f} instead of {capacity / QUANTA_PER_GIB:.1f}"
    path = "limits.memory_headroom"
    yield _Relaxed("memory", f"GPU memory: 1 GiB more, {sizes} GiB", path, problem, more)
    twice = f"{2 * capacity / QUANTA_PER_GIB:.1f} GiB"
    yield _Relaxed(
        "memory_twice", f"GPU memory: twice as much, {twice}", None, problem, 2 * capacity
    )


def _fields(problem: Problem) -> Iterator[_Relaxed]:
    """Fields of the scenario that keep something from the search, each opened."""
    for path in dict.fromkeys(pin.path for pin in problem.pins):
        text = next(pin.text for pin in problem.pins if pin.path == path)
        value = "auto" if path.startswith("options.") else None
        yield _changed(problem, path, value, f"{text}: free instead")
    layout = problem.asked.get("layout", {})
    if len(layout) > 1:
        yield _changed(problem, "layout", None, "layout: all pins free")
    if problem.layout_string is not None or problem.even_split:
        path, text = "options.pipeline_layout", problem.layout_string or "even"
        yield _changed(problem, path, "auto", f"{path} = {text}: free instead")
    limits = problem.limits
    if limits.min_dp > 1:
        change = f"limits.min_dp: 1 instead of {limits.min_dp}"
        yield _changed(problem, "limits.min_dp", 1, change)
    if limits.tp_within_domain:
        change = "limits.tp_within_domain: TP groups may leave the NVLink domain"
        yield _changed(problem, "limits.tp_within_domain", False, change)
    if limits.ep_within_domain and problem.model.is_moe:
        change = "limits.ep_within_domain: EP groups may leave the NVLink domain"
        yield _changed(problem, "limits.ep_within_domain", False, change)
    if len(sizes := problem.candidates["gbs"]) == 1:
        size = int(sizes[0])
        change = f"workload.global_batch_size: {2 * size:,} instead of {size:,}"
        yield _changed(problem, "workload.global_batch_size", 2 * size, change)


def _changed(problem: Problem, path: str, value: object, change: str) -> _Relaxed:
    """The problem with one field of its scenario changed, or left open (None), on the same GPUs."""
    changed = changed_problem(problem, {path: value})
    changed = replace(changed, cluster=problem.cluster)
    return _Relaxed(path.rpartition(".")[2], change, path, changed, changed.capacity)


def _resources(problem: Problem) -> Iterator[_Relaxed]:
    """Hardware that is 10 % better in one figure."""
    node = problem.node_type
    for key, title, figures, unit in _RESOURCES:
        changes = {name: now * _STEP for name in figures if (now := getattr(node, name))}
        change = f"{title}: 10 % faster"
        if unit:
            (now,) = (getattr(node, name) for name in figures)
            change += f", {now * _STEP:g} instead of {now:g} {unit}"
        yield _Relaxed(key, change, None, with_node(problem, changes), problem.capacity)
    if problem.uses_host_memory:
        more = node.host_memory_gib * _STEP
        change = f"host memory: 10 % more, {more:,.0f} instead of {node.host_memory_gib:,.0f} GiB"
        changed = with_node(problem, {"host_memory_gib": more})
        yield _Relaxed("host_memory", f"{change} a node", None, changed, problem.capacity)


__all__ = ["relaxations"]
