"""Context parallelism: how it cuts the sequence, and which exchange an attention allows."""

from __future__ import annotations

from meshplan.constraints.context import heads_on_rank, inner_a2a
from meshplan.constraints.problem import Problem
from meshplan.constraints.rule import Rule
from meshplan.constraints.rules.sources import BRIDGE_GUIDE, TE_CONTEXT, VALIDATE_ARGS
from meshplan.constraints.rules.wording import nearest_divisors

#: Exchanges that support attention in a sliding window.
WINDOW_COMM = ("a2a", "all_gather")


def _has_window(problem: Problem) -> bool:
    return any(kind.attention == "swa" for kind in problem.kinds)


def _seq_holds(problem: Problem, cp: int) -> bool:
    return cp == 1 or problem.seq_len % (2 * cp) == 0


def _seq_explain(problem: Problem, cp: int) -> str:
    half = problem.seq_len // 2 if problem.seq_len % 2 == 0 else 1
    return (
        f"seq_len = {problem.seq_len} is not divisible by 2*cp = 2*{cp} = {2 * cp} (remainder "
        f"{problem.seq_len % (2 * cp)}); cp = {nearest_divisors(half, cp)} would do"
    )


def _neutral_holds(_: Problem, cp: int, cp_comm: str) -> bool:
    return cp > 1 or cp_comm == "p2p"


def _neutral_explain(_: Problem, cp: int, cp_comm: str) -> str:
    return f"cp_comm = {cp_comm} exchanges nothing with cp = {cp}; leave it at p2p"


def _a2a_holds(problem: Problem, tp: int, cp: int, cp_comm: str) -> bool:
    if cp == 1:
        return True
    if cp_comm == "a2a+p2p":
        return 1 < inner_a2a(problem, tp, cp) < cp
    queries, keys = heads_on_rank(problem, tp)
    return cp_comm != "a2a" or (queries % cp == 0 and keys % cp == 0)


def _a2a_explain(problem: Problem, tp: int, cp: int, cp_comm: str) -> str:
    queries, keys = heads_on_rank(problem, tp)
    if cp_comm == "a2a":
        return (
            f"cp_comm = a2a splits the heads of a rank over cp = {cp}, but with tp = {tp} a rank "
            f"has {queries} query and {keys} KV heads; use p2p, or lower cp"
        )
    inner = inner_a2a(problem, tp, cp)
    shared = problem.cluster.ranks_per_domain(cp, tp)
    if inner == cp:
        return (
            f"cp_comm = a2a+p2p has no outer ring: all cp = {cp} ranks fit into its inner group; "
            "use a2a"
        )
    return (
        f"cp_comm = a2a+p2p has no inner group: {shared} of the cp = {cp} ranks share an NVLink "
        f"domain, and with tp = {tp} a rank has {queries} query and {keys} KV heads; use p2p"
    )


def _window_holds(problem: Problem, cp: int, cp_comm: str) -> bool:
    return cp == 1 or cp_comm in WINDOW_COMM or not _has_window(problem)


def _window_explain(problem: Problem, cp: int, cp_comm: str) -> str:
    return (
        f"cp_comm = {cp_comm} with cp = {cp} does not support the sliding window of "
        f"{problem.model.sliding_window} tokens in {problem.model.name}; use a2a or all_gather"
    )


def _sinks_holds(problem: Problem, cp: int, cp_comm: str) -> bool:
    return cp == 1 or cp_comm == "a2a" or not problem.model.attention_sinks


def _sinks_explain(problem: Problem, cp: int, cp_comm: str) -> str:
    return (
        f"cp_comm = {cp_comm} with cp = {cp} does not support the attention sinks of "
        f"{problem.model.name}; use a2a, with tp*cp at most {problem.model.kv_groups} KV heads"
    )


SEQ_2CP = Rule(
    id="seq-2cp",
    scope=("cp",),
    holds=_seq_holds,
    explain=_seq_explain,
    formula="cp == 1 or seq_len % (2*cp) == 0",
    why="Each rank takes a chunk from the front and its mirror from the back of the sequence, so "
    "that causal attention is balanced.",
    source=VALIDATE_ARGS,
    family="context",
    fields=("layout.cp", "workload.seq_len"),
)

CP_COMM_NEEDS_CP = Rule(
    id="cp-comm-needs-cp",
    scope=("cp", "cp_comm"),
    holds=_neutral_holds,
    explain=_neutral_explain,
    formula="cp > 1 or cp_comm == p2p",
    why="Without context parallelism the exchange has no effect; the default stands for none.",
    source=TE_CONTEXT,
    family="context",
    fields=("layout.cp_comm", "layout.cp"),
)

CP_A2A_HEADS = Rule(
    id="cp-a2a-heads",
    scope=("tp", "cp", "cp_comm"),
    holds=_a2a_holds,
    explain=_a2a_explain,
    formula="a2a: (heads/tp) % cp == 0 and (kv_groups/tp) % cp == 0; a2a+p2p: 1 < inner < cp, "
    "with the inner group in place of cp",
    why="The all-to-all trades sequence shards for whole heads. a2a+p2p does so inside an NVLink "
    "domain and rings between domains.",
    source=f"{BRIDGE_GUIDE}; {TE_CONTEXT}",
    family="context",
    fields=("layout.cp_comm", "layout.cp", "layout.tp"),
)

CP_SLIDING_WINDOW_COMM = Rule(
    id="cp-sliding-window-comm",
    scope=("cp", "cp_comm"),
    holds=_window_holds,
    explain=_window_explain,
    formula="sliding window and cp > 1 => cp_comm in {a2a, all_gather}",
    why="The ring exchanges cannot skip the blocks outside of a window.",
    source=f"{TE_CONTEXT} l. 5020-5075",
    family="context",
    applies=_has_window,
    fields=("layout.cp_comm", "layout.cp"),
)

CP_SINKS_NEED_A2A = Rule(
    id="cp-sinks-need-a2a",
    scope=("cp", "cp_comm"),
    holds=_sinks_holds,
    explain=_sinks_explain,
    formula="attention sinks and cp > 1 => cp_comm == a2a",
    why="A softmax with learnt sinks is implemented for the all-to-all exchange only.",
    source=f"{TE_CONTEXT} l. 5020-5075",
    family="context",
    applies=lambda problem: problem.model.attention_sinks,
    fields=("layout.cp_comm", "layout.cp"),
)

CONTEXT_RULES: tuple[Rule, ...] = (
    SEQ_2CP,
    CP_COMM_NEEDS_CP,
    CP_A2A_HEADS,
    CP_SLIDING_WINDOW_COMM,
    CP_SINKS_NEED_A2A,
)
