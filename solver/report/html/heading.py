"""Head of a page: the answer in words, the figures that matter most, and what was asked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from meshplan.solver.compare.diff import DiffReport
from meshplan.solver.compare.why import WhyReport
from meshplan.solver.diagnosis.result import Diagnosis
from meshplan.solver.report import diagnosis, diff, summary, why
from meshplan.solver.report.diagnosis_words import verdict_text
from meshplan.solver.report.words import seconds

if TYPE_CHECKING:
    from meshplan.solver.report.text import Result

#: Colour of a status, as in text, by what it says of the answer.
_TONES = {"green": "good", "cyan": "good", "yellow": "warn", "red": "bad"}


@dataclass(frozen=True)
class Heading:
    """What stands above all sections.

    Attributes
    ----------
    rows
        Groups of labels and figures.
    cards
        The figures that matter most: a word, the figure, a remark on it.
    tone
        ``good``, ``warn`` or ``bad``.
    """

    name: str
    description: str
    status: str
    tone: str
    verdict: str
    rows: tuple[tuple[tuple[str, str], ...], ...]
    cards: tuple[tuple[str, str, str], ...]


def heading(result: Result, data: dict[str, Any]) -> Heading:
    """The head of a page on ``result``, whose JSON is ``data``."""
    asked = data.get("scenario", {})
    if isinstance(result, WhyReport):
        verdict, rows, shown = why.verdict(data), why.rows(result, data), data["given"]
        asked = data["optimum"]["scenario"]
    elif isinstance(result, DiffReport):
        verdict, rows, shown = diff.verdict(data), diff.rows(result, data), None
    elif isinstance(result, Diagnosis):
        verdict, rows, shown = verdict_text(data), diagnosis.rows(result, data), data
    else:
        verdict, rows, shown = (
            summary.verdict(result.problem, data),
            summary.rows(result.problem, data),
            data,
        )
    return Heading(
        result.problem.name,
        str(asked.get("description") or ""),
        data["status"],
        _TONES[summary.STYLES[data["status"]]],
        verdict,
        tuple(_groups(rows)),
        tuple(_cards(shown)) if shown else (),
    )


def _groups(rows: Iterator[tuple[str, str]]) -> Iterator[tuple[tuple[str, str], ...]]:
    """Rows between gaps; a row without a label goes on with the one before it."""
    group: list[tuple[str, str]] = []
    for label, text in rows:
        if not label and not text:
            yield tuple(group)
            group = []
        elif not label and group:
            group[-1] = (group[-1][0], f"{group[-1][1]}; {text}")
        else:
            group.append((label, text))
    yield tuple(group)


def _cards(data: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    if data.get("time") is not None:
        time = data["time"]
        band = time["error_band"]
        trust = "not calibrated" if band is None else f"± {band:.0%}, an estimate"
        if data["status"] == "illegal":
            trust = "as if it were legal"
        yield "step time", seconds(time["step_s"]), trust
        yield "throughput", f"{time['tokens_per_s_per_gpu']:,.0f}", "tokens/s per GPU"
        yield "MFU", f"{time['mfu']:.1%}", f"of the {time['mfu_of']}"
    if data["memory"] is not None:
        memory = data["memory"]
        room = f"of {memory['capacity_gib']:.1f} GiB to use"
        yield "peak memory", f"{memory['peak_gib']:.1f} GiB", room
    if data["layout"] is not None:
        layout = data["layout"]
        size = f"gbs {layout['gbs']:,} on {layout['gpus']:,} GPUs"
        yield "data parallel", f"dp {layout['dp']}", size


__all__ = ["Heading", "heading"]
