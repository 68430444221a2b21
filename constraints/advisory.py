"""What an advisory is: named guidance on a layout that is legal, with its numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from meshplan.constraints.layout import Layout
from meshplan.constraints.memory.stage import RankMemory
from meshplan.constraints.problem import Problem, scope_values
from meshplan.constraints.rules import MESH_RULES

#: What an advisory reads: the problem, the layout, and the memory of its pipeline ranks.
Check = Callable[[Problem, Layout, tuple[RankMemory, ...]], str | None]


@dataclass(frozen=True)
class Advisory:
    """Guidance on legal layouts.

    Attributes
    ----------
    id
        Kebab-case, never reused.
    why
        One or two sentences for a person: why it matters.
    source
        Where it comes from.
    finds
        ``finds(problem, layout, ranks)``: the advice with the layout's numbers, or None.
        ``ranks`` may be empty where no memory is known.
    """

    id: str
    why: str
    source: str
    finds: Check

    def check(self, problem: Problem, layout: Layout, ranks: tuple[RankMemory, ...]) -> str | None:
        """The advice, or None; None too where the meshes do not cover the GPUs of the cluster.

        Every advisory speaks of replicas, shards or micro-batches, and such a layout has none.
        """
        return self.finds(problem, layout, ranks) if _covers_gpus(problem, layout) else None


def _covers_gpus(problem: Problem, layout: Layout) -> bool:
    return all(
        one.holds(problem, *scope_values(problem, layout, one.scope))
        for one in MESH_RULES
        if one.applies(problem)
    )


__all__ = ["Advisory", "Check"]
