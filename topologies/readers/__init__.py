"""Readers of the topology files that people have: text in, what it says out, or one refusal.

====================  ===========================================================
``detect``            which reader a text is for: :func:`read_topology_text`
``slurm_conf``        Slurm ``topology.conf``
``slurm_records``     blocks and trees, checked the same way in both formats
``slurm_yaml``        Slurm ``topology.yaml``
``hostlist``          ``gpu[01-16]`` and back
``node_labels``       ``kubectl get nodes -o json``
``fabric_ids``        UUID and clique of nodes or GPUs, as lines
``smi_topo``          ``nvidia-smi topo -m``
``smi_xml``           ``nvidia-smi -q -x``
``nccl_xml``          topology files and dumps of NCCL
``node_graph``        what the readers of a node's inside share
``ibnetdiscover``     leaves and uplinks of an InfiniBand network
``yaml_values``       YAML with lines, bounded
``xml_elements``      XML with lines, bounded, without entities
====================  ===========================================================
"""
