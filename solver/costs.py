"""Costs of all cells of one pipeline degree: a cell fixes every decision but the layers' places.

All costs of one layer are constants of a cell, so a split's memory and time are linear in its
layer counts.  Arrays broadcast over :data:`meshplan.solver.axes.AXES`; memory in quanta, time in
microseconds.  They are the same functions, rounded the same way, as in ``constraints.memory`` and
``solver.time``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from meshplan.constraints.memory.activations import activation_terms
from meshplan.constraints.memory.offloaded import offload_staging, offloaded_activation
from meshplan.constraints.memory.overhead import (
    communicator,
    context,
    output_dummy_gradient,
    workspaces,
)
from meshplan.constraints.memory.stage import INSIDE_TERMS, OUTSIDE_TERMS, WORKING_TERMS
from meshplan.constraints.memory.static import (
    HOST_PART,
    STATIC_PARTS,
    UPDATE_PARTS,
    dense_static,
    embedding_static,
    expert_static,
    mtp_dense_static,
    mtp_expert_static,
    output_static,
)
from meshplan.constraints.memory.working import loss_working
from meshplan.constraints.problem import Problem
from meshplan.scenarios.model_card import LayerKind
from meshplan.solver.axes import AXES, Array, Axes
from meshplan.solver.time.ends import embedding_us, loss_us, mtp_projection_us, p2p_us
from meshplan.solver.time.host import HOST_TERMS, overlap_tangents
from meshplan.solver.time.offload import transfers_us, with_transfers_us
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
class _Tables:
    """Dataclass of arrays, or of arrays by layer kind, that are looked up together."""

    def at(self, indices: tuple[Array, ...]) -> Self:
        """Costs of a list of cells, given their indices along each axis."""

        def pick(array: Array) -> Array:
            return array[
                tuple(
                    index if array.shape[dimension] > 1 else np.zeros_like(index)
                    for dimension, index in enumerate(indices)
                )
            ]

        return self._map(pick)

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Several lists of cells as one."""
        return parts[0]._with(parts, np.concatenate)

    def _with(self, parts: Sequence[Any], function: Callable[[list[Array]], Array]) -> Self:
        """A function of the arrays of all ``parts``, field by field."""
        mapped: dict[str, Any] = {}
        for field in fields(self):
            values = [getattr(part, field.name) for part in parts]
            first = values[0]
            if isinstance(first, dict):
                mapped[field.name] = {kind: function([v[kind] for v in values]) for kind in first}
            elif isinstance(first, tuple):
                each = enumerate(first)
                mapped[field.name] = tuple(
                    one._with([v[i] for v in values], function) for i, one in each
                )
            elif isinstance(first, _Tables):
                mapped[field.name] = first._with(values, function)
            else:
                mapped[field.name] = function(values)
        return type(self)(**mapped)

    def rows(self, start: int, stop: int) -> Self:
        """The same costs for some rows of the mesh axis."""
        return self._map(lambda array: array[start:stop] if array.shape[0] > 1 else array)

    def take(self, chosen: Array | slice) -> Self:
        """Some of a list of cells."""
        return self._map(lambda array: array[chosen])

    def _map(self, function: Callable[[Array], Array]) -> Self:
        return self._with([self], lambda arrays: function(arrays[0]))

    def vectors(self) -> list[Array]:
        """All cost arrays, in a fixed order."""
        arrays: list[Array] = []
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, dict):
                arrays += list(value.values())
            elif isinstance(value, tuple):
                arrays += [array for one in value for array in one.vectors()]
            else:
                arrays += value.vectors() if isinstance(value, _Tables) else [value]
        return arrays


@dataclass(frozen=True, eq=False)
class StaticCosts(_Tables):
    """A part of the memory that is proportional to what a rank holds, in quanta.

    Attributes
    ----------
    layer
        Of one layer, by kind.
    first, output, mtp
        Of the embedding; of the output layer; of the MTP layers.
    """

    layer: dict[LayerKind, Array]
    first: Array
    output: Array
    mtp: Array

    def of_rank(self, layers: Any, *, first: bool, last: bool, mtp: bool) -> Any:
        """Of a rank: ``layers`` is what its layers need, the flags say what else it holds."""
        total = layers
        for holds, array in ((first, self.first), (last, self.output), (mtp, self.mtp)):
            if holds:
                total = total + array
        return total


@dataclass(frozen=True, eq=False)
class MemoryCosts(_Tables):
    """Memory constants of cells, in quanta; arrays over the axes or over a list of cells.

    Attributes
    ----------
    static
        Weights, gradients and optimizer state.
    updates
        What the optimizer step adds while it updates one group of parameters.
    host
        Optimizer state in host memory.
    activation, offloaded
        By layer kind: saved activations of one micro-batch, on the GPU and on the host.
    overhead, working
        Of every rank besides its layers, and while a layer runs.
    loss
        The logits.
    """

    static: StaticCosts
    updates: tuple[StaticCosts, ...]
    host: StaticCosts
    activation: dict[LayerKind, Array]
    offloaded: dict[LayerKind, Array]
    overhead: Array
    working: Array
    loss: Array


@dataclass(frozen=True, eq=False)
class TimeCosts(_Tables):
    """Time constants of cells, in microseconds.

    Attributes
    ----------
    gpu_us, host_us
        By layer kind: time of one layer on GPU and host.  The two depend on different axes and
        are only joined (:attr:`layer_us`) for as many cells as are looked at.
    copies_us, way_us
        By layer kind: copies of its offloaded activations in GPU memory, and one way to the host.
    first_us, loss_us, mtp_us
        Time of the embedding; of all losses; of one MTP layer's projection.
    p2p_us
        Exposed transfer of one slot.
    exchange_us, optimizer_us
        Once a step, per layer of the fullest rank; ``..._ends_us`` once.
    """

    gpu_us: dict[LayerKind, Array]
    host_us: dict[LayerKind, Array]
    copies_us: dict[LayerKind, Array]
    way_us: dict[LayerKind, Array]
    first_us: Array
    loss_us: Array
    mtp_us: Array
    p2p_us: Array
    exchange_us: Array
    exchange_ends_us: Array
    optimizer_us: Array
    optimizer_ends_us: Array

    @cached_property
    def layer_us(self) -> dict[LayerKind, Array]:
        """Time of one layer by kind, host and offload included."""
        return {kind: self._layer_us(kind) for kind in self.gpu_us}

    def _layer_us(self, kind: LayerKind) -> Array:
        gpu, host, way = self.gpu_us[kind], self.host_us[kind], self.way_us[kind]
        time: Array = -(-largest([a * gpu + b * host for a, b in overlap_tangents(kind)]) // 1000)
        if way.any():
            time = with_transfers_us(time, self.copies_us[kind], way, np.maximum)
        return time

    @property
    def fastest_us(self) -> Array:
        """Time of the fastest kind of layer."""
        return least(list(self.layer_us.values()))


@dataclass(frozen=True, eq=False)
class CellCosts(TimeCosts, MemoryCosts):
    """Memory and time constants of cells."""

    def any_vpp(self) -> CellCosts:
        """The same with the least transfer over all virtual pipeline degrees, for bounds."""
        return replace(self, p2p_us=self.p2p_us.min(axis=5, keepdims=True))

    def memory_vectors(self) -> list[Array]:
        """The arrays that decide memory, in a fixed order."""
        memory = {field.name: getattr(self, field.name) for field in fields(MemoryCosts)}
        return MemoryCosts(**memory).vectors()


def memory_costs(axes: Axes) -> MemoryCosts:
    """Tabulate the memory constants over the axes."""
    problem, table = axes.problem, axes.table
    static = _static(axes, STATIC_PARTS)
    static = replace(static, output=static.output + table(output_dummy_gradient))
    overhead = axes.total((term, {}) for term in (*INSIDE_TERMS, *OUTSIDE_TERMS))
    overhead = overhead + workspaces(problem) + context(problem) + communicator(axes.pp)
    working = axes.largest((term, {}) for term in WORKING_TERMS)
    if problem.training.activation_offload:
        working = working + table(offload_staging)
    return MemoryCosts(
        static=static,
        updates=tuple(_static(axes, (part,)) for part in UPDATE_PARTS),
        host=_static(axes, (HOST_PART,)),
        activation={kind: _activation(axes, kind) for kind in problem.cost_kinds},
        offloaded=offloaded_costs(axes),
        overhead=overhead,
        working=working,
        loss=table(loss_working),
    )


def cell_costs(axes: Axes, memory: MemoryCosts) -> CellCosts:
    """Tabulate the time constants over the axes, beside the memory constants."""
    parts = (memory, time_costs(axes, memory.offloaded))
    return CellCosts(**{f.name: getattr(part, f.name) for part in parts for f in fields(part)})


def time_costs(
    axes: Axes, offloaded: dict[LayerKind, Array], *, between_slots: bool = True
) -> TimeCosts:
    """Tabulate the time constants over the axes; those between slots only if wanted.

    ``offloaded`` are the activations on the host (:func:`offloaded_costs`).
    """
    problem, card, table = axes.problem, axes.problem.model, axes.table
    exchange_ends, optimizer_ends = table(ends_exchange_us), table(ends_optimizer_us)
    if card.mtp_layers:
        exchange_ends = exchange_ends + table(mtp_expert_exchange_us)
        optimizer_ends = optimizer_ends + table(mtp_expert_optimizer_us)
    transfers = {kind: transfers_us(problem, moved) for kind, moved in offloaded.items()}
    return TimeCosts(
        gpu_us={kind: layer_gpu_us(axes, kind) for kind in problem.cost_kinds},
        host_us={kind: layer_host_us(axes, kind) for kind in problem.cost_kinds},
        copies_us={kind: copies for kind, (copies, _) in transfers.items()},
        way_us={kind: way for kind, (_, way) in transfers.items()},
        first_us=table(embedding_us),
        loss_us=(1 + card.mtp_layers) * table(loss_us),
        mtp_us=table(mtp_projection_us),
        p2p_us=table(p2p_us) if between_slots else _nothing(),
        exchange_us=_per_layer(axes, dense_exchange_us, expert_exchange_us),
        exchange_ends_us=exchange_ends,
        optimizer_us=_per_layer(axes, dense_optimizer_us, expert_optimizer_us),
        optimizer_ends_us=optimizer_ends,
    )


def _per_layer(axes: Axes, dense: Callable[..., int], expert: Callable[..., int]) -> Array:
    """A once-a-step cost of the costliest kind of layer."""
    return largest(
        [axes.total([(dense, {"kind": k}), (expert, {"kind": k})]) for k in axes.problem.kinds]
    )


def mtp_time_us(problem: Problem, costs: TimeCosts) -> Array:
    """Time of all MTP layers with their projections, for one micro-batch."""
    card = problem.model
    if not card.mtp_layers:
        return np.zeros_like(costs.loss_us)
    return card.mtp_layers * (costs.layer_us[card.mtp_kind] + costs.mtp_us)


def least(arrays: list[Array]) -> Array:
    """Elementwise minimum."""
    result = arrays[0]
    for array in arrays[1:]:
        result = np.minimum(result, array)
    return result


def largest(arrays: list[Array]) -> Array:
    """Elementwise maximum."""
    result = arrays[0]
    for array in arrays[1:]:
        result = np.maximum(result, array)
    return result


def _static(axes: Axes, parts: Sequence[str]) -> StaticCosts:
    """Some parts of the parameters' memory."""

    def sums(*terms: Callable[..., int], **constants: Any) -> Array:
        return axes.total((term, {"part": p, **constants}) for term in terms for p in parts)

    return StaticCosts(
        layer={kind: sums(dense_static, expert_static, kind=kind) for kind in axes.problem.kinds},
        first=sums(embedding_static),
        output=sums(output_static),
        mtp=sums(mtp_dense_static, mtp_expert_static),
    )


def _nothing() -> Array:
    """Zero wherever one looks."""
    return np.zeros((1,) * len(AXES), dtype=np.int64)


def offloaded_costs(axes: Axes) -> dict[LayerKind, Array]:
    """Activations on the host, by kind; without any the term, which reads much, is left alone."""
    if not axes.problem.training.activation_offload:
        return {kind: _nothing() for kind in axes.problem.cost_kinds}
    return {kind: axes.table(offloaded_activation, kind=kind) for kind in axes.problem.cost_kinds}


def _activation(axes: Axes, kind: LayerKind) -> Array:
    terms = [term for part in activation_terms(kind).values() for term in part]
    return axes.total((term, {"kind": kind}) for term in terms)


def layer_host_us(axes: Axes, kind: LayerKind) -> Array:
    """Host time of one layer."""
    return axes.total((term, {"kind": kind}) for term in HOST_TERMS)


def layer_gpu_us(axes: Axes, kind: LayerKind) -> Array:
    """GPU time of one layer."""
    return axes.total(
        (term, {"kind": kind} if with_kind else {}) for term, with_kind in gpu_terms(kind).values()
    )
