"""Repairs: the smallest changes that make an infeasible scenario feasible, each verified.

==============  ==================================================================
``results``     the types: a change, a repair, a lever that does not help
==============  ==================================================================
"""

from meshplan.solver.repairs.results import Change, NoHelp, Repair

__all__ = ["Change", "NoHelp", "Repair"]
