"""Choose the options that a layout leaves open, as the search would: the fastest that fits.

Dispatcher, recompute, optimizer offload, the exchange of context parallelism and the scopes of CUDA
graphs are chosen together, as each spends memory that another could have used.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import ChainMap
from collections.abc import Iterator, Sequence
from typing import Any

from meshplan.constraints.decisions import (
    CP_COMM_TYPES,
    DISPATCHERS,
    GRAPH_FLAGS,
    GRAPH_SCOPES,
    RECOMPUTE_FLAGS,
    RECOMPUTE_MODULES,
)
from meshplan.constraints.layout import Layout, Value
from meshplan.constraints.memory.stage import RankMemory, rank_memory
from meshplan.constraints.memory.verdict import has_room
from meshplan.constraints.problem import QUANTA_PER_GIB, Problem, scope_values
from meshplan.constraints.resolve import useful_modules
from meshplan.solver.judge import active_rules
from meshplan.solver.layout_text import Stated
from meshplan.solver.time.step import step_time
from meshplan.topologies import ClusterError

#: What a cost function may raise where an illegal layout has no meaning.
MEANINGLESS = (ClusterError, ZeroDivisionError)

#: Decisions of each option that may be open, in the order of sentences.
_OPTIONS: dict[str, tuple[str, ...]] = {
    "dispatcher": ("dispatcher",),
    "recompute": ("rc_full", *RECOMPUTE_FLAGS),
    "offload": ("offload",),
    "cp_comm": ("cp_comm",),
    "graphs": GRAPH_FLAGS,
}


def holding(problem: Problem, layout: Layout, names: Sequence[str]) -> bool:
    """Whether the layout obeys all rules that read one of ``names``."""
    read = set(names)
    return all(
        one.holds(problem, *scope_values(problem, layout, one.scope))
        for one in active_rules(problem)
        if read & set(one.scope)
    )


def with_options(
    problem: Problem, stated: Stated, layout: Layout, *, costed: bool
) -> tuple[Layout, str]:
    """The layout with its open options chosen, and a sentence that says which and why.

    Parameters
    ----------
    costed
        Whether memory and time of the layout mean anything; else the plainest legal choice is
        taken.
    """
    choices = {
        name: _choices(problem, stated, layout, name) for name in _open(problem, stated, layout)
    }
    if not choices:
        return layout, ""
    tried = [
        dataclasses.replace(layout, **dict(ChainMap(*combined)))
        for combined in itertools.product(*choices.values())
    ]
    names = [decision for name in choices for decision in _OPTIONS[name]]
    legal = [one for one in tried if holding(problem, one, names)] or tried
    if costed:
        try:
            chosen, why = _fastest(problem, legal)
        except MEANINGLESS:
            chosen, why = legal[0], "not given"
    else:
        chosen, why = legal[0], "not given"
    if "cp_comm" in choices and not holding(problem, chosen, ("cp_comm",)):
        why += "; no cp_comm is legal"
    return chosen, f"{_text(chosen, list(choices))}: {why}"


def _open(problem: Problem, stated: Stated, layout: Layout) -> list[str]:
    idle = {"cp_comm": layout.cp == 1, "dispatcher": not problem.model.is_moe}
    return [name for name in _OPTIONS if getattr(stated, name) is None and not idle.get(name)]


#: Fields of a layout with their values: one way to set an option.
_Setting = dict[str, Any]


def _choices(problem: Problem, stated: Stated, layout: Layout, name: str) -> list[_Setting]:
    """The legal ways to set one option, the plainest first; all ways if none is legal."""
    if name == "recompute":
        found = list(_recompute_choices(problem))
    elif name == "offload":
        found = [{"offload": share} for share in problem.candidates[name]]
    elif name == "cp_comm":
        allowed = CP_COMM_TYPES if name in stated.free else problem.domain(name)
        found = [{"cp_comm": choice} for choice in allowed]
    elif name == "dispatcher":
        found = [{"dispatcher": choice} for choice in _dispatchers(problem, stated)]
    else:
        found = list(_graph_choices(problem))
    legal = [
        one for one in found if holding(problem, dataclasses.replace(layout, **one), _OPTIONS[name])
    ]
    return legal or found


def _dispatchers(problem: Problem, stated: Stated) -> Sequence[Value]:
    """The one that the hardware was made for first: it is taken where no time is known."""
    best = "hybridep" if problem.node_type.multi_node_nvlink else "deepep"
    allowed = DISPATCHERS if "dispatcher" in stated.free else problem.domain("dispatcher")
    return sorted(allowed, key=lambda name: name != best)


def _recompute_choices(problem: Problem) -> Iterator[_Setting]:
    useful = useful_modules(problem.model, fused_attention=problem.training.fused_attention)
    for subset in _subsets([name for name in RECOMPUTE_MODULES if name in useful]):
        # moe replays its activation and the shared experts, too: naming them as well is idle.
        if not ("moe" in subset and {"moe_act", "shared_experts"} & set(subset)):
            yield {"recompute": subset, "recompute_full": False}
    yield {"recompute": (), "recompute_full": True}


def _graph_choices(problem: Problem) -> Iterator[_Setting]:
    for subset in _subsets(
        [
            scope
            for flag, scope in zip(GRAPH_FLAGS, GRAPH_SCOPES, strict=True)
            if 1 in problem.candidates[flag]
        ]
    ):
        yield {"cuda_graphs": subset}


def _subsets(names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """All subsets, smaller ones first."""
    return itertools.chain.from_iterable(
        itertools.combinations(names, size) for size in range(len(names) + 1)
    )


def _fastest(problem: Problem, tried: Sequence[Layout]) -> tuple[Layout, str]:
    """The fastest that fits, plainer settings first among equals; else that of least memory."""
    ordered = sorted(
        tried,
        key=lambda one: (
            step_time(problem, one).step_us,
            len(one.recompute),
            one.offload,
            len(one.cuda_graphs),
        ),
    )
    # Graphs only ever take memory, so what does not fit without them need not be tried with them.
    fits: dict[Layout, bool] = {}
    for one in ordered:
        plain = dataclasses.replace(one, cuda_graphs=())
        if plain not in fits:
            fits[plain] = has_room(problem, _ranks(problem, plain))
        if fits[plain] and (one == plain or has_room(problem, _ranks(problem, one))):
            return one, "the fastest that fits"
    without = [one for one in ordered if not one.cuda_graphs] or ordered
    least = min(without, key=lambda one: _peak(problem, one))
    gib = _peak(problem, least) / QUANTA_PER_GIB
    return least, f"nothing fits, and this takes the least memory ({gib:.1f} GiB)"


def _peak(problem: Problem, layout: Layout) -> int:
    return max(rank.peak for rank in _ranks(problem, layout))


def _ranks(problem: Problem, layout: Layout) -> list[RankMemory]:
    return [rank_memory(problem, layout, rank) for rank in range(layout.pp)]


def _text(layout: Layout, names: Sequence[str]) -> str:
    modules = "full" if layout.recompute_full else _listed(layout.recompute)
    texts = {
        "dispatcher": f"dispatcher = {layout.dispatcher}",
        "recompute": f"recompute = {modules}",
        "offload": f"optimizer_offload = {layout.offload / 100:g}",
        "cp_comm": f"cp_comm = {layout.cp_comm}",
        "graphs": f"cuda_graphs = {_listed(layout.cuda_graphs)}",
    }
    return ", ".join(texts[name] for name in names)


def _listed(names: Sequence[str]) -> str:
    return f"[{', '.join(names)}]" if names else "none"


__all__ = ["MEANINGLESS", "holding", "with_options"]
