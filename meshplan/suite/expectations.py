"""What differs from the ``expect:`` of a scenario."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from meshplan.scenarios import Expect
    from meshplan.suite.answer import Answer


@dataclass(frozen=True)
class Mismatch:
    """One thing that came out otherwise than expected: its key below ``expect``, and a sentence."""

    path: tuple[str, ...]
    text: str


def mismatches(expect: Expect, answer: Answer) -> tuple[Mismatch, ...]:
    """What differs from the expectation, one sentence each.

    ``feasible`` is met by any plan, proved or not.
    """
    if not _status_met(expect.status, answer.status):
        text = f"status: expected {expect.status}, got {answer.status}"
        return (Mismatch(("status",), "\n".join((text, *answer.reasons))),)
    if answer.status == "infeasible":
        return tuple(_conflict_mismatch(expect, answer))
    return tuple(_plan_mismatches(expect, answer))


def _status_met(expected: str, got: str) -> bool:
    return got == expected or (expected == "feasible" and got == "optimal")


def _conflict_mismatch(expect: Expect, answer: Answer) -> Iterator[Mismatch]:
    if expect.conflict is None:
        return
    found = [set(rules) for rules in answer.conflicts]
    if set(expect.conflict) not in found:
        shown = "; ".join(f"[{', '.join(sorted(rules))}]" for rules in found) or "none"
        wanted = ", ".join(sorted(expect.conflict))
        yield Mismatch(("conflict",), f"conflict: expected [{wanted}], got {shown}")


def _plan_mismatches(expect: Expect, answer: Answer) -> Iterator[Mismatch]:
    for name, value in expect.layout.stated().items():
        got = answer.layout[name]
        if got != value:
            yield Mismatch(("layout", name), f"layout.{name}: expected {value}, got {got}")
    if expect.recompute is not None:
        wanted = (expect.recompute,) if isinstance(expect.recompute, str) else expect.recompute
        modules = answer.recompute or ("none",)
        if set(wanted) != set(modules):
            text = f"recompute: expected {', '.join(wanted)}, got {', '.join(modules)}"
            yield Mismatch(("recompute",), text)
    if expect.dispatcher is not None and expect.dispatcher != answer.dispatcher:
        text = f"dispatcher: expected {expect.dispatcher}, got {answer.dispatcher}"
        yield Mismatch(("dispatcher",), text)


__all__ = ["Mismatch", "mismatches"]
