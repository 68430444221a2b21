"""Token dispatchers: which one a model, a layout and the hardware allow."""

from __future__ import annotations

from meshplan.constraints.problem import Problem
from meshplan.constraints.rule import Rule
from meshplan.constraints.rules.sources import BRIDGE_FLEX, BRIDGE_LAUNCHER, FLEX_DISPATCHER
from meshplan.constraints.rules.wording import product

#: Compute capabilities on which DeepEP runs whatever the system, and those of HybridEP.
DEEPEP_CAPABILITIES = (8, 9)
HYBRIDEP_CAPABILITIES = (8, 9, 10)
#: GPUs with a newer capability on which DeepEP runs as well (8 to a node).
DEEPEP_GPUS = ("B200", "B300")

#: GPUs of a node in DeepEP's kernels, and the node counts that they are compiled for.  Lists differ
#: by version (some add 3 or lack 6 and 12); 160 ranks is the limit of all.
DEEPEP_NODE_RANKS = 8
DEEPEP_NODES = (2, 4, 6, 8, 12, 16, 18, 20)

_FIELDS = ("options.dispatcher",)


def deepep_runs(problem: Problem) -> bool:
    """Whether DeepEP supports the GPUs of the cluster (GB200 and GB300: no)."""
    node = problem.node_type
    return node.compute_capability in DEEPEP_CAPABILITIES or node.gpu.startswith(DEEPEP_GPUS)


def hybridep_runs(problem: Problem) -> bool:
    """Whether HybridEP supports the GPUs of the cluster."""
    return problem.node_type.compute_capability in HYBRIDEP_CAPABILITIES


def _moe_holds(problem: Problem, dispatcher: str) -> bool:
    return problem.model.is_moe or dispatcher == "alltoall"


def _moe_explain(problem: Problem, dispatcher: str) -> str:
    return (
        f"dispatcher {dispatcher} has no tokens to dispatch: {problem.model.name} has no routed "
        "experts; use alltoall"
    )


def _ranks_holds(_: Problem, dispatcher: str, etp: int, ep: int) -> bool:
    return dispatcher != "deepep" or etp * ep > 1


def _ranks_explain(_: Problem, dispatcher: str, etp: int, ep: int) -> str:
    group = product(("etp", "ep"), (etp, ep))
    return f"dispatcher {dispatcher} needs a group of several ranks, but {group}; use alltoall"


def _deepep_holds(problem: Problem, dispatcher: str) -> bool:
    return dispatcher != "deepep" or deepep_runs(problem)


def _deepep_explain(problem: Problem, dispatcher: str) -> str:
    node = problem.node_type
    return (
        f"dispatcher {dispatcher} does not run on {node.gpu} (compute capability "
        f"{node.compute_capability}, NVLink domain of {node.nvlink_domain_gpus}); use hybridep"
    )


def deepep_ranks_supported(ranks: int) -> bool:
    """Whether DeepEP has kernels for a dispatch group of this size."""
    if ranks <= DEEPEP_NODE_RANKS:
        return ranks in (2, 4, 8)
    return ranks % DEEPEP_NODE_RANKS == 0 and ranks // DEEPEP_NODE_RANKS in DEEPEP_NODES


def _count_holds(problem: Problem, dispatcher: str, etp: int, ep: int) -> bool:
    ranks = etp * ep
    dispatches = problem.model.is_moe and dispatcher == "deepep" and ranks > 1
    return not dispatches or deepep_ranks_supported(ranks)


def _count_explain(_: Problem, dispatcher: str, etp: int, ep: int) -> str:
    group = product(("etp", "ep"), (etp, ep))
    return (
        f"dispatcher {dispatcher} has kernels for groups of 2, 4 or 8 GPUs and of "
        f"{', '.join(str(n * DEEPEP_NODE_RANKS) for n in DEEPEP_NODES)}, but {group}; "
        "change ep, or use alltoall"
    )


def _hybridep_holds(problem: Problem, dispatcher: str) -> bool:
    return dispatcher != "hybridep" or hybridep_runs(problem)


def _hybridep_explain(problem: Problem, dispatcher: str) -> str:
    node = problem.node_type
    return (
        f"dispatcher {dispatcher} does not run on {node.gpu} (compute capability "
        f"{node.compute_capability}); use alltoall"
    )


def _node_size_holds(problem: Problem, dispatcher: str, etp: int, ep: int) -> bool:
    domains = problem.cluster.domains
    return (
        dispatcher != "deepep"
        or not problem.model.is_moe
        or etp * ep <= min(domains)
        or all(gpus % DEEPEP_NODE_RANKS == 0 for gpus in domains)
    )


def _node_size_explain(problem: Problem, dispatcher: str, etp: int, ep: int) -> str:
    group = product(("etp", "ep"), (etp, ep))
    return (
        f"dispatcher {dispatcher} crosses nodes only where each has {DEEPEP_NODE_RANKS} GPUs "
        f"joined by NVLink, but {group} and the smallest domain has "
        f"{min(problem.cluster.domains)}; keep the group inside a node, or use alltoall"
    )


def _domain_holds(problem: Problem, dispatcher: str, etp: int, ep: int) -> bool:
    return (
        dispatcher != "hybridep"
        or not problem.node_type.multi_node_nvlink
        or (
            etp * ep <= problem.node_type.nvlink_domain_gpus
            and problem.cluster.fits_domain(etp * ep)
        )
    )


def _domain_explain(problem: Problem, dispatcher: str, etp: int, ep: int) -> str:
    group = product(("etp", "ep"), (etp, ep))
    return (
        f"dispatcher {dispatcher} keeps each group inside one NVLink domain, but {group} and "
        f"blocks of that many GPUs do not all lie in domains of {_sizes(problem)}; lower ep, use "
        "fewer GPUs of each domain, or use alltoall"
    )


def _sizes(problem: Problem) -> str:
    sizes = sorted(set(problem.cluster.domains))
    return ", ".join(str(size) for size in sizes[:6]) + (" ..." if len(sizes) > 6 else "")


DISPATCHER_NEEDS_MOE = Rule(
    id="dispatcher-needs-moe",
    scope=("dispatcher",),
    holds=_moe_holds,
    explain=_moe_explain,
    formula="experts > 0 or dispatcher == alltoall",
    why="A dense model dispatches nothing; alltoall, the default, is then the neutral value.",
    source=FLEX_DISPATCHER,
    family="dispatcher",
    applies=lambda problem: not problem.model.is_moe,
    fields=_FIELDS,
)

DEEPEP_NEEDS_ETP_EP = Rule(
    id="deepep-needs-etp-ep",
    scope=("dispatcher", "etp", "ep"),
    holds=_ranks_holds,
    explain=_ranks_explain,
    formula="deepep => etp*ep > 1",
    why="DeepEP dispatches over the group of all etp*ep ranks and refuses a group of one.",
    source=FLEX_DISPATCHER,
    family="dispatcher",
    applies=lambda problem: problem.model.is_moe,
    fields=("options.dispatcher", "layout.ep"),
)

DEEPEP_RANK_COUNT = Rule(
    id="deepep-rank-count",
    scope=("dispatcher", "etp", "ep"),
    holds=_count_holds,
    explain=_count_explain,
    formula="deepep => etp*ep in {2, 4, 8} or 8 x {2, 4, 6, 8, 12, 16, 18, 20}",
    why="DeepEP is compiled for fixed numbers of nodes, 20 at most, so groups end at 160 GPUs.",
    source="DeepEP csrc/kernels/configs.cuh NUM_MAX_RDMA_PEERS, launch.cuh; issues 90 and 464",
    family="dispatcher",
    applies=lambda problem: problem.model.is_moe,
    fields=("layout.ep", "options.dispatcher"),
)

DEEPEP_NODE_SIZE = Rule(
    id="deepep-node-size",
    scope=("dispatcher", "etp", "ep"),
    holds=_node_size_holds,
    explain=_node_size_explain,
    formula="deepep across nodes => 8 GPUs in every NVLink domain",
    why="DeepEP's kernels between nodes are written for nodes of 8 GPUs.",
    source="DeepEP issues 50, 104, 296 and 477",
    family="dispatcher",
    applies=lambda problem: (
        problem.model.is_moe and any(gpus % DEEPEP_NODE_RANKS for gpus in problem.cluster.domains)
    ),
    fields=("options.dispatcher", "layout.ep"),
)

BRIDGE_DEEPEP_ARCH = Rule(
    id="bridge-deepep-arch",
    scope=("dispatcher",),
    holds=_deepep_holds,
    explain=_deepep_explain,
    formula="deepep => compute capability 8 or 9, or B200/B300",
    why="DeepEP's kernels expect nodes of 8 GPUs; GB200 and GB300 have HybridEP instead.",
    source=BRIDGE_FLEX,
    family="dispatcher",
    applies=lambda problem: not deepep_runs(problem),
    fields=_FIELDS,
)

BRIDGE_HYBRIDEP_ARCH = Rule(
    id="bridge-hybridep-arch",
    scope=("dispatcher",),
    holds=_hybridep_holds,
    explain=_hybridep_explain,
    formula="hybridep => compute capability 8, 9 or 10",
    why="HybridEP has kernels for Ampere, Hopper and Blackwell.",
    source=BRIDGE_FLEX,
    family="dispatcher",
    applies=lambda problem: not hybridep_runs(problem),
    fields=_FIELDS,
)

BRIDGE_HYBRIDEP_DOMAIN = Rule(
    id="bridge-hybridep-domain",
    scope=("dispatcher", "etp", "ep"),
    holds=_domain_holds,
    explain=_domain_explain,
    formula="hybridep on NVL72 => every block of etp*ep GPUs lies in one NVLink domain (<= 72)",
    why="With NVLink across nodes HybridEP is set up for one domain; a group that straddles two "
    "fails at start-up.",
    source=BRIDGE_LAUNCHER,
    family="dispatcher",
    applies=lambda problem: problem.model.is_moe and problem.node_type.multi_node_nvlink,
    fields=("layout.ep", "layout.etp", "options.dispatcher"),
)

DISPATCHER_RULES: tuple[Rule, ...] = (
    DISPATCHER_NEEDS_MOE,
    DEEPEP_NEEDS_ETP_EP,
    DEEPEP_RANK_COUNT,
    DEEPEP_NODE_SIZE,
    BRIDGE_DEEPEP_ARCH,
    BRIDGE_HYBRIDEP_ARCH,
    BRIDGE_HYBRIDEP_DOMAIN,
)
