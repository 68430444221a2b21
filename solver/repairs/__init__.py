"""Repairs: the smallest changes that make an infeasible scenario feasible, each verified.

==============  ==================================================================
``results``     the types: a change, a repair, a lever that does not help
``search``      :func:`repairs`: lever by lever, then pairs
``lever``       what a lever is; bisection and scanning of its steps
``pins``        pinned degrees: the nearest value; all pins at once
``settings``    options, limits and formats with a few values each
``workload``    the longest sequence, the nearest batch
``hardware``    more or fewer GPUs, larger ones, larger hosts
``reasons``     why a lever does not help, in numbers
``trials``      re-solves with fields changed, each done once
==============  ==================================================================

The search is not imported from here: reports read the types alone, and need no solver for it.
"""

from meshplan.solver.repairs.results import Change, NoHelp, Repair

__all__ = ["Change", "NoHelp", "Repair"]
