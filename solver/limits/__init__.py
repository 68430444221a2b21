"""Limits of the feasible: how far one field of a scenario can go, all else as it is.

==============  ====================================================================
``results``     the types: :class:`Limit` and :class:`LimitsReport`
``search``      :func:`~meshplan.solver.limits.search.limits`: one after the other
``quantities``  each quantity: which values are asked about, and what is proved
==============  ====================================================================
"""

from meshplan.solver.limits.results import Limit, LimitsReport

__all__ = ["Limit", "LimitsReport"]
