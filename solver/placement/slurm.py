"""What Slurm is asked for, so that each node gets the ranks that a placement gives it."""

from __future__ import annotations

from meshplan.topologies import Cluster


def node_sizes(cluster: Cluster) -> list[int]:
    """Ranks of each node, in rank order."""
    whole = cluster.node_type.gpus_per_node
    return [min(whole, gpus - first) for gpus in cluster.domains for first in range(0, gpus, whole)]


def task_options(cluster: Cluster) -> list[str]:
    """Options for nodes and tasks: the tasks of each node where all have as many, else of all.

    Nodes with unequal numbers need a host file (``--distribution=arbitrary``): no option gives each
    its own.
    """
    sizes = node_sizes(cluster)
    if len(set(sizes)) == 1:
        return [f"--nodes={len(sizes)}", f"--ntasks-per-node={sizes[0]}"]
    return [f"--nodes={len(sizes)}", f"--ntasks={sum(sizes)}"]


__all__ = ["node_sizes", "task_options"]
