"""Why nothing is possible: one irreducible set of facts that cannot hold together.

Facts are the rules, the memory of the GPUs, and what the scenario pins.  The set is shrunk by our
own exact procedure, in an order that keeps what a person can change: leaving any fact out makes
the rest possible.  A clash of rules and pins is found by :mod:`~meshplan.solver.legality`; if these
agree, memory is part of the conflict, and a search decides which pins and limits are as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from meshplan.constraints.layout_rules import LayoutRule
from meshplan.constraints.memory.formats import (
    gradient_bytes,
    host_optimizer_bytes,
    weight_bytes,
)
from meshplan.constraints.problem import HOST_RESERVE, QUANTA_PER_GIB, Problem, quanta
from meshplan.constraints.split_rules import split_rule
from meshplan.scenarios.parameters import total_parameters
from meshplan.solver.conflict_text import broken_layout_rules, layout_fault, pin_text, sentence
from meshplan.solver.judge import active_rules
from meshplan.solver.legality import PIPELINE_PIN, Legality
from meshplan.solver.progress import LimitReached
from meshplan.solver.results import Conflict
from meshplan.solver.search import Search

#: Id of the fact that the layers must fit into the GPUs' memory.
MEMORY = "memory-capacity"
#: Times the host memory that no layout needs more of.
_AMPLE_HOSTS = 1000
#: Rules that are the user's own limits, not the framework's: a memory conflict may rest on them.
LIMIT_RULES = ("tp-within-domain", "etp-within-domain", "ep-within-domain", "min-dp")


@dataclass(frozen=True)
class Fact:
    """One thing that a layout must respect: a rule, the memory, or a field of the scenario."""

    id: str
    is_pin: bool


def facts(problem: Problem) -> list[Fact]:
    """All facts, those a person is least likely to change first."""
    rules = [Fact(rule.id, is_pin=False) for rule in active_rules(problem)]
    rules.append(Fact(split_rule(problem).id, is_pin=False))
    pins = [Fact(path, is_pin=True) for path in dict.fromkeys(p.path for p in problem.pins)]
    if problem.layout_string is not None or problem.even_split:
        pins.append(Fact(PIPELINE_PIN, is_pin=True))
    return [*rules, Fact(MEMORY, is_pin=False), *pins]


def conflict(problem: Problem, deadline: float | None = None) -> Conflict:
    """One irreducible conflict of a problem that is proved infeasible."""
    everything = facts(problem)
    broken: list[LayoutRule] = broken_layout_rules(problem)
    if broken:
        text = f"{pin_text(problem, PIPELINE_PIN)}: {layout_fault(problem, broken[0])}."
        return Conflict((broken[0].id,), (pin_text(problem, PIPELINE_PIN),), text, minimal=True)
    legality = Legality(problem, active_rules(problem))
    named = [fact.id for fact in everything if fact.id != MEMORY]
    if not legality.possible(named):
        return _worded(problem, everything, legality.core(named), None, minimal=True)
    return _MemoryConflict(problem, everything, deadline).find()


def floor(problem: Problem) -> int:
    """Weights and gradients spread evenly over all GPUs, quanta: no layout needs less."""
    per_parameter = min(weight_bytes(problem), 2.0) + gradient_bytes(problem)
    return quanta(total_parameters(problem.model) * per_parameter / problem.gpus)


class _MemoryConflict:
    """Which pins and limits leave too little memory; the framework's own rules always hold."""

    def __init__(
        self, problem: Problem, everything: Sequence[Fact], deadline: float | None
    ) -> None:
        self.problem, self.everything, self.deadline = problem, everything, deadline
        #: By the facts that held: least memory per GPU, averaged over the stages, of any layout.
        self.least: dict[frozenset[str], int | None] = {}
        self.hosts_decide = False

    def find(self) -> Conflict:
        if floor(self.problem) > self.problem.capacity:
            return self._worded([], floor(self.problem), minimal=True)
        movable = [fact for fact in self.everything if self._movable(fact)]
        try:
            core = sorted(f.id for f in quickxplain(movable, self._fits))
            self.hosts_decide = self._hosts_decide()
        except LimitReached:
            return self._worded([f.id for f in movable], None, minimal=False)
        return self._worded(core, self.least.get(frozenset(core)), minimal=True)

    def _hosts_decide(self) -> bool:
        """Whether larger hosts alone would make a layout possible."""
        problem = self.problem
        if not problem.uses_host_memory:
            return False
        node = problem.node_type
        roomy = node.model_copy(update={"host_memory_gib": node.host_memory_gib * _AMPLE_HOSTS})
        ample = replace(problem, cluster=replace(problem.cluster, node_type=roomy))
        return Search(ample, deadline=self.deadline).any_plan()

    def _worded(self, core: list[str], least: int | None, *, minimal: bool) -> Conflict:
        return _worded(
            self.problem,
            self.everything,
            [MEMORY, *core],
            least,
            minimal=minimal,
            hosts_decide=self.hosts_decide,
        )

    def _movable(self, fact: Fact) -> bool:
        """Whether leaving a fact out can save memory (graphs that are off give none back)."""
        if fact.id == "options.cuda_graphs":
            return any(1 in pin.values for pin in self.problem.pins if pin.path == fact.id)
        return fact.is_pin or fact.id in LIMIT_RULES

    def _fits(self, kept: Sequence[Fact]) -> bool:
        """Whether any layout fits in memory with these pins and limits and all other rules."""
        ids = frozenset(fact.id for fact in kept)
        problem = self.problem
        if PIPELINE_PIN not in ids:
            problem = replace(problem, layout_string=None, even_split=False)
        search = Search(
            problem,
            rules=[r for r in active_rules(problem) if r.id in ids or r.id not in LIMIT_RULES],
            pins={pin.decision: pin.values for pin in problem.pins if pin.path in ids},
            deadline=self.deadline,
        )
        fits = search.any_plan()
        self.least[ids] = search.space.least_mean_memory
        return fits


def _worded(
    problem: Problem,
    everything: Sequence[Fact],
    core: Sequence[str],
    least: int | None,
    *,
    minimal: bool,
    hosts_decide: bool = False,
) -> Conflict:
    rules = tuple(f.id for f in everything if f.id in core and not f.is_pin)
    paths = [f.id for f in everything if f.id in core and f.is_pin]
    memory = _memory_text(problem, least, hosts_decide) if MEMORY in rules else None
    pins = tuple(pin_text(problem, path) for path in paths)
    text = sentence(problem, [r for r in rules if r != MEMORY], paths, memory)
    return Conflict(rules, pins, text, minimal=minimal)


def _memory_text(problem: Problem, least: int | None, hosts_decide: bool) -> str:
    node = problem.node_type
    usable = problem.capacity / QUANTA_PER_GIB
    room = (
        f"{node.name} has {usable:.1f} GiB usable ({node.hbm_gib:.1f} less "
        f"{problem.limits.memory_headroom:.0%} headroom)"
    )
    host = _host_text(problem)
    if hosts_decide and not host:
        host = f"; with larger hosts a layout would fit: {_host_share(problem)}"
    if least is None or least <= problem.capacity:
        return f"no split of the layers over the pipeline stages fits: {room}{host}"
    mean = least / QUANTA_PER_GIB
    return f"each GPU must hold at least {mean:.1f} GiB on average, and {room}{host}"


def _host_text(problem: Problem) -> str:
    """That the optimizer state has no room on the hosts either, if so."""
    if not any(value != 0 for value in problem.domain("offload")):
        return ""
    needed = quanta(total_parameters(problem.model) * host_optimizer_bytes(problem, 100))
    each = needed / problem.gpus
    if each <= problem.host_capacity:
        return ""
    return (
        f"; with the optimizer on the hosts each GPU's rank keeps {each / QUANTA_PER_GIB:.1f} GiB "
        f"there, and {_host_share(problem)}"
    )


def _host_share(problem: Problem) -> str:
    """What a node's memory leaves for one of its GPUs."""
    node = problem.node_type
    return (
        f"the {node.host_memory_gib:,.0f} GiB of a node leave "
        f"{problem.host_capacity / QUANTA_PER_GIB:.1f} GiB for each of its {node.gpus_per_node} "
        f"GPUs ({HOST_RESERVE:.0%} reserved)"
    )


def quickxplain(
    everything: Sequence[Fact], possible: Callable[[Sequence[Fact]], bool]
) -> frozenset[Fact]:
    """Irreducible subset of facts that is impossible; empty if no fact at all is possible.

    Junker 2004; facts late in the sequence are kept rather than early ones.
    """

    def explain(background: list[Fact], added: bool, candidates: list[Fact]) -> list[Fact]:
        if added and not possible(background):
            return []
        if len(candidates) == 1:
            return candidates
        half = len(candidates) // 2
        late, early = candidates[half:], candidates[:half]
        from_early = explain(background + late, bool(late), early)
        from_late = explain(background + from_early, bool(from_early), late)
        return from_early + from_late

    if not everything or not possible([]):
        return frozenset()
    return frozenset(explain([], False, list(everything)))
