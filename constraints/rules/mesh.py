"""The two meshes: attention ``tp x cp x dp x pp`` and expert ``etp x ep x edp x pp``.

Each must cover all GPUs on its own.  Only these products count: the product of all degrees means
nothing, and ``ep`` may exceed ``dp``, because experts fold over TP, CP and DP alike.
"""

from __future__ import annotations

from meshplan.constraints.problem import Problem
from meshplan.constraints.rule import Rule
from meshplan.constraints.rules.sources import PARALLEL_STATE
from meshplan.constraints.rules.wording import nearest_multiples, product


def _misfit(problem: Problem, grid: str, block: int, rest: str, value: int, hint: str) -> str:
    """Why ``block`` GPUs, ``value`` times over, do not make up the cluster."""
    gpus = problem.gpus
    if block > gpus:
        return f"{grid} needs at least {block} GPUs, the cluster has {gpus}{hint}"
    if gpus % block:
        fitting = hint or f"; a multiple such as {nearest_multiples(block, gpus)} GPUs would fit"
        return f"{grid} does not divide {gpus} GPUs{fitting}"
    return (
        f"{grid} leaves {rest} = {gpus // block} on {gpus} GPUs, but {rest} is {value}, "
        f"which makes {block * value} GPUs"
    )


def _dense_holds(problem: Problem, tp: int, cp: int, pp: int, dp: int) -> bool:
    return tp * cp * pp * dp == problem.gpus


def _dense_explain(problem: Problem, tp: int, cp: int, pp: int, dp: int) -> str:
    grid = "attention mesh " + product(("tp", "cp", "pp"), (tp, cp, pp))
    return _misfit(problem, grid, tp * cp * pp, "dp", dp, "")


def _expert_holds(problem: Problem, etp: int, ep: int, pp: int, edp: int) -> bool:
    return etp * ep * pp * edp == problem.gpus


def _expert_explain(problem: Problem, etp: int, ep: int, pp: int, edp: int) -> str:
    grid = "expert grid " + product(("etp", "ep", "pp"), (etp, ep, pp))
    return _misfit(problem, grid, etp * ep * pp, "edp", edp, _smaller_grid(problem, etp, ep, pp))


def _smaller_grid(problem: Problem, etp: int, ep: int, pp: int) -> str:
    """The least change of ``etp`` or ``ep`` that makes the expert grid fit, or nothing."""
    if not problem.model.is_moe:  # etp follows tp there
        return ""
    if etp > 1 and problem.gpus % (ep * pp) == 0:
        return f"; with etp = 1 it is {ep * pp} and fits"
    for smaller in range(min(ep - 1, problem.gpus), 0, -1):
        grid = etp * smaller * pp
        if problem.gpus % grid == 0 and problem.model.experts % smaller == 0:
            return f"; with ep = {smaller} it is {grid} and fits"
    return ""


WORLD_DENSE_DIVISIBLE = Rule(
    id="world-dense-divisible",
    scope=("tp", "cp", "pp", "dp"),
    holds=_dense_holds,
    explain=_dense_explain,
    formula="tp*cp*pp*dp == GPUs",
    why="Every GPU has one place in the attention mesh; data parallelism takes what TP, CP and PP "
    "leave, so tp*cp*pp must divide the GPUs and is the least number of them.",
    source=PARALLEL_STATE,
    family="mesh",
    fields=("layout.tp", "layout.cp", "layout.pp", "layout.dp", "cluster.gpus"),
)

WORLD_EXPERT_DIVISIBLE = Rule(
    id="world-expert-divisible",
    scope=("etp", "ep", "pp", "edp"),
    holds=_expert_holds,
    explain=_expert_explain,
    formula="etp*ep*pp*edp == GPUs",
    why="The experts have a mesh of their own over the same GPUs and pipeline stages. Megatron-LM "
    "sets etp = tp when it is not given, which makes this mesh tp times larger.",
    source=PARALLEL_STATE,
    family="mesh",
    fields=("layout.etp", "layout.ep", "layout.pp", "layout.edp", "cluster.gpus"),
)

MESH_RULES: tuple[Rule, ...] = (WORLD_DENSE_DIVISIBLE, WORLD_EXPERT_DIVISIBLE)
