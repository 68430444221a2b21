"""What a running search reports."""

from __future__ import annotations

from dataclasses import dataclass


class LimitReached(Exception):
    """The time limit passed before a program found or excluded anything."""


@dataclass(frozen=True)
class Progress:
    """State of a search at one moment.

    Attributes
    ----------
    elapsed_s
        Seconds since the search began.
    incumbent_s
        Step time of the best plan so far in seconds; None before the first.
    bound_s
        Step time in seconds that is proved to be the least possible; None before the first bound.
    gap
        Relative gap between the two; None while either is unknown.
    phase
        What is being chosen: throughput, data parallelism, memory, ties.
    """

    elapsed_s: float
    incumbent_s: float | None = None
    bound_s: float | None = None
    gap: float | None = None
    phase: str = "throughput"
