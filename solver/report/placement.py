"""Where the groups of a layout lie: which links they cross, and how many NVLink domains."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from meshplan.constraints.layout import Layout
from meshplan.constraints.problem import Problem
from meshplan.solver.placement.groups import group_strides
from meshplan.solver.placement.place import PlacedDomain, Placement, place
from meshplan.topologies import Cluster, ClusterError
from meshplan.topologies.readers.hostlist import fold


def placement_data(problem: Problem, layout: Layout) -> dict[str, Any]:
    """Placement of each kind of group, or None where the cluster does not hold such groups.

    ``domains`` is the least number of NVLink domains that a group spans; ``inside`` of ``groups``
    groups lie in one domain.  ``link_gbps`` is the specified bandwidth of the slowest link that a
    group crosses, GB/s per GPU and direction, None for a group of one.
    """
    placed = _placement(problem, layout)
    cluster = problem.cluster if placed is None else placed.cluster
    strides = group_strides(layout)
    return {
        **{name: _group(cluster, size, step) for name, (size, step) in strides.items()},
        "ranks": None if placed is None else ranks_data(placed),
    }


def _placement(problem: Problem, layout: Layout) -> Placement | None:
    """Where each rank lies; None where the meshes do not cover the cluster."""
    grid = layout.etp * layout.ep * layout.edp * layout.pp
    return place(problem, layout) if layout.gpus == grid == problem.gpus else None


def ranks_data(placed: Placement) -> dict[str, Any]:
    """The order of the NVLink domains, and what is proved about it."""
    domain, leaf = placed.domain_borders, placed.leaf_borders
    return {
        "order": placed.order,
        "stage_gpus": placed.stage_gpus,
        "rails_aligned": placed.rails_aligned,
        "segment_nodes": placed.segment_nodes,
        "stage_borders": domain.stages,
        "at_domain_borders": domain.at_borders,
        "at_domain_borders_bound": domain.bound,
        "at_leaf_borders": leaf.at_borders if placed.leaves_known else None,
        "at_leaf_borders_bound": leaf.bound if placed.leaves_known else None,
        "domains": [_run_data(placed, run) for run in _runs(placed)],
    }


def _runs(placed: Placement) -> Iterator[list[PlacedDomain]]:
    """Runs of domains that follow each other in the cluster and are alike."""

    def kind(one: PlacedDomain) -> tuple[int | None, int, int]:
        return one.leaf if placed.leaves_known else None, one.gpus, one.used

    run: list[PlacedDomain] = []
    for one in placed.domains:
        if run and (kind(one) != kind(run[0]) or one.index != run[-1].index + 1):
            yield run
            run = []
        run.append(one)
    yield run


def _run_data(placed: Placement, run: Sequence[PlacedDomain]) -> dict[str, Any]:
    names = [name for one in run for name in one.nodes]
    return {
        "first_domain": run[0].index,
        "count": len(run),
        "leaf": run[0].leaf if placed.leaves_known else None,
        "gpus": run[0].gpus,
        "used": run[0].used,
        "first_rank": run[0].first_rank,
        "first_stage": placed.stages_of(run[0])[0],
        "last_stage": placed.stages_of(run[-1])[-1],
        "nodes": fold(names) if names else None,
    }


def _group(cluster: Cluster, size: int, stride: int) -> dict[str, Any] | None:
    try:
        inside, groups = cluster.groups_inside(size, stride)
    except ClusterError:
        return None
    tier = cluster.group_tier(size, stride)
    link = cluster.link_gbps(tier)
    return {
        "size": size,
        "stride": stride,
        "tier": tier.name.lower(),
        "domains": -(-size // cluster.ranks_per_domain(size, stride)),
        "groups": groups,
        "inside": inside,
        "link_gbps": round(link, 3) if math.isfinite(link) else None,
    }
