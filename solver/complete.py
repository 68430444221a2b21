"""Complete a layout of which only a part is stated, and say how: no solver inside.

What is stated holds as it is, legal or not.  Open degrees are derived or take the plainest value,
open options are chosen (:mod:`~meshplan.solver.open_options`); each such choice is one sentence for
``assumed``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from meshplan.constraints.decisions import (
    GRAPH_FLAGS,
    GRAPH_SCOPES,
    RECOMPUTE_FLAGS,
    RECOMPUTE_MODULES,
)
from meshplan.constraints.layout import Layout, Slot
from meshplan.constraints.pipeline import balanced_slots, even_slots, parse_layout
from meshplan.constraints.problem import Problem
from meshplan.constraints.resolve import powers_of_two
from meshplan.constraints.split_rules import SLOTS_HOLD_LAYERS
from meshplan.solver.layout_text import Stated
from meshplan.solver.open_options import MEANINGLESS, with_options

#: Most slots that are worth building: real pipelines have about as many as the model has layers.
MAX_STAGES = 1024

_SINGLE = ("tp", "cp", "pp", "vpp", "ep", "mbs")


def with_pins(problem: Problem, stated: Stated) -> Stated:
    """``stated``, and where it leaves a decision open, what the scenario pins to one value."""
    pinned = {
        name: values[0]
        for name, values in problem.pinned.items()
        if len(values) == 1 and name not in stated.free
    }
    degrees = {n: int(v) for n, v in pinned.items() if isinstance(v, int) and n in _DEGREES}
    changes: dict[str, object] = {"degrees": {**degrees, **stated.degrees}}
    if stated.recompute is None and "rc_full" in pinned:
        changes["recompute_full"] = bool(pinned["rc_full"])
        changes["recompute"] = _set_names(pinned, RECOMPUTE_FLAGS, RECOMPUTE_MODULES)
    if stated.graphs is None and "graphs" not in stated.free and GRAPH_FLAGS[0] in pinned:
        changes["graphs"] = _set_names(pinned, GRAPH_FLAGS, GRAPH_SCOPES)
    for name in ("offload", "dispatcher", "cp_comm"):
        if getattr(stated, name) is None and name in pinned:
            changes[name] = pinned[name]
    if "recompute" in stated.free:
        changes.pop("recompute", None)
        changes.pop("recompute_full", None)
    return dataclasses.replace(stated, **changes)  # type: ignore[arg-type]


_DEGREES = frozenset((*_SINGLE, "dp", "etp", "edp", "ga"))


def _set_names(
    pinned: dict[str, int | str], flags: Sequence[str], names: Sequence[str]
) -> tuple[str, ...]:
    return tuple(name for flag, name in zip(flags, names, strict=True) if pinned.get(flag))


def complete(problem: Problem, stated: Stated) -> tuple[Layout, tuple[str, ...]]:
    """The whole layout, and a sentence for each choice that completed it.

    Slots stay empty where ``pp * vpp`` is beyond ``MAX_STAGES``.
    """
    layout, assumed = complete_degrees(problem, stated)
    notes = [*assumed]
    layout = dataclasses.replace(
        layout,
        recompute=stated.recompute or (),
        recompute_full=stated.recompute_full,
        offload=stated.offload or 0,
        cuda_graphs=stated.graphs or (),
        dispatcher=stated.dispatcher or "alltoall",
        cp_comm=stated.cp_comm or "p2p",
    )
    slots, note = _slots(problem, layout)
    layout = dataclasses.replace(layout, slots=slots)
    notes += [note] if note else []
    layout, note = with_options(problem, stated, layout, costed=can_cost(problem, layout))
    notes += [note] if note else []
    return layout, tuple(notes)


# -- degrees -----------------------------------------------------------------------------------


def complete_degrees(problem: Problem, stated: Stated) -> tuple[Layout, list[str]]:
    """A layout with all degrees, derived ones from the GPU count and the batch; and how."""
    given = dict(stated.degrees)
    given.pop("gpus", None)
    notes: list[str] = []
    open_experts = "ep" not in given and problem.model.is_moe and "ep" not in problem.pinned
    plain = [
        name
        for name in _SINGLE
        if name not in given
        and not (name == "mbs" and "ga" in given)
        and not (name == "ep" and open_experts)
    ]
    for name in plain:
        given[name] = _least_allowed(problem, name)
    if plain:
        notes.append(f"{_listed(given, plain)}: not given")
    if open_experts:
        notes.append(_expert_parallel(problem, given))
    if "etp" not in given:
        notes.append(_expert_tensor(problem, given))
    derived = [name for name in ("dp", "edp") if name not in given]
    given.setdefault("dp", max(1, problem.gpus // (given["tp"] * given["cp"] * given["pp"])))
    given.setdefault("edp", max(1, problem.gpus // (given["etp"] * given["ep"] * given["pp"])))
    if derived:
        notes.append(f"{_listed(given, derived)}: what {problem.gpus} GPUs leave")
    notes += _batch(problem, given)
    return dataclasses.replace(Layout(), **given), notes  # type: ignore[arg-type]


def _expert_parallel(problem: Problem, given: dict[str, int]) -> str:
    """Complete ``ep`` in place: as far as it divides experts, stage and NVLink domain."""
    stage = max(1, problem.gpus // given["pp"])
    etp = given.get("etp", 1)
    fitting = [
        ep
        for ep in powers_of_two(problem.model.experts)
        if problem.model.experts % ep == 0
        and stage % (etp * ep) == 0
        and (etp * ep == 1 or problem.cluster.fits_domain(etp * ep))
    ]
    given["ep"] = max(fitting, default=1)
    return (
        f"ep = {given['ep']}: not given; the largest power of two that divides the "
        f"{problem.model.experts} experts and the {stage} GPUs of a stage, inside an NVLink domain"
    )


def _expert_tensor(problem: Problem, given: dict[str, int]) -> str:
    """Complete ``etp`` in place as the framework's front ends do, and say which and why.

    Source: Megatron-LM d98e8a64 ``core/model_parallel_config.py`` (etp = tp); Megatron-Bridge
    067f987 ``models/transformer_config.py`` (1 as soon as ep > 1).
    """
    tp, ep, pp = given["tp"], given["ep"], given["pp"]
    if not problem.model.is_moe:
        given["etp"] = tp
        return f"etp = {tp}: follows tp in a dense model"
    allowed = [int(value) for value in problem.pinned.get("etp", ())]
    default = 1 if ep > 1 else tp
    given["etp"] = default if not allowed or default in allowed else min(allowed)
    if given["etp"] != default or tp == 1:
        return f"etp = {given['etp']}: not given"
    if ep == 1:
        return f"etp = {tp}: not given; with ep = 1 it follows tp"
    grid = tp * ep * pp
    fits = "fits, too" if problem.gpus % grid == 0 else f"does not divide {problem.gpus} GPUs"
    return (
        f"etp = 1: not given; Megatron-Bridge takes 1 where ep > 1, but Megatron-LM takes etp = tp "
        f"= {tp}, whose expert grid etp*ep*pp = {tp}*{ep}*{pp} = {grid} {fits}: set etp yourself"
    )


def _least_allowed(problem: Problem, name: str) -> int:
    values = [int(v) for v in problem.pinned.get(name, ())]
    return 1 if not values or 1 in values else min(values)


def _listed(given: dict[str, int], names: Sequence[str]) -> str:
    return ", ".join(f"{name} = {given[name]}" for name in names)


def _batch(problem: Problem, given: dict[str, int]) -> Iterator[str]:
    """Complete ``gbs``, ``mbs`` and ``ga`` in place, and say how."""
    sizes = sorted(int(v) for v in problem.candidates["gbs"])
    if "gbs" not in given:
        step = given.get("mbs", 1) * given["dp"] * given.get("ga", 1)
        group = given["pp"] if given["vpp"] > 1 and "ga" not in given else 1
        whole = [size for size in sizes if size % (step * group) == 0]
        given["gbs"] = max(whole, default=sizes[-1])
        if len(sizes) > 1:
            yield f"gbs = {given['gbs']}: the largest of the scenario that this layout divides"
    if "mbs" not in given:
        given["mbs"] = max(1, given["gbs"] // (given["dp"] * given["ga"]))
        yield f"mbs = {given['mbs']}: gbs / (dp*ga)"
    if "ga" not in given:
        given["ga"] = max(1, given["gbs"] // (given["mbs"] * given["dp"]))
        yield f"ga = {given['ga']}: gbs / (mbs*dp) = {given['gbs']}/({given['mbs']}*{given['dp']})"


# -- pipeline ----------------------------------------------------------------------------------


def _slots(problem: Problem, layout: Layout) -> tuple[tuple[Slot, ...], str]:
    if problem.layout_string is not None:
        return parse_layout(problem.layout_string), ""
    pp, vpp = layout.pp, layout.vpp
    if pp * vpp > MAX_STAGES:
        return (), (
            f"pipeline: no slots, as pp*vpp = {pp * vpp:,} are more than {MAX_STAGES:,}, the most "
            "that layers are split over; a layout string may state them"
        )
    even = even_slots(problem.model.layers, pp, vpp, mtp=problem.model.mtp_layers > 0)
    if even is not None:
        note = "" if problem.even_split or pp * vpp == 1 else "pipeline: the framework's even split"
        return even, note
    reason = "pipeline: no even split exists, so " if problem.even_split else "pipeline: "
    slots = balanced_slots(problem, pp, vpp)
    if SLOTS_HOLD_LAYERS.holds(problem, pp, vpp):
        return slots, f"{reason}a near-even split, fewer layers at the ends"
    idle = sum(not (slot.count or slot.embedding or slot.mtp or slot.loss) for slot in slots)
    return slots, (
        f"{reason}{problem.model.layers} layers on {len(slots)} slots, {idle} of which hold "
        "nothing and only pass on what they get; Megatron-Core runs that by a layout string alone, "
        "and `solve` does not look at it (slots-hold-layers)"
    )


def can_cost(problem: Problem, layout: Layout) -> bool:
    """Whether memory and time of the layout mean anything: its slots hold the model's layers."""
    stages = layout.pp * layout.vpp
    return (
        0 < len(layout.slots) == stages <= MAX_STAGES
        and sum(slot.count for slot in layout.slots) == problem.model.layers
    )


__all__ = [
    "MAX_STAGES",
    "MEANINGLESS",
    "can_cost",
    "complete",
    "complete_degrees",
    "with_pins",
]
