"""What any layout takes of a GPU for one sequence, at least, however many GPUs are used.

A step runs each layer once for each micro-batch on ``tp*cp`` GPUs, and the fullest pipeline rank
takes no less than the mean.  So ``gbs`` sequences on ``gpus`` GPUs take at least
``gbs * work / gpus`` us, where ``work`` is ``tp*cp`` times the time of all layers and ends, over
``mbs``.  And where a batch has fewer micro-batches than there are GPUs for them, the rest is a
pipeline, which is filled and drained slot by slot.  Both are tabulated on the best case of the
cluster, so that they hold for each part of it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from meshplan.constraints.parts import Part
from meshplan.constraints.problem import Problem
from meshplan.constraints.rule import Rule
from meshplan.scenarios.model_card import LayerKind
from meshplan.solver.axes import AXIS_DECISIONS, Array, Axes, Mask
from meshplan.solver.bounds import NEVER
from meshplan.solver.costs import largest, layer_gpu_us, layer_host_us, least
from meshplan.solver.judge import active_rules
from meshplan.solver.time.ends import embedding_us, loss_us, mtp_projection_us
from meshplan.solver.time.host import overlap_tangents
from meshplan.solver.time.step import STEP_OVERHEAD_US
from meshplan.topologies.best_case import best_case

#: Degrees that the time of a layer depends on.
_DEGREES = ("tp", "cp", "etp", "ep", "mbs")


@dataclass(frozen=True, eq=False)
class Rates:
    """Least work of one sequence, by the degrees of a row.

    Attributes
    ----------
    columns
        Degrees of each row, by name.
    work
        GPU-microseconds of one sequence, at least.
    slot
        Microseconds of the heaviest pipeline slot for one micro-batch, at least.
    """

    problem: Problem
    columns: dict[str, Array]
    work: Array
    slot: Array

    @property
    def largest_batch(self) -> int:
        """Largest batch that the problem allows: step times are scaled to it."""
        return max(int(size) for size in self.problem.domain("gbs"))

    def least_step(self, part: Part) -> int:
        """Least step time on a part, us, scaled; :data:`NEVER` if no degrees suit it."""
        return int(self._least_steps(part).min(initial=NEVER))

    def _least_steps(self, part: Part) -> Array:
        """The same of each row."""
        batch = self.largest_batch
        per_replica = self.columns["tp"] * self.columns["cp"] * (batch // self.columns["mbs"])
        stages = -(-part.gpus // np.maximum(per_replica, 1))
        steps = -(-batch * self.work // part.gpus) + (stages - 1) * self.slot + STEP_OVERHEAD_US
        most = max(int(degree) for degree in self.problem.domain("pp"))
        fits = self._within(part) & (stages <= most) & (per_replica > 0)
        return np.where(fits, steps, NEVER)

    def _within(self, part: Part) -> Mask:
        """Rows whose groups divide the part, and the group that shares an NVLink domain."""
        tp, cp, etp, ep = (self.columns[name] for name in _DEGREES[:4])
        possible: Mask = (part.gpus % (tp * cp) == 0) & (part.gpus % (etp * ep) == 0)
        limits = self.problem.limits
        if limits.tp_within_domain:
            possible &= (part.group % tp == 0) & (part.group % etp == 0)
        if limits.ep_within_domain and self.problem.model.is_moe:
            possible &= part.group % (etp * ep) == 0
        return possible

    def fast_enough(self, part: Part, most: int) -> Rule:
        """A rule that keeps the degrees with which a step may take ``most`` us, scaled, or less."""
        rows = zip(*(self.columns[name].tolist() for name in _DEGREES), strict=True)
        steps = dict(zip(rows, self._least_steps(part).tolist(), strict=True))
        return Rule(
            id="fast-enough",
            scope=_DEGREES,
            holds=lambda _, *degrees: steps.get(degrees, NEVER) <= most,
            explain=lambda _, *degrees: f"{degrees} take longer than {most} us",
            formula="least step time <= that of the best plan so far",
            why="Layouts that cannot be faster than a plan on other GPUs need not be looked at.",
            source="",
            family="search",
        )


def rates(problem: Problem) -> Rates:
    """Tabulate the least work over all degrees that the problem allows."""
    assert problem.whole is not None
    ideal = replace(problem, cluster=best_case(problem.whole))
    inside = [rule for rule in active_rules(ideal) if set(rule.scope) <= set(_DEGREES)]
    domains = [[int(v) for v in problem.domain(name)] for name in _DEGREES]
    legal = [row for row in itertools.product(*domains) if _holds(ideal, inside, row)]
    exchanges = problem.domain("cp_comm")
    rows = [(*row, exchange) for row in legal for exchange in exchanges]
    others = {
        axis: [tuple(choice) for choice in itertools.product(*(problem.domain(n) for n in names))]
        for axis, names in AXIS_DECISIONS.items()
        if axis != "vpp"
    }
    # What is recomputed is computed again, so no choice is faster than the least of them.
    others["recompute"] = [tuple(min(problem.domain(n)) for n in AXIS_DECISIONS["recompute"])]
    axes = Axes(ideal, 1, (*_DEGREES, "cp_comm"), rows, {**others, "vpp": [(1,)]})
    whole, slot = (
        us.reshape(len(legal), len(exchanges)).min(axis=1) for us in _model_us(axes.rows_cheapest())
    )
    columns = {
        name: np.array([row[i] for row in legal], dtype=np.int64) for i, name in enumerate(_DEGREES)
    }
    work = columns["tp"] * columns["cp"] * whole // columns["mbs"]
    return Rates(problem, columns, work, slot)


def _holds(problem: Problem, rules: Iterable[Rule], row: tuple[int, ...]) -> bool:
    named = dict(zip(_DEGREES, row, strict=True))
    return all(rule.holds(problem, *(named[name] for name in rule.scope)) for rule in rules)


def _model_us(axes: Axes) -> tuple[Array, Array]:
    """Least times of each row for one micro-batch: of all layers and ends, of the heaviest slot."""
    problem, card = axes.problem, axes.problem.model

    def layer_us(kind: LayerKind) -> Array:
        gpu, host = layer_gpu_us(axes, kind), layer_host_us(axes, kind)
        return largest([-(-(a * gpu + b * host) // 1000) for a, b in overlap_tangents(kind)])

    layers = {kind: layer_us(kind) for kind in problem.cost_kinds}
    loss = (1 + card.mtp_layers) * axes.table(loss_us)
    whole = axes.table(embedding_us) + loss
    for kind, count in problem.kind_counts.items():
        whole = whole + count * layers[kind]
    if card.mtp_layers:
        whole = whole + card.mtp_layers * (layers[card.mtp_kind] + axes.table(mtp_projection_us))
    return whole, np.maximum(loss, least([layers[kind] for kind in problem.kinds]))


__all__ = ["Rates", "rates"]
