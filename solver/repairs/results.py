"""What the search for repairs finds: changes that make a scenario feasible, and levers that do not.

These types know nothing of how they are found or shown.
"""

from __future__ import annotations

from dataclasses import dataclass

from meshplan.solver.results import Plan


@dataclass(frozen=True)
class Change:
    """One thing changed.

    Attributes
    ----------
    path
        Field of the scenario (``layout.ep``, ``cluster.gpus``), or figure of the nodes
        (``node_type.hbm_gib``, ``node_type.host_memory_gib``).
    before, after
        Its value as a scenario file writes it; None where the field is left open.
    text
        The change in words: ``layout.ep: 16 instead of 8``.
    """

    path: str
    before: object
    after: object
    text: str


@dataclass(frozen=True)
class Repair:
    """Changes with which some layout is possible.

    Attributes
    ----------
    lever
        Name of what is changed, those of a pair joined by ``+``: ``gpus``, ``layout.ep+gpus``.
    changes
        One for each lever; each is the smallest step of it that works (given the others).
    verified
        Whether the scenario with the changes was solved and has a plan.
    plan
        The plan that the changes buy; None where a limit came before there was one.
    """

    lever: str
    changes: tuple[Change, ...]
    verified: bool
    plan: Plan | None


@dataclass(frozen=True)
class NoHelp:
    """Levers that cannot help, each by itself, and why, in numbers.

    Attributes
    ----------
    lever
        What may be changed: fields of the scenario, or a figure of the nodes; several of one
        reason are joined by commas.
    """

    lever: str
    reason: str


__all__ = ["Change", "NoHelp", "Repair"]
