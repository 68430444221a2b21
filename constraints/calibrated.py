"""How far a question lies outside the runs that its calibration was fitted to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from meshplan.constraints.problem import Problem

#: A sequence so many times longer or shorter than any of the runs, and so many times more or fewer
#: GPUs, is far outside: what a formula does there, no run has held it to.
_FAR_LENGTH, _FAR_GPUS = 2, 4


@dataclass(frozen=True)
class Beyond:
    """One way in which a question lies far outside the runs of its calibration.

    Attributes
    ----------
    what
        ``seq_len``, ``gpus``, ``precision``, ``gpu_type`` or ``layers`` (a kind of layer).
    value
        What the question has; of kinds of layers all that no run had.
    seen
        What the runs had: least and most, or all of them.
    """

    what: str
    value: int | str
    seen: tuple[int | str, ...]

    def __str__(self) -> str:
        shown = [f"{one:,}" if isinstance(one, int) else one for one in self.seen]
        had = ", ".join(shown)
        if isinstance(self.value, int):
            had = shown[0] if len(set(shown)) == 1 else " to ".join(shown)
            return f"{self.what} {self.value:,}, where its runs had {had}"
        return f"{self.what} {self.value}, where its runs had {had}"

    def to_json(self) -> dict[str, Any]:
        """The three as plain data."""
        return {"what": self.what, "value": self.value, "seen": list(self.seen)}


def beyond_calibration(problem: Problem) -> tuple[Beyond, ...]:
    """In what a question lies far outside the runs of its calibration.

    Nothing if the calibration does not say what its runs covered, as the default does not.
    """
    return tuple(_beyond(problem))


def _beyond(problem: Problem) -> Iterator[Beyond]:
    covers = problem.calibration.covers
    if covers is None:
        return
    ranges = (
        ("seq_len", problem.seq_len, covers.seq_len, _FAR_LENGTH),
        ("gpus", problem.gpus, covers.gpus, _FAR_GPUS),
    )
    for what, number, (least, most), factor in ranges:
        if number > factor * most or number * factor < least:
            yield Beyond(what, number, (least, most))
    sets = (
        ("precision", (problem.precision,), covers.precisions),
        ("gpu_type", (problem.node_type.gpu,), covers.gpu_types),
        ("layers", tuple(map(str, problem.cost_kinds)), covers.layers),
    )
    for what, words, seen in sets:
        other = dict.fromkeys(word for word in words if word not in seen)
        if other:
            yield Beyond(what, ", ".join(other), seen)


__all__ = ["Beyond", "beyond_calibration"]
