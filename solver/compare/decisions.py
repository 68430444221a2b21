"""The decisions in which two layouts differ, in the words of ``--layout``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from meshplan.constraints.decisions import DEGREES
from meshplan.constraints.layout import Layout
from meshplan.constraints.pipeline import format_layout
from meshplan.constraints.problem import Problem

#: A decision as ``--layout`` and JSON write it.
Written: TypeAlias = int | str

#: Degrees that follow from the others, the number of GPUs and the batch.
FOLLOWING: tuple[str, ...] = ("dp", "edp", "ga")


@dataclass(frozen=True)
class Difference:
    """One decision in which two layouts differ.

    Attributes
    ----------
    decision
        Key of ``--layout``.
    first, second
        Its values.
    follows
        Whether it follows from other decisions, and so is none of its own.
    """

    decision: str
    first: Written
    second: Written
    follows: bool = False


def written(problem: Problem, layout: Layout) -> dict[str, Written]:
    """All decisions of a layout by the keys of ``--layout``."""
    return {
        **{name: int(layout.value(name)) for name in DEGREES},
        "recompute": "full" if layout.recompute_full else "+".join(layout.recompute) or "none",
        "offload": layout.offload,
        "dispatcher": layout.dispatcher,
        "cp_comm": layout.cp_comm,
        "graphs": "+".join(layout.cuda_graphs) or "none",
        "pipeline": format_layout(layout.slots, problem.model.mtp_layers),
    }


def differences(
    problem: Problem, first: Layout, second: Layout, other: Problem | None = None
) -> tuple[Difference, ...]:
    """Where two layouts differ, in the order of ``--layout``.

    The exchange of context parallelism and the dispatcher count only where both layouts use them.
    The split of the layers follows from the number of slots where that differs, and so does the
    expert tensor parallelism of a dense model from ``tp``.

    Parameters
    ----------
    problem, other
        The problems of the two, if they are not the same.
    """
    one, two = written(problem, first), written(other or problem, second)
    dense = not problem.model.is_moe
    unused = set()
    if first.cp == 1 or second.cp == 1:
        unused.add("cp_comm")
    if dense:
        unused.add("dispatcher")
    following = {*FOLLOWING, *(("ep", "etp") if dense else ())}
    if (first.pp, first.vpp) != (second.pp, second.vpp):
        following.add("pipeline")
    return tuple(
        Difference(name, one[name], two[name], name in following)
        for name in one
        if one[name] != two[name] and name not in unused
    )
