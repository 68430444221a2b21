"""Where a training run happens: GPU and node types, clusters, and which link a group crosses.

================  ==================================================================
``node_types``    GPU and node figures with their sources: :class:`NodeType`
``presets``       the cluster presets that a scenario may name: :class:`Preset`
``cluster``       NVLink domains and the solver's queries: :class:`Cluster`
``borders``       the run arithmetic behind the queries, and :class:`Tier`
``graph``         the same topology as an explicit networkx graph
``inventory``     what topology files say, before it becomes a cluster: :class:`Inventory`
``readers``       one reader for each format: ``read_topology_text``
``assembly``      a cluster from several files and a node type: :func:`assemble`
``grouping``      which nodes share an NVLink domain, and which a leaf switch
``findings``      what a person should know about that cluster
``packing``       GPUs that groups can use in unequal domains: :func:`packed_gpus`
``best_case``     a cluster that no part of a given one beats: :func:`best_case`
``cluster_file``  a cluster as a file that scenarios name
``errors``        :class:`ClusterError`, :class:`TopologyFileError`, :class:`UnknownName`
================  ==================================================================
"""

from meshplan.topologies.borders import Tier
from meshplan.topologies.cluster import MAX_GPUS, Cluster, build_cluster
from meshplan.topologies.errors import ClusterError, UnknownName
from meshplan.topologies.graph import MAX_GRAPH_GPUS, path_tier, topology_graph
from meshplan.topologies.node_types import NodeType, node_type, node_types
from meshplan.topologies.presets import Preset, presets

__all__ = [
    "MAX_GPUS",
    "MAX_GRAPH_GPUS",
    "Cluster",
    "ClusterError",
    "NodeType",
    "Preset",
    "Tier",
    "UnknownName",
    "build_cluster",
    "node_type",
    "node_types",
    "path_tier",
    "presets",
    "topology_graph",
]
