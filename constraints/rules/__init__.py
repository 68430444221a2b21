"""The catalogue of rules: every fact that a layout must obey, family by family.

A rule is data (:class:`~meshplan.constraints.rule.Rule`).  The solver tabulates ``holds`` over the
values of its scope, the checker evaluates it on one layout and words it with ``explain``.

======================  ==========================================================
:data:`MESH_RULES`          both meshes cover the GPUs
:data:`DIVISIBILITY_RULES`  heads, widths and the sequence
:data:`BATCH_RULES`         micro-batches make up the global batch
:data:`PIPELINE_RULES`      the interleaved schedule
:data:`MOE_RULES`           experts
:data:`DOMAIN_RULES`        groups inside NVLink domains
:data:`CONTEXT_RULES`       context parallelism
:data:`DISPATCHER_RULES`    token dispatchers
:data:`RECOMPUTE_RULES`     activation recompute
:data:`OFFLOAD_RULES`       optimizer state: on the host, and in which formats
:data:`GRAPH_RULES`         partial CUDA graphs
:data:`OVERLAP_RULES`       overlapped expert communication
:data:`PRECISION_RULES`     shapes that 8-bit GEMMs need
======================  ==========================================================

Rules on concrete pipeline slots are in :mod:`meshplan.constraints.layout_rules`.
"""

from __future__ import annotations

from difflib import get_close_matches

from meshplan.constraints.rule import Rule
from meshplan.constraints.rules.batch import BATCH_RULES
from meshplan.constraints.rules.context import CONTEXT_RULES
from meshplan.constraints.rules.dispatcher import DISPATCHER_RULES
from meshplan.constraints.rules.divisibility import DIVISIBILITY_RULES
from meshplan.constraints.rules.domain import DOMAIN_RULES
from meshplan.constraints.rules.graphs import GRAPH_RULES
from meshplan.constraints.rules.mesh import MESH_RULES
from meshplan.constraints.rules.moe import MOE_RULES
from meshplan.constraints.rules.offload import OFFLOAD_RULES
from meshplan.constraints.rules.overlap import OVERLAP_RULES
from meshplan.constraints.rules.pipeline import PIPELINE_RULES
from meshplan.constraints.rules.precision import PRECISION_RULES
from meshplan.constraints.rules.recompute import RECOMPUTE_RULES

ALL_RULES: tuple[Rule, ...] = (
    *MESH_RULES,
    *DIVISIBILITY_RULES,
    *BATCH_RULES,
    *PIPELINE_RULES,
    *MOE_RULES,
    *DOMAIN_RULES,
    *CONTEXT_RULES,
    *DISPATCHER_RULES,
    *RECOMPUTE_RULES,
    *OFFLOAD_RULES,
    *GRAPH_RULES,
    *OVERLAP_RULES,
    *PRECISION_RULES,
)

_BY_ID = {one.id: one for one in ALL_RULES}


class UnknownRule(KeyError):
    """There is no rule with that id; ``nearest`` holds the ids most like it."""

    def __init__(self, rule_id: str, nearest: tuple[str, ...]) -> None:
        super().__init__(rule_id)
        self.nearest = nearest

    def __str__(self) -> str:
        text = f"no rule is called {self.args[0]!r}"
        return f"{text}; did you mean {' or '.join(self.nearest)}?" if self.nearest else text


def rule(rule_id: str) -> Rule:
    """The rule with that id.

    Raises
    ------
    UnknownRule
        If there is none; a ``KeyError`` that knows the nearest ids.
    """
    try:
        return _BY_ID[rule_id]
    except KeyError:
        near = tuple(get_close_matches(rule_id, _BY_ID, n=3, cutoff=0.5))
        raise UnknownRule(rule_id, near) from None


__all__ = [
    "ALL_RULES",
    "BATCH_RULES",
    "CONTEXT_RULES",
    "DISPATCHER_RULES",
    "DIVISIBILITY_RULES",
    "DOMAIN_RULES",
    "GRAPH_RULES",
    "MESH_RULES",
    "MOE_RULES",
    "OFFLOAD_RULES",
    "OVERLAP_RULES",
    "PIPELINE_RULES",
    "PRECISION_RULES",
    "RECOMPUTE_RULES",
    "UnknownRule",
    "rule",
]
