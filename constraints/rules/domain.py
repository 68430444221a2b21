"""Which groups must stay inside one NVLink domain.

Megatron knows no domains: these are limits of the scenario.  They bite on the blocks of
consecutive ranks that hold a group: ``tp``, ``etp`` and ``etp*ep`` ranks.
"""

from __future__ import annotations

from meshplan.constraints.problem import Problem
from meshplan.constraints.rule import Rule
from meshplan.constraints.rules.sources import BRIDGE_GUIDE
from meshplan.constraints.rules.wording import product


def within_domain(problem: Problem, block: int) -> bool:
    """Whether every aligned block of ``block`` ranks lies inside one NVLink domain."""
    # The cluster counts a block larger than itself as all of it, which is no group at all.
    return block <= problem.gpus and problem.cluster.fits_domain(block)


def _leaves_domain(problem: Problem, group: str, block: int, limit: str) -> str:
    """Why blocks of ``block`` ranks leave their domain."""
    domains = problem.cluster.domains
    largest = max(domains)
    if block > largest:
        return (
            f"{group} exceeds the {largest} GPUs of an NVLink domain; "
            f"lower it to at most {largest}, or set limits.{limit}: false"
        )
    broken = next((size for size in domains if size % block), largest)
    return (
        f"groups of {group} ranks straddle the border of an NVLink domain of {broken} GPUs "
        f"({broken} % {block} = {broken % block}); "
        f"use domains that are multiples of {block}, or set limits.{limit}: false"
    )


def _tp_limited(problem: Problem) -> bool:
    return problem.limits.tp_within_domain


def _tp_holds(problem: Problem, tp: int) -> bool:
    return not problem.limits.tp_within_domain or within_domain(problem, tp)


def _tp_explain(problem: Problem, tp: int) -> str:
    return _leaves_domain(problem, f"tp = {tp}", tp, "tp_within_domain")


def _etp_explain(problem: Problem, etp: int) -> str:
    return _leaves_domain(problem, f"etp = {etp}", etp, "tp_within_domain")


def _ep_holds(problem: Problem, etp: int, ep: int) -> bool:
    return not problem.limits.ep_within_domain or within_domain(problem, etp * ep)


def _ep_explain(problem: Problem, etp: int, ep: int) -> str:
    group = product(("etp", "ep"), (etp, ep))
    return _leaves_domain(problem, group, etp * ep, "ep_within_domain")


TP_WITHIN_DOMAIN = Rule(
    id="tp-within-domain",
    scope=("tp",),
    holds=_tp_holds,
    explain=_tp_explain,
    formula="each block of tp ranks lies in one NVLink domain",
    why="TP communicates in every layer and cannot hide it; over the network it dominates the "
    "step. A limit of the scenario: published runs have TP across nodes.",
    source=f"{BRIDGE_GUIDE}; the scenario (limits.tp_within_domain)",
    family="domain",
    applies=_tp_limited,
    fields=("layout.tp", "limits.tp_within_domain", "cluster.domains"),
)

ETP_WITHIN_DOMAIN = Rule(
    id="etp-within-domain",
    scope=("etp",),
    holds=_tp_holds,
    explain=_etp_explain,
    formula="each block of etp ranks lies in one NVLink domain",
    why="Expert tensor parallelism communicates as TP does; the same limit holds for it.",
    source=f"{BRIDGE_GUIDE}; the scenario (limits.tp_within_domain)",
    family="domain",
    applies=lambda problem: problem.limits.tp_within_domain and problem.model.is_moe,
    fields=("layout.etp", "limits.tp_within_domain", "cluster.domains"),
)

EP_WITHIN_DOMAIN = Rule(
    id="ep-within-domain",
    scope=("etp", "ep"),
    holds=_ep_holds,
    explain=_ep_explain,
    formula="each block of etp*ep ranks lies in one NVLink domain",
    why="Token dispatch inside the NVLink domain is several times faster than over the network. "
    "A limit of the scenario; without it EP may cross domains.",
    source=f"{BRIDGE_GUIDE}; the scenario (limits.ep_within_domain)",
    family="domain",
    applies=lambda problem: problem.limits.ep_within_domain and problem.model.is_moe,
    fields=("layout.ep", "layout.etp", "limits.ep_within_domain", "cluster.domains"),
)

DOMAIN_RULES: tuple[Rule, ...] = (TP_WITHIN_DOMAIN, ETP_WITHIN_DOMAIN, EP_WITHIN_DOMAIN)
