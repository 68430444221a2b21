"""How context parallelism falls onto heads and NVLink domains: shared by rules and time model.

Source: TransformerEngine d0067d0 ``context_parallel.py``; Megatron-LM d98e8a64
``parallel_state.py`` (``hierarchical_context_parallel_sizes``).
"""

from __future__ import annotations

from functools import lru_cache

from meshplan.constraints.problem import Problem


def heads_on_rank(problem: Problem, tp: int) -> tuple[int, int]:
    """Query heads and KV heads of one TP rank.

    MLA decompresses a K and a V for each query head; GQA replicates KV heads where there are
    fewer of them than TP ranks.
    """
    model = problem.model
    queries = model.heads // tp
    keys = queries if model.attention == "mla" else max(1, model.kv_groups // tp)
    return queries, keys


@lru_cache(maxsize=65536)
def inner_a2a(problem: Problem, tp: int, cp: int) -> int:
    """Ranks of the inner (all-to-all) group of ``a2a+p2p``; ``cp / inner`` rings go around it.

    The largest power of two that divides ``cp`` and the heads of a rank and lies inside an NVLink
    domain.  ``a2a+p2p`` is of use only if ``1 < inner < cp``.
    """
    most = problem.cluster.ranks_per_domain(cp, tp)
    queries, keys = heads_on_rank(problem, tp)
    inner = 1
    while 2 * inner <= most and all(n % (2 * inner) == 0 for n in (cp, queries, keys)):
        inner *= 2
    return inner
