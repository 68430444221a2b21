"""A cluster that no part of a given one beats: what bounds over all of its parts are made of."""

from __future__ import annotations

from dataclasses import dataclass, fields

from meshplan.topologies.borders import Tier
from meshplan.topologies.cluster import Cluster


@dataclass(frozen=True, eq=False)
class BestCase(Cluster):
    """The cluster, but with every group placed as well as its largest domain and leaf allow.

    Each query answers for a group that starts where a domain does, so it is never worse than the
    same query on the cluster itself, or on any part of it whose domains are no larger.
    """

    def tier(self, block: int) -> Tier:
        """The narrowest tier that holds ``block`` GPUs anywhere in the cluster."""
        if block == 1:
            return Tier.LOCAL
        if block <= self.node_gpus:
            return Tier.NODE
        if block <= max(self.domains):
            return Tier.DOMAIN
        return Tier.LEAF if block <= max(self.leaves) else Tier.SPINE

    def group_tier(self, size: int, stride: int) -> Tier:
        """The narrowest tier that such a group can have: its members in adjacent GPUs."""
        return self.tier(size)

    def ranks_per_domain(self, size: int, stride: int) -> int:
        """Members of a group that the largest domain holds."""
        return min(size, -(-min(size * stride, max(self.domains)) // stride))

    def ranks_per_leaf(self, size: int, stride: int) -> int:
        """Members of a group that the largest leaf holds."""
        return min(size, -(-min(size * stride, max(self.leaves)) // stride))

    def ring_gbps(self, size: int, stride: int) -> float:
        """The link itself: the leaves may be so full that no ring is slowed."""
        tier = self.group_tier(size, stride)
        return self.link_gbps(tier) if tier < Tier.SPINE else self.node_type.nic_gbps


def best_case(cluster: Cluster) -> BestCase:
    """The best case of ``cluster``."""
    return BestCase(**{field.name: getattr(cluster, field.name) for field in fields(Cluster)})
