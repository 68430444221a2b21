"""Single changes of a layout, and what each would do to memory and step time."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

from meshplan.constraints.decisions import CP_COMM_TYPES, DISPATCHERS
from meshplan.constraints.layout import Layout
from meshplan.constraints.memory.verdict import Verdict, verdict
from meshplan.constraints.problem import Problem, Training
from meshplan.constraints.resolve import useful_modules
from meshplan.scenarios.choices import CROSS_ENTROPIES, OFFLOAD_MODULES
from meshplan.solver.judge import cost as cost_of
from meshplan.solver.judge import violations
from meshplan.solver.results import CheckReport


@dataclass(frozen=True)
class Lever:
    """One change of a layout, and the peak memory with it.

    Attributes
    ----------
    change
        In words: ``without recompute of moe``.
    path, value
        Field of a scenario that makes it, and what to write there.
    peak
        Peak of the fullest rank then, quanta.
    rank, event
        Which rank that is, and when it peaks.
    verdict
        Whether the layout fits then.
    step_us
        Step time then, microseconds.
    """

    change: str
    path: str
    value: object
    peak: int
    rank: int
    event: str
    verdict: Verdict
    step_us: int


#: A change in words, the field and its value, and what is asked then.
_Change = tuple[str, str, object, Problem, Layout]


def levers_of(report: CheckReport) -> Iterator[Lever]:
    """All single changes that break no further rule, and move the peak."""
    problem, layout, cost = report.problem, report.layout, report.cost
    assert cost is not None
    broken = {one.rule for one in report.violations}
    for change, path, value, asked, other in _changes(problem, layout):
        if {one.rule for one in violations(asked, other)} - broken:
            continue
        changed = cost_of(asked, other)
        if changed.peak == cost.peak:
            continue
        fullest = max(changed.ranks, key=lambda one: one.peak)
        yield Lever(
            change, path, value, fullest.peak, fullest.rank, fullest.event,
            verdict(asked, changed.ranks), changed.time.step_us,
        )  # fmt: skip


def _changes(problem: Problem, layout: Layout) -> Iterator[_Change]:
    for change, path, value, other in (
        *_recompute_changes(problem, layout),
        *_exchange_changes(layout),
        *_offload_changes(layout),
    ):
        yield change, path, value, problem, other
    for change, path, value, training in _training_changes(problem):
        yield change, path, value, dataclasses.replace(problem, training=training), layout


def _recompute_changes(
    problem: Problem, layout: Layout
) -> Iterator[tuple[str, str, object, Layout]]:
    path = "options.recompute"
    useful = useful_modules(problem.model, fused_attention=problem.training.fused_attention)
    if layout.recompute_full:
        yield "without recompute", path, "none", dataclasses.replace(layout, recompute_full=False)
        return
    for module in layout.recompute:
        rest = tuple(name for name in layout.recompute if name != module)
        less = dataclasses.replace(layout, recompute=rest)
        yield f"without recompute of {module}", path, list(rest) or "none", less
    for module in sorted(useful - set(layout.recompute)):
        more = dataclasses.replace(layout, recompute=(*layout.recompute, module))
        yield f"with recompute of {module}", path, list(more.recompute), more
    full = dataclasses.replace(layout, recompute=(), recompute_full=True)
    yield "with full recompute", path, "full", full


def _exchange_changes(layout: Layout) -> Iterator[tuple[str, str, object, Layout]]:
    """How keys and values, and tokens, are exchanged; no graphs."""
    for name in CP_COMM_TYPES if layout.cp > 1 else ():
        if name != layout.cp_comm:
            other = dataclasses.replace(layout, cp_comm=name)
            yield f"with exchange of keys and values by {name}", "layout.cp_comm", name, other
    for name in DISPATCHERS:
        if name != layout.dispatcher:
            other = dataclasses.replace(layout, dispatcher=name)
            yield f"with dispatcher {name}", "options.dispatcher", name, other
    if layout.cuda_graphs:
        plain = dataclasses.replace(layout, cuda_graphs=())
        yield "without CUDA graphs", "options.cuda_graphs", "none", plain


def _offload_changes(layout: Layout) -> Iterator[tuple[str, str, object, Layout]]:
    path = "options.optimizer_offload"
    if layout.offload:
        here = dataclasses.replace(layout, offload=0)
        yield "with the optimizer on the GPUs", path, False, here
    if layout.offload < 100:
        there = dataclasses.replace(layout, offload=100)
        yield "with the optimizer on the host", path, True, there


def _training_changes(problem: Problem) -> Iterator[tuple[str, str, object, Training]]:
    """What is no decision of a layout: activations on the host, implementation of the loss."""
    path, training = "options.activation_offload", problem.training
    moved = training.activation_offload
    for module in moved:
        # attn_proj reads what core_attn wrote, and is not moved without it.
        gone = {module} | ({"attn_proj"} if module == "core_attn" else set())
        rest = tuple(name for name in moved if name not in gone)
        less = dataclasses.replace(training, activation_offload=rest)
        yield (
            f"without offload of {' and '.join(sorted(gone & set(moved)))}",
            path,
            (list(rest) or "none"),
            less,
        )
    for module in OFFLOAD_MODULES:
        if module not in moved and not (module == "attn_proj" and "core_attn" not in moved):
            more = dataclasses.replace(training, activation_offload=(*moved, module))
            value = list(more.activation_offload)
            yield f"with offload of the input of {module}", path, value, more
    for name in CROSS_ENTROPIES:
        if name != training.cross_entropy:
            other = dataclasses.replace(training, cross_entropy=name)
            yield f"with {name} cross entropy", "training.cross_entropy", name, other


__all__ = ["Lever", "levers_of"]
