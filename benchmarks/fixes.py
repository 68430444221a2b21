"""Remedies in prose, as user reports give them, against the repairs that meshplan finds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from meshplan.constraints.decisions import DEGREES
from meshplan.solver.repairs import Change, Repair

_NAME = r"(?:vpp|tp|cp|pp|etp|ep|dp|gbs|mbs|ga)"
_NAMES = rf"{_NAME}(?:\s*(?:,|or|/|and)\s*{_NAME})*"
#: ``EP 8->4``, ``TP in {1,2,4}``, ``EP 16 or 32``, ``CP 2-4``, ``TP <= 8``, ``DP, TP, PP -> 1``.
_DEGREE = re.compile(
    rf"\b({_NAMES})\b\s*(=|<=|->|to|in)?\s*\{{?(\d+(?:\s*(?:->|-|,|/|or)\s*\d+)*)", re.IGNORECASE
)
_COUNT = re.compile(r"(\d+(?:\s*(?:-|or|,)\s*\d+)*)\+?\s*(GPUs|nodes)\b")
#: Fields by words that name them without a number.
_WORDS = {
    r"recompute": "options.recompute",
    r"offload": "options.optimizer_offload",
    r"alltoall|hybridep": "options.dispatcher",
    r"explicit (?:split|layout)|give a split|first \d+ / last": "options.pipeline_layout",
    r"\|\(tt": "options.pipeline_layout",
    r"ring cp|p2p": "layout.cp_comm",
    r"replicat": "framework.version",
    r"segment": "cluster.domains",
    r"bf16 moments": "training.moment_dtype",
    r"graphs": "options.cuda_graphs",
}


@dataclass
class Fix:
    """What a remedy changes: by field the values that it names; any where it names none."""

    fields: dict[str, set[int]] = field(default_factory=dict)
    at_most: set[str] = field(default_factory=set)

    def add(self, path: str, values: Sequence[int] = ()) -> None:
        """Note a field and values of it."""
        self.fields.setdefault(path, set()).update(values)


def read_fix(text: str, gpus_per_node: int) -> Fix:
    """The fields and numbers that a remedy names."""
    fix = Fix()
    for names, sign, numbers in _DEGREE.findall(text):
        values = _numbers(numbers)
        for name in re.findall(_NAME, names, re.IGNORECASE):
            path = _path(name.lower())
            fix.add(path, values)
            if sign == "<=":
                fix.at_most.add(path)
    for numbers, unit in _COUNT.findall(text):
        per = gpus_per_node if unit == "nodes" else 1
        fix.add("gpus", [per * number for number in _numbers(numbers)])
    for pattern, path in _WORDS.items():
        if re.search(pattern, text, re.IGNORECASE):
            fix.add(path)
    return fix


def _path(name: str) -> str:
    return "workload.global_batch_size" if name == "gbs" else f"layout.{name}"


def _numbers(text: str) -> list[int]:
    """All numbers of a list, those of a range included, and of an arrow the last."""
    found: list[int] = []
    for part in re.split(r",|/|\bor\b", text):
        ends = [int(number) for number in re.findall(r"\d+", part)]
        if "->" in part:
            found.append(ends[-1])
        else:
            found += range(ends[0], ends[-1] + 1)
    return found


def reached(fix: Fix, repairs: Sequence[Repair]) -> bool:
    """Whether one of the repairs is what a remedy names, or a smaller change of the same fields.

    Other degrees may come with another number of GPUs, and all degrees are as good as those named
    if the plan has one of these.
    """
    return any(_is_reached(fix, repair) for repair in repairs)


def _is_reached(fix: Fix, repair: Repair) -> bool:
    within = [_within(fix, change) for change in repair.changes]
    if all(within):
        return True
    others = [change for change, good in zip(repair.changes, within, strict=True) if not good]
    only_degrees = all(change.path.partition(".")[0] == "layout" for change in others)
    gpus = any(_is_gpus(fix, change) for change in repair.changes if change not in others)
    return only_degrees and (gpus or (len(others) < len(within) and _has_named(fix, repair)))


def _has_named(fix: Fix, repair: Repair) -> bool:
    """Whether the plan of a repair has a degree that the remedy names."""
    plan = repair.plan
    named = {path.partition(".")[2]: values for path, values in fix.fields.items() if values}
    return plan is not None and any(
        plan.layout.value(name) in values for name, values in named.items() if name in DEGREES
    )


def _is_gpus(fix: Fix, change: Change) -> bool:
    """Whether a change is one of the number of GPUs."""
    if change.path == "cluster.domains":
        return change.path not in fix.fields
    return change.path in ("cluster.gpus", "cluster.nodes")


def _within(fix: Fix, change: Change) -> bool:
    before, after = _size(change.before), _size(change.after)
    path = "gpus" if _is_gpus(fix, change) else change.path
    if path.startswith("training."):
        path = "training.moment_dtype"
    if path not in fix.fields:
        return False
    values = fix.fields[path]
    if not values or after is None or after in values:
        return True
    if path in fix.at_most and after <= max(values):
        return True
    if before is None:
        return False
    return any(min(before, value) < after < max(before, value) for value in values)


def _size(value: object) -> int | None:
    if isinstance(value, list):
        return sum(value) if all(isinstance(one, int) for one in value) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


__all__ = ["Fix", "reached", "read_fix"]
