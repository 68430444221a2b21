"""The GPU of each rank: NVLink domains in an order that keeps stages together.

Ranks go through the domains one after the other (``tp-cp-ep-dp-pp``), so TP and EP groups lie in
the domains that their part of the cluster keeps whole for them.  What is left to choose is the
order of the leaves and domains.  It decides how many pipeline stages, whose ranks form the data
parallel rings, share a leaf or a domain with another stage.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import accumulate, groupby, islice
from math import gcd

from meshplan.constraints.groups import DEFAULT_ORDER
from meshplan.constraints.layout import Layout
from meshplan.constraints.problem import Problem
from meshplan.scenarios.errors import InputError
from meshplan.solver.placement.borders import Grouping, grouped
from meshplan.solver.placement.groups import group_strides
from meshplan.topologies import Cluster
from meshplan.topologies.packing import packed_sizes


@dataclass(frozen=True)
class PlacedDomain:
    """An NVLink domain with the ranks that it holds.

    Attributes
    ----------
    index, leaf
        Its place in the cluster, from 0, and that of its leaf switch, which is assumed where no
        file says.
    gpus, used
        GPUs that it has, and that hold a rank.
    first_rank
        Lowest of its ranks, which are consecutive.
    nodes
        Names of the nodes that hold a rank, in rank order; empty where they are not known.
    """

    index: int
    leaf: int
    gpus: int
    used: int
    first_rank: int
    nodes: tuple[str, ...] = ()

    @property
    def ranks(self) -> range:
        """Its ranks."""
        return range(self.first_rank, self.first_rank + self.used)


@dataclass(frozen=True)
class Borders:
    """Stage borders that fall on a border of leaves, or of domains.

    Attributes
    ----------
    stages
        Borders between two stages.
    at_borders, bound
        How many of them fall on one, and what no order of the leaves or domains beats.
    """

    stages: int
    at_borders: int
    bound: int


@dataclass(frozen=True)
class Spot:
    """Where one rank lies: its domain, its node there from 0, its GPU there from 0."""

    domain: PlacedDomain
    node: int
    gpu: int


@dataclass(frozen=True)
class Placement:
    """Each rank's GPU.

    Attributes
    ----------
    domains
        Domains that hold ranks, in rank order.
    idle
        Domains that hold none: index, GPUs.
    domain_borders, leaf_borders
        Stage borders that fall on borders of domains and of leaves.
    leaves_known
        Whether a file says which leaf a node is under; else so many nodes are assumed to share one.
    order
        Which ranks follow each other, as Megatron-LM names it.
    """

    problem: Problem
    layout: Layout
    domains: tuple[PlacedDomain, ...]
    idle: tuple[tuple[int, int], ...]
    domain_borders: Borders
    leaf_borders: Borders
    leaves_known: bool
    order: str = DEFAULT_ORDER

    @cached_property
    def cluster(self) -> Cluster:
        """The used GPUs, their domains in rank order."""
        return placed_cluster(self.problem.cluster, self.domains)

    @property
    def stage_gpus(self) -> int:
        """Ranks of one pipeline stage."""
        return self.layout.gpus // self.layout.pp

    @cached_property
    def _first_ranks(self) -> list[int]:
        return [domain.first_rank for domain in self.domains]

    def spot(self, rank: int) -> Spot:
        """Where a rank lies.

        Raises
        ------
        IndexError
            If no GPU has that rank.
        """
        if not 0 <= rank < self.layout.gpus:
            raise IndexError(f"rank {rank} is not one of the ranks 0 to {self.layout.gpus - 1}")
        domain = self.domains[bisect_right(self._first_ranks, rank) - 1]
        return Spot(domain, *divmod(rank - domain.first_rank, self._node_gpus))

    @property
    def _node_gpus(self) -> int:
        return self.problem.node_type.gpus_per_node

    def stages_of(self, domain: PlacedDomain) -> range:
        """Pipeline stages that a domain holds ranks of."""
        first, last = (rank // self.stage_gpus for rank in (domain.ranks[0], domain.ranks[-1]))
        return range(first, last + 1)

    @property
    def rails_aligned(self) -> bool:
        """Whether every rank has the GPU of its node that its number says, modulo the node.

        Then peers of data parallel rings and of the pipeline are on the same rail.
        """
        return all(domain.used % self._node_gpus == 0 for domain in self.domains[:-1])

    @property
    def segment_nodes(self) -> int:
        """Nodes of which every domain holds whole multiples: Slurm's ``--segment``.

        1, where a domain holds a part of a node.
        """
        common = gcd(*(domain.used for domain in self.domains))
        return common // self._node_gpus if common % self._node_gpus == 0 else 1

    def nodes(self) -> Iterator[tuple[str, int]]:
        """Name and number of ranks of each node, in rank order.

        Raises
        ------
        InputError
            If the nodes have no names.
        """
        for domain in self.domains:
            if not domain.nodes:
                raise InputError(
                    f"the nodes of {self.problem.cluster.name} have no names",
                    advice="give the cluster as a topology file: cluster: {topology: FILE}.",
                )
            left = domain.used
            for name in domain.nodes:
                yield name, min(left, self._node_gpus)
                left -= self._node_gpus


@lru_cache(maxsize=64)
def place(problem: Problem, layout: Layout) -> Placement:
    """Place the ranks of a layout that takes all GPUs of ``problem.cluster``.

    The order of the leaves and domains is changed only if no group of the layout crosses wider
    links for it, or leaves its domain.

    Raises
    ------
    InputError
        If it takes another number of GPUs.
    """
    if layout.gpus != problem.gpus:
        raise InputError(
            f"the layout takes {layout.gpus:,} GPUs, but the cluster has {problem.gpus:,}",
            advice="place a layout that uses all GPUs of its cluster.",
        )
    whole = problem.cluster if problem.whole is None else problem.whole
    part = problem.part
    sizes = list(whole.domains) if part is None else packed_sizes(whole, part.group, part.gpus)
    leaves, stage = _used_leaves(whole, sizes), layout.gpus // layout.pp
    by_leaf = grouped([sum(sizes[index] for index in leaf) for leaf in leaves], stage)
    by_domain = by_leaf
    if any(len(leaf) > 1 for leaf in leaves):
        by_domain = grouped([size for size in sizes if size], stage)
    order = [index for leaf in by_leaf.order for index in _within(sizes, leaves[leaf], stage)]
    domains = tuple(_placed(whole, sizes, order))
    if _worse(problem.cluster, placed_cluster(problem.cluster, domains), layout):
        domains = tuple(_placed(whole, sizes, sorted(order)))
    firsts = {domain.first_rank for domain in domains}
    leaf_firsts = {
        one.first_rank
        for before, one in zip((None, *domains), domains, strict=False)
        if before is None or before.leaf != one.leaf
    }
    return Placement(
        problem,
        layout,
        domains,
        tuple((index, gpus) for index, gpus in enumerate(whole.domains) if not sizes[index]),
        _borders(firsts, stage, layout.pp, by_domain),
        _borders(leaf_firsts, stage, layout.pp, by_leaf),
        leaves_known=bool(whole.leaf_domains),
    )


def placed_cluster(cluster: Cluster, domains: Sequence[PlacedDomain]) -> Cluster:
    """``cluster`` with its domains in rank order."""
    leaves = [sum(1 for _ in same) for _, same in groupby(domains, key=lambda one: one.leaf)]
    return replace(
        cluster,
        domains=tuple(domain.used for domain in domains),
        leaf_domains=tuple(leaves),
        node_names=tuple(name for domain in domains for name in domain.nodes),
    )


def _worse(before: Cluster, after: Cluster, layout: Layout) -> bool:
    """Whether some kind of group crosses wider links, or leaves its domain more often."""
    return any(
        after.group_tier(size, stride) > before.group_tier(size, stride)
        or after.ranks_per_domain(size, stride) < before.ranks_per_domain(size, stride)
        or after.groups_inside(size, stride) < before.groups_inside(size, stride)
        for size, stride in group_strides(layout).values()
    )


def _within(sizes: Sequence[int], leaf: Sequence[int], stage: int) -> list[int]:
    """The domains of a leaf, those first that hold whole stages."""
    return sorted(leaf, key=lambda index: (sizes[index] % stage != 0, index))


def _used_leaves(whole: Cluster, sizes: Sequence[int]) -> list[list[int]]:
    """Domains that hold ranks, leaf by leaf; each by itself where no file says more."""
    counts = whole.leaf_domains or (1,) * len(whole.domains)
    indices = iter(range(len(sizes)))
    leaves = [[index for index in islice(indices, count) if sizes[index]] for count in counts]
    return [leaf for leaf in leaves if leaf]


def _placed(whole: Cluster, sizes: Sequence[int], order: Sequence[int]) -> Iterator[PlacedDomain]:
    per_node = whole.node_type.gpus_per_node
    ends = list(accumulate(-(-gpus // per_node) for gpus in whole.domains))
    leaf_ends = list(accumulate(whole.domains_of_leaves))
    rank = 0
    for index in order:
        first = ends[index] - -(-whole.domains[index] // per_node)
        names = whole.node_names[first : first + -(-sizes[index] // per_node)]
        leaf = bisect_right(leaf_ends, index)
        yield PlacedDomain(index, leaf, whole.domains[index], sizes[index], rank, names)
        rank += sizes[index]


def _borders(firsts: set[int], stage: int, stages: int, grouping: Grouping) -> Borders:
    at_borders = sum(1 for border in range(1, stages) if border * stage in firsts)
    return Borders(stages - 1, at_borders, min(stages, grouping.bound) - 1)


__all__ = ["Borders", "PlacedDomain", "Placement", "Spot", "place", "placed_cluster"]
