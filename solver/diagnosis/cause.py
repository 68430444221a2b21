"""The cause in sentences, and the numbers that it rests on."""

from __future__ import annotations

import math
from collections.abc import Iterator

from meshplan.constraints.layout import Layout
from meshplan.constraints.memory.stage import PARTS, RankMemory
from meshplan.constraints.pipeline import rank_slots
from meshplan.constraints.problem import QUANTA_PER_GIB, Problem
from meshplan.scenarios.parameters import total_parameters
from meshplan.solver.diagnosis.arithmetic import Finding, smallest_grids, telling_floor
from meshplan.solver.diagnosis.facts import MEMORY
from meshplan.solver.diagnosis.leanest import Leanest
from meshplan.solver.diagnosis.memory_words import host_share, host_text, room_text
from meshplan.solver.diagnosis.words import joined, limit_texts
from meshplan.solver.results import Conflict

_GIB = 1 << 30
#: Parts of a rank's memory that are named, in words; the others are summed up.
_NAMED = {
    "weights": "weights",
    "gradients": "gradients",
    "optimizer": "optimizer state",
    "activations": "activations",
}


def cause(
    problem: Problem,
    conflict: Conflict,
    findings: tuple[Finding, ...],
    least: int | None,
    example: Leanest | None,
) -> str:
    """Why nothing is possible, for a person who does not know what a solver is.

    Parameters
    ----------
    conflict
        The first conflict.
    least
        Memory that each GPU must hold on average with its pins, quanta; None if it is not memory.
    """
    if MEMORY in conflict.rules:
        return " ".join(_memory_sentences(problem, conflict, findings, least, example))
    text = conflict.text
    for one in findings:
        if one.rule == MEMORY:
            text += f" And there is too little memory in any case: {one.text}."
    return text


def figures(problem: Problem, least: int | None, example: Leanest | None) -> dict[str, float]:
    """The numbers that a cause rests on, by field of the scenario or by name with a unit."""
    floor = telling_floor(problem)
    node = problem.node_type
    found: dict[str, float] = {
        "model.parameters": total_parameters(problem.model),
        "workload.seq_len": problem.seq_len,
        "workload.global_batch_size": max(int(size) for size in problem.domain("gbs")),
        "cluster.gpus": problem.gpus,
        "least_gpus_of_the_grids": max(math.prod(d) for d in smallest_grids(problem).values()),
        "node_type.hbm_gib": round(node.hbm_gib, 3),
        "limits.memory_headroom": problem.limits.memory_headroom,
        "usable_gib": _gib(problem.capacity),
        "floor.weights_gib": round(floor.weights / _GIB, 3),
        "floor.gradients_gib": round(floor.gradients / _GIB, 3),
        "floor.optimizer_gib": round(floor.optimizer / _GIB, 3),
    }
    if problem.uses_host_memory:
        found |= {
            "node_type.host_memory_gib": round(node.host_memory_gib, 3),
            "usable_host_gib": _gib(problem.host_capacity),
            "floor.host_gib": round(floor.host / _GIB, 3),
        }
    if least is not None:
        found["least_mean_gib"] = _gib(least)
    if example is not None:
        found["example_peak_gib"] = _gib(example.rank.peak)
    return found


def _gib(quanta: int) -> float:
    return round(quanta / QUANTA_PER_GIB, 3)


def _memory_sentences(
    problem: Problem,
    conflict: Conflict,
    findings: tuple[Finding, ...],
    least: int | None,
    example: Leanest | None,
) -> Iterator[str]:
    limits = [rule for rule in conflict.rules if rule != MEMORY]
    held = [*conflict.pins, *limit_texts(problem, limits)]
    where = f"With {joined(held)} no" if held else "Whatever the degrees, no"
    yield f"{where} layout fits into the memory of the GPUs: {room_text(problem)}."
    arithmetic = next((one for one in findings if one.rule == MEMORY), None)
    if arithmetic is not None:
        yield f"Arithmetic alone shows it: {arithmetic.text}."
    elif least is not None and least > problem.capacity:
        yield f"Each GPU must hold at least {least / QUANTA_PER_GIB:.1f} GiB on average."
    if host := host_text(problem):
        yield f"{host}."
    if example is not None:
        yield _example_text(problem, example)


def _example_text(problem: Problem, example: Leanest) -> str:
    layout, rank = example.layout, example.rank
    peak = rank.peak / QUANTA_PER_GIB
    layers = sum(slot.count for slot in rank_slots(layout.slots, layout.pp, rank.rank))
    holds = f"{layers} of {problem.model.layers} layers"
    if problem.model.is_moe:
        holds += f", {problem.model.experts // layout.ep} of {problem.model.experts} experts each"
    degrees = _degrees(problem, layout)
    text = (
        f"Even a lean layout ({degrees}) needs {peak:.1f} GiB on pipeline rank {rank.rank}, which "
        f"holds {holds}: {_parts(rank)}."
    )
    if rank.host > problem.host_capacity:
        text += (
            f" On the host it needs {rank.host / QUANTA_PER_GIB:.1f} GiB; {host_share(problem)}."
        )
    return text


def _degrees(problem: Problem, layout: Layout) -> str:
    names = ["tp", "cp", "pp", "ep", "etp"] if problem.model.is_moe else ["tp", "cp", "pp"]
    return ", ".join(f"{name} = {layout.value(name)}" for name in names)


def _parts(rank: RankMemory) -> str:
    sizes = {part: getattr(rank, part) / QUANTA_PER_GIB for part in PARTS}
    named = [f"{sizes[part]:.1f} GiB of {words}" for part, words in _NAMED.items() if sizes[part]]
    rest = sum(size for part, size in sizes.items() if part not in _NAMED)
    return joined([*named, f"{rest:.1f} GiB of buffers and the rest"])
