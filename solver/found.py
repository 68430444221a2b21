"""A plan that a program found, and how it becomes a layout."""

from __future__ import annotations

from dataclasses import dataclass

from meshplan.constraints.decisions import (
    CP_COMM_TYPES,
    DECISIONS,
    DISPATCHERS,
    GRAPH_SCOPES,
    RECOMPUTE_MODULES,
)
from meshplan.constraints.layout import Layout, Slot, Value

_NAMES: dict[str, tuple[str, ...]] = {"dispatcher": DISPATCHERS, "cp_comm": CP_COMM_TYPES}


class InternalError(Exception):
    """Solver and checker disagree: a fault of meshplan, never a result."""


@dataclass(frozen=True)
class Found:
    """A plan found by a program."""

    decisions: dict[str, Value]
    slots: tuple[Slot, ...]
    step: int
    peak: int


def canonical_key(decisions: dict[str, Value]) -> tuple[int, ...]:
    """Order of decisions that breaks the last ties: the smallest values, in catalogue order."""
    return tuple(
        _NAMES[name].index(str(value)) if name in _NAMES else int(value)
        for name, value in ((name, decisions[name]) for name in DECISIONS)
    )


def to_layout(decisions: dict[str, Value], slots: tuple[Slot, ...]) -> Layout:
    """Layout with these decisions and slots."""
    degrees = {
        name: int(decisions[name])
        for name in ("tp", "cp", "pp", "vpp", "dp", "ep", "etp", "edp", "mbs", "ga", "gbs")
    }
    return Layout(
        **degrees,
        recompute=tuple(m for m in RECOMPUTE_MODULES if decisions[f"rc_{m}"]),
        recompute_full=bool(decisions["rc_full"]),
        offload=int(decisions["offload"]),
        dispatcher=str(decisions["dispatcher"]),
        cp_comm=str(decisions["cp_comm"]),
        cuda_graphs=tuple(s for s in GRAPH_SCOPES if decisions[f"cg_{s}"]),
        slots=slots,
    )
