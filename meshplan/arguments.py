"""Checks of the arguments that several functions of the Python API take."""

from __future__ import annotations

from meshplan.scenarios.errors import InputError


def check_limit(time_limit_s: float | None) -> None:
    """Refuse a limit that is no number of seconds."""
    if time_limit_s is not None and not 0 < time_limit_s < float("inf"):
        raise InputError(
            f"time_limit_s is {time_limit_s}, but must be a positive number of seconds",
            advice="leave it out for no limit.",
        )


def check_wanted(top: int, pareto_within: float | None) -> None:
    """Refuse a number of ranked tuples, or a width of the Pareto front, below zero."""
    if top < 0:
        raise InputError(f"top is {top}, but must be 0 or more", advice="leave it out for none.")
    if pareto_within is not None and not 0 <= pareto_within < float("inf"):
        raise InputError(
            f"pareto_within is {pareto_within}, but must be a fraction of 0 or more",
            advice="write 0.1 for plans up to 10 % slower than the fastest.",
        )


__all__ = ["check_limit", "check_wanted"]
