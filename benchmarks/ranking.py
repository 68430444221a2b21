"""Where a published layout stands among all layouts of its scenario, by the model's step time.

The scenario keeps what the row says of model, cluster, batch, sequence, precision, dispatcher,
CUDA graphs, offload and training settings.  Degrees, micro-batch, exchange of context parallelism,
recompute and the split of the layers are free, with the limits that scenarios have by default.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.memory_words import Unusable
from benchmarks.throughput_scenario import Case, SpeedDraft
from meshplan.scenarios.errors import InputError

if TYPE_CHECKING:
    from meshplan.constraints.layout import Layout
    from meshplan.constraints.problem import Problem
    from meshplan.solver.cells import Cell, Pool, Region
    from meshplan.solver.found import Found
    from meshplan.solver.search import Search

#: Layouts that share these are one choice, which counts by the best of them.
CHOICE = ("tp", "cp", "pp", "ep", "etp", "mbs")
#: Integer programs of a row that may prove that a choice has a faster plan, at most.
PROGRAMS = 20
#: Choices of a row whose bounds are refined, at most; of the others only the coarse bound is seen.
REFINED = 200

Choice = tuple[int, ...]


@dataclass(frozen=True)
class Standing:
    """A published layout among the others of its scenario.

    Attributes
    ----------
    ids
        Rows that have this scenario and layout.
    measured, predicted
        Model TFLOP/s of one GPU: the mean of the rows, and by the model.
    verdict, broken
        Whether the model says that the layout fits, and the rules that it breaks.
    step_s, best_step_s, own_best_step_s
        Predicted step time of the published layout, of the optimum, and of the fastest plan of the
        published choice that is not slower than it; None if there is none.
    faster, maybe_faster
        Other choices with a plan that fits and is faster: proved, and not excluded either.
    choices
        Choices that the rules allow and that may fit.
    parts, best_parts
        Seconds of a step by part, of the published layout and of the optimum.
    """

    ids: tuple[str, ...]
    doubt: str
    measured: float
    predicted: float
    layout: str
    best_layout: str
    differs: tuple[str, ...]
    verdict: str
    broken: tuple[str, ...]
    step_s: float
    best_step_s: float
    own_best_step_s: float | None
    faster: int
    maybe_faster: int
    choices: int
    band: float | None
    parts: dict[str, float]
    best_parts: dict[str, float]

    @property
    def rank(self) -> tuple[int, int]:
        """Least and greatest rank; 1 where no choice is faster."""
        return self.faster + 1, self.faster + self.maybe_faster + 1

    @property
    def loss(self) -> float:
        """Throughput that the published layout gives away by the model, in percent."""
        return 100 * (1 - self.best_step_s / self.step_s)

    @property
    def refutes_the_proof(self) -> bool:
        """Whether it is legal, fits, and beats what was proved to be the optimum."""
        return self.loss < 0 and not self.broken and self.verdict != "overfull"


def open_scenario(case: Case) -> dict[str, Any]:
    """The scenario of a row with its layout left open."""
    found = SpeedDraft(case.measured).scenario()
    found["layout"] = {}
    found["options"] |= {"recompute": "auto", "pipeline_layout": "auto"}
    del found["limits"]
    return found


def standing(cases: Sequence[Case], limit_s: float | None = None) -> Standing:
    """Where the layout of these rows, which share it, stands.

    Raises
    ------
    Unusable
        If the scenario cannot be searched, nothing fits, or the search takes longer than the limit.
    """
    from meshplan.solver.program import LimitReached

    try:
        return _standing(cases, limit_s)
    except LimitReached:
        raise Unusable(f"the search was stopped after {limit_s:g} s") from None


def _standing(cases: Sequence[Case], limit_s: float | None) -> Standing:
    from meshplan.constraints.memory.verdict import has_room, verdict
    from meshplan.solver.judge import cost, model_tflops_per_gpu, violations
    from meshplan.solver.time.trust import error_band

    case = cases[0]
    opened = _opened(repr(open_scenario(case)), limit_s)
    problem, plan, layout = opened.problem, opened.layout, case.layout
    spent = cost(problem, layout)
    step, best = spent.time.step_us, opened.best.step
    own = tuple(getattr(layout, name) for name in CHOICE)
    faster, maybe = opened.count_faster(step, own)
    own_best = opened.fastest_of(own, step)
    room = verdict(problem, spent.ranks)
    if room == "tight" and not has_room(problem, spent.ranks):
        room = "overfull"
    return Standing(
        ids=tuple(one.id for one in cases),
        doubt=case.doubt,
        measured=sum(one.tflops for one in cases) / len(cases),
        predicted=model_tflops_per_gpu(problem, layout, step),
        layout=words(problem, layout),
        best_layout=words(problem, plan),
        differs=differences(layout, plan),
        verdict=room,
        broken=tuple(one.rule for one in violations(problem, layout)),
        step_s=step / 1e6,
        best_step_s=best / 1e6,
        own_best_step_s=None if own_best is None else own_best / 1e6,
        faster=faster,
        maybe_faster=maybe,
        choices=len(opened.choices),
        band=error_band(problem),
        parts=_parts(problem, layout),
        best_parts=_parts(problem, plan),
    )


def _parts(problem: Problem, layout: Layout) -> dict[str, float]:
    from meshplan.solver.breakdown import step_breakdown_us
    from meshplan.solver.judge import cost

    parts = step_breakdown_us(problem, layout, cost(problem, layout).time)
    return {name: time / 1e6 for name, time in parts.items() if time}


@dataclass(frozen=True)
class Opened:
    """A scenario with its layout open, searched.

    ``choices`` are those that may fit, each with its coarse bound, best first.
    """

    problem: Problem
    search: Search
    best: Found
    layout: Layout
    choices: dict[Choice, tuple[int, Region]]

    def count_faster(self, step: int, own: Choice) -> tuple[int, int]:
        """Choices but ``own`` that have a plan below ``step``: proved, and not excluded either."""
        rivals = [
            choice for choice, (bound, _) in self.choices.items() if bound < step and choice != own
        ]
        proved, open_ = 0, max(0, len(rivals) - REFINED)
        statistics = self.search.statistics
        last = statistics.programs + PROGRAMS
        for choice in rivals[:REFINED]:
            pools = self._pools(choice, step - 1)
            for cell in _in_order(pools):
                if statistics.programs >= last:
                    open_ += 1
                    break
                if self._plan_of(cell, step - 1) is not None:
                    proved += 1
                    break
        return proved, open_

    def fastest_of(self, choice: Choice, most: int) -> int | None:
        """Step time of the fastest plan of a choice, if one is within ``most``."""
        if choice not in self.choices:
            return None
        best: int | None = None
        for cell in _in_order(self._pools(choice, most)):
            pool, index = cell
            if best is not None and int(pool.step[index]) >= best:
                break
            plan = self._plan_of(cell, most if best is None else best - 1)
            best = best if plan is None else plan.step
        return best

    def _plan_of(self, cell: Cell, most: int) -> Found | None:
        return self.search.best_of(cell, most, self.search.capacity)

    def _pools(self, choice: Choice, most: int) -> list[Pool]:
        """Cells of a choice whose refined bound is at most ``most``."""
        _, region = self.choices[choice]

        def of_choice(some: Region) -> Any:
            return np.all(_mesh_of(some) == _mesh_choice(choice), axis=1)

        return self.search.space.pools([region], most, of_choice)


@lru_cache(maxsize=1)
def _opened(written: str, limit_s: float | None) -> Opened:
    import time
    from ast import literal_eval

    from meshplan.constraints.resolve import resolve
    from meshplan.scenarios import from_mapping
    from meshplan.solver.found import to_layout
    from meshplan.solver.search import Search

    try:
        problem = resolve(from_mapping(literal_eval(written)))
    except InputError as error:
        raise Unusable(f"no open scenario: {str(error).splitlines()[0]}") from None
    deadline = None if limit_s is None else time.monotonic() + limit_s
    search = Search(problem, deadline=deadline)
    regions = search.space.regions()
    if not regions or search.fastest(regions) is None or search.best is None:
        raise Unusable("nothing fits by the model")
    best = search.best
    found = [one for region in regions for one in _choices(region)]
    choices = {choice: (bound, region) for choice, bound, region in sorted(found, key=_by_bound)}
    return Opened(problem, search, best, to_layout(best.decisions, best.slots), choices)


def _by_bound(found: tuple[Choice, int, Region]) -> tuple[int, Choice]:
    return found[1], found[0]


def _choices(region: Region) -> Iterator[tuple[Choice, int, Region]]:
    """The choices of a region, each with the least coarse bound of its cells."""
    meshes, index = np.unique(_mesh_of(region), axis=0, return_inverse=True)
    least = np.full(len(meshes), np.iinfo(np.int64).max)
    np.minimum.at(least, index.reshape(-1)[region.indices[0]], region.bounds)
    for mesh, bound in zip(meshes.tolist(), least.tolist(), strict=True):
        if bound < np.iinfo(np.int64).max:
            tp, cp, ep, etp, mbs = mesh
            yield (tp, cp, region.pp, ep, etp, mbs), bound, region


def _mesh_of(region: Region) -> Any:
    """Degrees of each mesh row, without pp, which a region has in common."""
    return np.stack([region.axes.column(n) for n in CHOICE if n != "pp"], axis=1)


def _mesh_choice(choice: Choice) -> Any:
    return np.array([v for n, v in zip(CHOICE, choice, strict=True) if n != "pp"])


def _in_order(pools: Sequence[Pool]) -> Iterator[Cell]:
    """Cells in the order of their bounds."""
    from meshplan.solver.cells import in_order

    return (cell for _, cell in in_order(pools, [pool.least for pool in pools]))


def words(problem: Problem, layout: Layout) -> str:
    """A layout in short: degrees above 1, micro-batches, exchange, recompute, split."""
    from meshplan.constraints.pipeline import format_layout

    names = ("tp", "cp", "pp", "vpp", "dp", "ep", "etp")
    parts = [f"{name}{getattr(layout, name)}" for name in names if getattr(layout, name) > 1]
    parts += [f"mbs{layout.mbs}", f"ga{layout.ga}"]
    parts += [layout.cp_comm] if layout.cp > 1 else []
    parts += [f"recompute {recompute_of(layout)}"]
    if layout.pp > 1:
        parts.append(format_layout(layout.slots, problem.model.mtp_layers))
    return " ".join(parts)


def recompute_of(layout: Layout) -> str:
    """Recompute in one word."""
    return "full" if layout.recompute_full else "+".join(layout.recompute) or "none"


def differences(published: Layout, best: Layout) -> tuple[str, ...]:
    """Decisions that differ, as ``name published->best``."""
    named = [
        (name, getattr(published, name), getattr(best, name)) for name in (*CHOICE, "vpp", "dp")
    ]
    if published.cp > 1 and best.cp > 1:
        named.append(("cp_comm", published.cp_comm, best.cp_comm))
    named.append(("recompute", recompute_of(published), recompute_of(best)))
    found = [f"{name} {old}->{new}" for name, old, new in named if old != new]
    if not found and published.slots != best.slots:
        found.append("split of the layers")
    return tuple(found)
