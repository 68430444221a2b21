"""Which files ``meshplan test`` runs, and what differs from what they expect."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from meshplan.scenarios import Expect
    from meshplan.solver.results import Infeasible, Plan, Unknown

#: A scenario says so at the start of a line; other YAML files in a folder are passed over.
_SCENARIO = re.compile(rb"^meshplan\s*:", re.MULTILINE)
#: Folders of model cards.
_SKIPPED = "models"
_MOST_BYTES = 1 << 20


@dataclass(frozen=True)
class Case:
    """Outcome of one scenario file.

    Attributes
    ----------
    outcome
        ``pass``, ``FAIL``, ``ERROR`` (the file cannot be used) or ``open`` (it expects nothing).
    seconds
        Wall time of reading and solving.
    wrong
        What differs from the expectation, or the error.
    answer
        The answer in a few words.
    """

    file: Path
    outcome: Literal["pass", "FAIL", "ERROR", "open"]
    seconds: float
    wrong: tuple[str, ...]
    answer: str


def scenario_files(paths: Iterable[str]) -> list[Path]:
    """Scenario files: those given, and those in the folders given, each once.

    Raises
    ------
    InputError
        If a path does not exist, or nothing is found at all.
    """
    from meshplan.scenarios.checks import shown
    from meshplan.scenarios.errors import InputError

    found: dict[Path, None] = {}
    for name in paths:
        path = Path(name)
        if path.is_dir():
            found |= dict.fromkeys(_in_folder(path))
        elif path.is_file():
            found[path] = None
        else:
            raise InputError(
                f"{shown(name)} is neither a file nor a folder", advice="check the path."
            )
    if not found:
        raise InputError(
            f"there is no scenario in {', '.join(shown(name) for name in paths)}",
            advice="a scenario is a .yaml file that starts with 'meshplan: 1'.",
        )
    return list(found)


def _in_folder(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*.yaml")):
        inside = path.relative_to(folder).parts[:-1]
        if _SKIPPED in inside or not path.is_file():
            continue
        with path.open("rb") as file:
            if _SCENARIO.search(file.read(_MOST_BYTES)):
                yield path


def mismatches(expect: Expect, result: Plan | Infeasible | Unknown) -> tuple[str, ...]:
    """What differs from the expectation, one sentence each.

    ``feasible`` is met by any plan, proved or not.
    """
    from meshplan.solver.results import Infeasible, Plan

    if not _status_met(expect.status, result.status):
        reasons = [c.text for c in result.conflicts] if isinstance(result, Infeasible) else []
        return (f"status: expected {expect.status}, got {result.status}", *reasons)
    if isinstance(result, Infeasible):
        return tuple(_conflict_mismatch(expect, result))
    return tuple(_plan_mismatches(expect, result)) if isinstance(result, Plan) else ()


def _status_met(expected: str, got: str) -> bool:
    return got == expected or (expected == "feasible" and got == "optimal")


def _conflict_mismatch(expect: Expect, result: Infeasible) -> Iterator[str]:
    if expect.conflict is None:
        return
    found = [set(conflict.rules) for conflict in result.conflicts]
    if set(expect.conflict) not in found:
        shown = "; ".join(f"[{', '.join(sorted(rules))}]" for rules in found) or "none"
        yield f"conflict: expected [{', '.join(sorted(expect.conflict))}], got {shown}"


def _plan_mismatches(expect: Expect, plan: Plan) -> Iterator[str]:
    layout = plan.layout
    for name, value in expect.layout.stated().items():
        got = getattr(layout, name)
        if got != value:
            yield f"layout.{name}: expected {value}, got {got}"
    if expect.recompute is not None:
        wanted = (expect.recompute,) if isinstance(expect.recompute, str) else expect.recompute
        modules = ("full",) if layout.recompute_full else layout.recompute or ("none",)
        if set(wanted) != set(modules):
            yield f"recompute: expected {', '.join(wanted)}, got {', '.join(modules)}"
    if expect.dispatcher is not None and expect.dispatcher != layout.dispatcher:
        yield f"dispatcher: expected {expect.dispatcher}, got {layout.dispatcher}"


def answer_text(result: Plan | Infeasible | Unknown) -> str:
    """The answer in a few words: status, and step time or the rules that clash."""
    from meshplan.solver.results import Infeasible, Plan

    if isinstance(result, Plan):
        return f"{result.status}, step {result.cost.time.step_us / 1e6:.4g} s"
    if isinstance(result, Infeasible):
        rules = next((", ".join(one.rules) for one in result.conflicts), "")
        return f"infeasible: {rules}" if rules else "infeasible"
    return "unknown"
