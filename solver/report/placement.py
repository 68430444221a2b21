"""Where the groups of a layout lie: which links they cross, and how many NVLink domains."""

from __future__ import annotations

import math
from typing import Any

from meshplan.constraints.layout import Layout
from meshplan.constraints.problem import Problem
from meshplan.topologies import ClusterError


def placement_data(problem: Problem, layout: Layout) -> dict[str, Any]:
    """Placement of each kind of group, or None where the cluster does not hold such groups.

    ``domains`` is the least number of NVLink domains that a group spans; ``inside`` of ``groups``
    groups lie in one domain.  ``link_gbps`` is the specified bandwidth of the slowest link that a
    group crosses, GB/s per GPU and direction, None for a group of one.
    """
    stride = max(1, problem.gpus // layout.pp)
    groups = {
        "tp": (layout.tp, 1),
        "cp": (layout.cp, layout.tp),
        "ep": (layout.ep, layout.etp),
        "dp_cp": (layout.dp * layout.cp, layout.tp),
        "edp": (layout.edp, layout.etp * layout.ep),
        "pp": (layout.pp, stride),
    }
    return {name: _group(problem, size, step) for name, (size, step) in groups.items()}


def _group(problem: Problem, size: int, stride: int) -> dict[str, Any] | None:
    cluster = problem.cluster
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
