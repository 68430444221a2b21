"""How many GPUs of a cluster a layout may use, and which: the parts that the search chooses from.

A part is a number of GPUs in whole groups: each NVLink domain gives a multiple of the group, so
that no group of the layout that divides it leaves its domain.  For a number of GPUs the largest
group that still packs so many is taken: whatever layout of so many GPUs can be placed at all has
its TP and EP groups inside the domains there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import product
from math import isqrt, lcm

from meshplan.constraints.problem import Problem
from meshplan.topologies import Cluster
from meshplan.topologies.packing import Part, packed_cluster, packed_gpus


def on_part(problem: Problem, part: Part) -> Problem:
    """The problem on a part of its whole cluster."""
    cluster = packed_cluster(_whole(problem), part.group, part.gpus)
    return replace(problem, cluster=cluster, part=part)


def fixed_to(problem: Problem, part: Part) -> Problem:
    """The problem on a part, with its number of GPUs fixed in the scenario, too."""
    chosen = on_part(problem, part)
    cluster = {key: value for key, value in problem.asked["cluster"].items() if key != "use"}
    if "topology" in cluster:
        cluster["gpus"] = part.gpus
    else:
        cluster = {"preset": cluster["preset"], "domains": list(chosen.cluster.domains)}
    told = f"cluster: {part.gpus:,} of {_whole(problem).gpus:,} GPUs, as cluster.use leaves it open"
    return replace(
        chosen,
        gpus_open=False,
        asked={**problem.asked, "cluster": cluster},
        assumed=(told, *problem.assumed),
    )


def parts(problem: Problem) -> list[Part]:
    """All parts on which the degrees and the batch may leave a layout, most GPUs first.

    A number of GPUs is left out if no pipeline, tensor and context degree and no divisor of a
    batch multiply to it.
    """
    found: list[Part] = []
    for gpus in sorted(_counts(problem), reverse=True):
        found += parts_of(problem, gpus)
    return found


def parts_of(problem: Problem, gpus: int) -> list[Part]:
    """The parts with that many GPUs: of their groups none divides another.

    One, where all degrees are powers of two; none, if the cluster has fewer GPUs.
    """
    whole = _whole(problem)
    chosen: list[int] = []
    for group, packed in _packed(problem, whole):
        fits = gpus % group == 0 and gpus <= packed
        if fits and all(larger % group for larger in chosen):
            chosen.append(group)
    return [Part(gpus, group) for group in chosen]


def part_for(problem: Problem, degrees: Mapping[str, int]) -> Part | None:
    """The part for a layout of which some degrees are known, with ``gpus`` or without.

    Without ``gpus`` and ``dp`` the one with the most GPUs.  None, if there is none: the cluster
    has fewer, or the degrees suit no part.
    """
    tp, cp, pp, etp, ep = (max(1, degrees.get(n, 1)) for n in ("tp", "cp", "pp", "etp", "ep"))
    block, mesh, grid = lcm(tp, etp * ep), tp * cp * pp, etp * ep * pp
    gpus = degrees.get("gpus")
    if gpus is None and "dp" not in degrees:
        suited = (one for one in parts(problem) if not one.gpus % mesh and not one.gpus % grid)
        return next((one for one in suited if one.group % block == 0), None)
    gpus = mesh * degrees["dp"] if gpus is None else gpus
    if not 1 <= gpus <= _whole(problem).gpus:
        return None
    found = parts_of(problem, gpus)
    if gpus % block == 0 and gpus <= packed_gpus(_whole(problem).domains, block):
        found = [*(one for one in found if one.group % block == 0), Part(gpus, block)]
    return found[0]


def _whole(problem: Problem) -> Cluster:
    return problem.cluster if problem.whole is None else problem.whole


def _packed(problem: Problem, whole: Cluster) -> list[tuple[int, int]]:
    """Groups that a layout may want in one domain, the largest first, and what they pack."""
    largest = max(whole.domains)
    groups = {1}
    attention = _products(problem, ("tp", "cp"), largest)
    experts = _products(problem, ("etp", "ep"), largest)
    groups |= {lcm(one, other) for one, other in product(attention, experts)}
    sizes = sorted((group for group in groups if group <= largest), reverse=True)
    return [(group, packed_gpus(whole.domains, group)) for group in sizes]


def _products(problem: Problem, names: Iterable[str], most: int) -> set[int]:
    """Products of the values that these degrees may have, up to ``most``."""
    products = {1}
    for name in names:
        values = {int(value) for value in problem.domain(name)}
        products = {one * value for one in products for value in values if one * value <= most}
    return products


def _counts(problem: Problem) -> set[int]:
    most = _whole(problem).gpus
    meshes = _products(problem, ("tp", "cp", "pp"), most)
    replicas = set(_data_parallel(problem, most))
    return {mesh * dp for mesh in meshes for dp in replicas if mesh * dp <= most}


def _data_parallel(problem: Problem, most: int) -> Iterator[int]:
    """Data parallel degrees that divide some batch."""
    pinned = problem.pinned.get("dp")
    for batch in {int(size) for size in problem.domain("gbs")}:
        for one in range(1, isqrt(batch) + 1):
            for dp in (one, batch // one) if batch % one == 0 else ():
                if problem.limits.min_dp <= dp <= most and (pinned is None or dp in pinned):
                    yield dp


__all__ = ["Part", "fixed_to", "on_part", "part_for", "parts", "parts_of"]
