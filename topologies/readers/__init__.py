"""Readers of the topology files that people have: text in, what it says out, or one refusal.

====================  ===========================================================
``detect``            which reader a text is for: :func:`read_topology_text`
``slurm_conf``        Slurm ``topology.conf``
``slurm_records``     blocks and trees, checked the same way in both formats
``hostlist``          ``gpu[01-16]`` and back
====================  ===========================================================
"""
