"""Costs of all cells of one pipeline degree: a cell fixes every decision but the layers' places.

All costs of one layer are constants of a cell, so a split's memory and time are linear in its
layer counts.  Arrays broadcast over :data:`meshplan.solver.axes.AXES`; memory in quanta, time in
microseconds.  They are the same functions, rounded the same way, as in ``constraints.memory`` and
``solver.time``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meshplan.constraints.memory.activations import (
    attention_activation,
    dense_mlp_activation,
    moe_activation,
)
from meshplan.constraints.memory.overhead import (
    base_overhead,
    communicator,
    output_dummy_gradient,
)
from meshplan.constraints.memory.stage import OVERHEAD_TERMS, WORKING_TERMS
from meshplan.constraints.memory.static import (
    STATIC_PARTS,
    dense_static,
    embedding_static,
    expert_static,
    mtp_dense_static,
    mtp_expert_static,
    output_static,
)
from meshplan.constraints.memory.working import loss_working
from meshplan.scenarios.model_card import LayerKind
from meshplan.solver.axes import Array, Axes
from meshplan.solver.time.ends import embedding_us, loss_us, mtp_projection_us, p2p_us
from meshplan.solver.time.host import OVERLAP_TANGENTS, host_us
from meshplan.solver.time.step import gpu_terms
from meshplan.solver.time.update import (
    dense_exchange_us,
    dense_optimizer_us,
    ends_exchange_us,
    ends_optimizer_us,
    expert_exchange_us,
    expert_optimizer_us,
    mtp_expert_exchange_us,
    mtp_expert_optimizer_us,
)


@dataclass(frozen=True, eq=False)
class CellCosts:
    """Constants of cells; every array broadcasts over the axes (or over a list of cells).

    Attributes
    ----------
    static, activation, layer_us
        By layer kind: static memory and saved activations of one layer (quanta), its time.
    overhead, working
        Memory of every rank besides its layers, and while a layer runs.
    first_static, last_static, loss
        Memory of the embedding; of output layer and MTP; of the logits.
    first_us, last_us
        Time of the embedding; of loss and MTP.
    p2p_us
        Exposed transfer of one slot.
    exchange_us, optimizer_us
        Once a step, per layer of the fullest rank; ``..._ends_us`` once.
    """

    static: dict[LayerKind, Array]
    activation: dict[LayerKind, Array]
    layer_us: dict[LayerKind, Array]
    overhead: Array
    working: Array
    first_static: Array
    last_static: Array
    loss: Array
    first_us: Array
    last_us: Array
    p2p_us: Array
    exchange_us: Array
    exchange_ends_us: Array
    optimizer_us: Array
    optimizer_ends_us: Array

    def at(self, indices: tuple[Array, ...]) -> CellCosts:
        """Costs of a list of cells, given their indices along each axis."""

        def pick(array: Array) -> Array:
            return array[
                tuple(
                    index if array.shape[dimension] > 1 else np.zeros_like(index)
                    for dimension, index in enumerate(indices)
                )
            ]

        fields = {
            name: {kind: pick(a) for kind, a in value.items()}
            if isinstance(value, dict)
            else pick(value)
            for name, value in self.__dict__.items()
        }
        return CellCosts(**fields)

    def take(self, chosen: Array) -> CellCosts:
        """Some of a list of cells."""
        fields = {
            name: {kind: a[chosen] for kind, a in value.items()}
            if isinstance(value, dict)
            else value[chosen]
            for name, value in self.__dict__.items()
        }
        return CellCosts(**fields)


def cell_costs(axes: Axes) -> CellCosts:
    """Tabulate all costs over the axes."""
    problem, card, table = axes.problem, axes.problem.model, axes.table
    layer_us = {kind: _layer_us(axes, kind) for kind in problem.kinds}
    last_static = sum(table(output_static, part=p) for p in STATIC_PARTS)
    last_static = last_static + table(output_dummy_gradient)
    last_us = table(loss_us)
    exchange_ends, optimizer_ends = table(ends_exchange_us), table(ends_optimizer_us)
    if card.mtp_layers:
        for part in STATIC_PARTS:
            last_static = last_static + table(mtp_dense_static, part=part)
            last_static = last_static + table(mtp_expert_static, part=part)
        one = layer_us[card.mtp_kind] + table(mtp_projection_us) + table(loss_us)
        last_us = last_us + card.mtp_layers * one
        exchange_ends = exchange_ends + table(mtp_expert_exchange_us)
        optimizer_ends = optimizer_ends + table(mtp_expert_optimizer_us)
    overhead = sum(table(term) for term in OVERHEAD_TERMS)
    overhead = overhead + base_overhead(problem) + communicator(axes.pp)
    return CellCosts(
        static={kind: _static(axes, kind) for kind in problem.kinds},
        activation={kind: _activation(axes, kind) for kind in problem.kinds},
        layer_us=layer_us,
        overhead=overhead,
        working=_largest([table(term) for term in WORKING_TERMS]),
        first_static=sum(table(embedding_static, part=p) for p in STATIC_PARTS),
        last_static=last_static,
        loss=table(loss_working),
        first_us=table(embedding_us),
        last_us=last_us,
        p2p_us=table(p2p_us),
        exchange_us=_largest(
            [
                table(dense_exchange_us, kind=kind) + table(expert_exchange_us, kind=kind)
                for kind in problem.kinds
            ]
        ),
        exchange_ends_us=exchange_ends,
        optimizer_us=_largest(
            [
                table(dense_optimizer_us, kind=kind) + table(expert_optimizer_us, kind=kind)
                for kind in problem.kinds
            ]
        ),
        optimizer_ends_us=optimizer_ends,
    )


def _largest(arrays: list[Array]) -> Array:
    result = arrays[0]
    for array in arrays[1:]:
        result = np.maximum(result, array)
    return result


def _static(axes: Axes, kind: LayerKind) -> Array:
    total = sum(
        axes.table(term, part=part, kind=kind)
        for term in (dense_static, expert_static)
        for part in STATIC_PARTS
    )
    assert not isinstance(total, int)
    return total


def _activation(axes: Axes, kind: LayerKind) -> Array:
    total = axes.table(attention_activation, kind=kind)
    if kind.mlp == "moe":
        total = total + axes.table(moe_activation)
    elif kind.mlp == "dense":
        total = total + axes.table(dense_mlp_activation)
    return total


def _layer_us(axes: Axes, kind: LayerKind) -> Array:
    gpu = sum(
        axes.table(term, **({"kind": kind} if with_kind else {}))
        for term, with_kind in gpu_terms(kind).values()
    )
    host = axes.table(host_us, kind=kind)
    return _largest([-(-(a * gpu + b * host) // 1000) for a, b in OVERLAP_TANGENTS])
