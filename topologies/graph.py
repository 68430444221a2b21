"""The topology as an explicit networkx graph, for small clusters, tests and drawings.

What the solver asks is answered by :class:`~meshplan.topologies.cluster.Cluster` in arithmetic:
that is the compressed form of this graph, where neighbouring equal domains are one run and a
query looks at runs only.  The graph is the uncompressed form and the meaning of the arithmetic:
``cluster.tier(block)`` is the widest :func:`path_tier` over all groups that lie in aligned blocks
of that length.  Tests compare the two.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, TypeAlias

from meshplan.topologies.borders import Tier
from meshplan.topologies.cluster import Cluster
from meshplan.topologies.errors import ClusterError

if TYPE_CHECKING:
    import networkx

#: Largest cluster whose graph is built (about 150,000 vertices and 260,000 edges).
MAX_GRAPH_GPUS = 65_536

#: A vertex: its kind and its indices, such as ``("gpu", 17)`` or ``("leaf", group, rail)``.
Vertex: TypeAlias = tuple[str, int] | tuple[str, int, int]

#: Widest tier that a path through a vertex of this kind has.
_KIND_TIERS = {
    "gpu": Tier.LOCAL,
    "node": Tier.NODE,
    "nvlink_domain": Tier.DOMAIN,
    "rail": Tier.LEAF,
    "leaf": Tier.LEAF,
    "spine": Tier.SPINE,
}


def topology_graph(cluster: Cluster) -> networkx.Graph[Any]:
    """Build the graph of ``cluster``.

    Vertices (attribute ``kind``) and edges (attribute ``gbps``, GB/s per direction):

    - ``("gpu", rank)`` to ``("node", index)`` at NVLink rate: NVLink between the GPUs of a node;
    - ``("gpu", rank)`` to ``("nvlink_domain", index)`` at NVLink rate;
    - ``("gpu", rank)`` to ``("rail", node, k)``, NIC k of the node, at NIC rate;
    - ``("rail", node, k)`` to ``("leaf", group, k)`` at NIC rate: NIC k of all nodes of a leaf
      group meets one switch (a rail-optimised fabric);
    - ``("leaf", group, k)`` to ``("spine", 0)``, if there is more than one leaf group: the NIC
      rates below the leaf over the oversubscription.

    A node whose name is known has it as the attribute ``name``.  The one spine vertex stands
    for the whole spine layer.

    Raises
    ------
    ClusterError
        If the cluster has more than 65,536 GPUs.
    """
    if cluster.gpus > MAX_GRAPH_GPUS:
        raise ClusterError(
            f"gpus ({cluster.gpus}) exceeds {MAX_GRAPH_GPUS}, the most for an explicit graph.",
            advice="ask the cluster itself: tier() and blocks_inside() need no graph.",
        )
    import networkx

    kind = cluster.node_type
    graph: networkx.Graph[Any] = networkx.Graph(name=cluster.name)

    def add(*vertex: Any) -> Vertex:
        graph.add_node(vertex, kind=vertex[0])
        return vertex

    leaf_ends = _ends(cluster.leaves)
    rank = node_index = group = 0
    for domain_index, domain_end in enumerate(_ends(cluster.domains)):
        domain = add("nvlink_domain", domain_index)
        if rank >= leaf_ends[group]:
            group += 1
        while rank < domain_end:
            node = add("node", node_index)
            if cluster.node_names:
                graph.nodes[node]["name"] = cluster.node_names[node_index]
            for rail in range(min(kind.gpus_per_node, domain_end - rank)):
                gpu = add("gpu", rank)
                nic = add("rail", node_index, rail)
                leaf = add("leaf", group, rail)
                graph.add_edge(gpu, node, gbps=kind.nvlink_gbps)
                graph.add_edge(gpu, domain, gbps=kind.nvlink_gbps)
                graph.add_edge(gpu, nic, gbps=kind.nic_gbps)
                graph.add_edge(nic, leaf, gbps=kind.nic_gbps)
                rank += 1
            node_index += 1
    if len(leaf_ends) > 1:
        spine = add("spine", 0)
        for leaf in [vertex for vertex in graph if vertex[0] == "leaf"]:
            uplink = kind.nic_gbps * graph.degree(leaf) / cluster.oversubscription
            graph.add_edge(leaf, spine, gbps=uplink)
    return graph


def _ends(sizes: tuple[int, ...]) -> list[int]:
    ends: list[int] = []
    for size in sizes:
        ends.append(size + (ends[-1] if ends else 0))
    return ends


def path_tier(graph: networkx.Graph[Any], gpu_a: int, gpu_b: int) -> Tier:
    """Tier of the best path between two ranks: the narrowest that joins them.

    A path is as wide as the widest vertex on it; a path may hop over other GPUs of a node to reach
    another rail, as NCCL does.

    Raises
    ------
    ClusterError
        If a rank is not in the graph, or no path joins the two.
    """
    source: Vertex = ("gpu", gpu_a)
    target: Vertex = ("gpu", gpu_b)
    for vertex, rank in ((source, gpu_a), (target, gpu_b)):
        if vertex not in graph:
            raise ClusterError(f"rank ({rank}) is not a GPU of the graph.")
    seen: set[Vertex] = set()
    # Narrowest first; the insertion count keeps the heap from comparing vertices.
    frontier: list[tuple[Tier, int, Vertex]] = [(Tier.LOCAL, 0, source)]
    pushed = 0
    while frontier:
        tier, _, vertex = heappop(frontier)
        if vertex == target:
            return tier
        if vertex in seen:
            continue
        seen.add(vertex)
        for neighbour in graph[vertex]:
            if neighbour not in seen:
                pushed += 1
                wider = max(tier, _KIND_TIERS[neighbour[0]])
                heappush(frontier, (wider, pushed, neighbour))
    raise ClusterError(f"no path joins ranks {gpu_a} and {gpu_b}.")
