"""What the comparison of the memory model with measured runs prints and writes."""

from __future__ import annotations

import csv
import io
import json
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass

from benchmarks import memory_words as words

#: Shares of rows within these errors, in percent, are printed.
WITHIN = (3, 5, 6)


@dataclass(frozen=True)
class Reading:
    """One measured figure next to the model's."""

    id: str
    kind: str
    measured_gib: float
    predicted_gib: float

    @property
    def error(self) -> float:
        """Error in percent; positive if the model says more than was measured."""
        return 100 * (self.predicted_gib / self.measured_gib - 1)


@dataclass(frozen=True)
class Row:
    """One row of a file: what the model says, or why it says nothing."""

    file: str
    line: int
    id: str
    source: str
    model: str
    hardware: str
    layout: str
    observed: str
    reason: str = ""
    rank: int | None = None
    event: str = ""
    peak_gib: float = 0.0
    capacity_gib: float = 0.0
    verdict: str = ""
    open_recompute: bool = False
    counts: bool = True
    readings: tuple[Reading, ...] = ()
    effects: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()


def _sources(row: Row) -> tuple[str, ...]:
    # Some constants of the memory model were fitted on SimuMax's figures.
    return (row.source,) if row.source == "SimuMax" else (row.source, "all but SimuMax")


def summary(errors: Sequence[float]) -> dict[str, float]:
    """Count, mean, median and largest absolute error in percent, and shares within limits."""
    if not errors:
        return {"n": 0}
    size = [abs(error) for error in errors]
    return {
        "n": len(errors),
        "mean": statistics.fmean(errors),
        "median": statistics.median(size),
        "max": max(size),
        **{f"within_{limit}": sum(e <= limit for e in size) / len(size) for limit in WITHIN},
    }


def _sums(title: str, groups: Iterable[tuple[str, list[float]]]) -> list[str]:
    head = "".join(f"{f'<={limit}%':>7}" for limit in WITHIN)
    lines = ["", f"{title:42}{'n':>4}{'mean':>8}{'median':>8}{'max':>7}{head}"]
    for name, errors in groups:
        if not errors:
            continue
        sums = summary(errors)
        shares = "".join(f"{100 * sums[f'within_{limit}']:6.0f}%" for limit in WITHIN)
        lines.append(
            f"{name:42}{sums['n']:4.0f}{sums['mean']:+8.2f}{sums['median']:8.2f}{sums['max']:7.2f}"
            + shares
        )
    return lines


def counted(rows: Sequence[Row], kind: str) -> list[tuple[Row, Reading]]:
    """Readings of a kind that count."""
    return [
        (row, reading)
        for row in rows
        for reading in row.readings
        if row.counts and reading.kind == kind
    ]


def confusion(rows: Sequence[Row]) -> dict[tuple[str, str], int]:
    """How many rows have each pair of observed and predicted verdict."""
    table: dict[tuple[str, str], int] = {}
    for row in rows:
        if row.counts and row.verdict and row.observed:
            pair = (row.observed, row.verdict)
            table[pair] = table.get(pair, 0) + 1
    return table


def report(rows: Sequence[Row]) -> str:
    """Rows with a figure, rows with a verdict alone, rows left out, and the sums."""
    lines = _figures(rows) + _verdicts(rows) + _reasons(rows)
    allocated = counted(rows, words.ALLOCATED)
    lines += _sums(
        "errors in percent, by kind of figure",
        ((kind, [r.error for _, r in counted(rows, kind)]) for kind in words.KINDS),
    )
    for title, names in (
        ("allocated, by source", _sources),
        ("allocated, by effect", lambda row: row.effects),
        ("allocated, by event of the peak", lambda row: (row.event,)),
    ):
        lines += _sums(title, _grouped(allocated, names))
    lines += _confusion("verdicts, all settings stated", [r for r in rows if not r.open_recompute])
    lines += _confusion("verdicts, recompute open", [r for r in rows if r.open_recompute])
    left = sum(bool(row.reason) for row in rows)
    lines += ["", f"{len(rows)} rows, {len(rows) - left} predicted, {left} left out"]
    return "\n".join(lines)


def _grouped(
    readings: Sequence[tuple[Row, Reading]], names: Callable[[Row], Iterable[str]]
) -> list[tuple[str, list[float]]]:
    groups: dict[str, list[float]] = {}
    for row, reading in readings:
        for name in names(row):
            groups.setdefault(name, []).append(reading.error)
    return sorted(groups.items())


def _figures(rows: Sequence[Row]) -> list[str]:
    columns = f"{'kind':20}{'rank':>4} {'event':14}{'model':>8}{'measured':>9}{'error':>8}  verdict"
    lines = [_HEAD + columns]
    for row in rows:
        for one in row.readings:
            again = "" if row.counts else " (as in another row)"
            lines.append(
                f"{_head(row)}{one.kind:20}{row.rank!s:>4} {row.event[:13]:14}"
                f"{one.predicted_gib:8.2f}{one.measured_gib:9.2f}{one.error:+7.1f}%  "
                f"{_verdict(row)}{again}"
            )
    return lines


def _verdicts(rows: Sequence[Row]) -> list[str]:
    chosen = [row for row in rows if not row.reason and not row.readings]
    lines = ["", f"{_HEAD}{'needs':>8}{'may use':>9}  verdict"]
    for row in chosen:
        free = " (recompute open)" if row.open_recompute else ""
        lines.append(
            f"{_head(row)}{row.peak_gib:8.1f}{row.capacity_gib:9.1f}  {_verdict(row)}{free}"
        )
    return lines if chosen else []


_HEAD = f"{'row':32}{'model':34}{'on':13}{'layout':44}"


def _head(row: Row) -> str:
    name = row.id if len(row.id) <= 31 else "…" + row.id[-30:]
    return f"{name:32}{row.model[:33]:34}{row.hardware[:12]:13}{row.layout[:43]:44}"


def _verdict(row: Row) -> str:
    if not row.observed:
        return row.verdict
    agrees = row.verdict == "tight" or (row.observed == "oom") == (row.verdict == "overfull")
    return f"{row.verdict}, observed {row.observed}" + ("" if agrees else " NO")


def _reasons(rows: Sequence[Row]) -> list[str]:
    left = [row for row in rows if row.reason]
    lines = ["", "left out"] if left else []
    lines += [f"{_head(row)[:66]}{row.reason}" for row in left]
    return lines


def _confusion(title: str, rows: Sequence[Row]) -> list[str]:
    table = confusion(rows)
    if not table:
        return []
    ours = ("fits", "tight", "overfull")
    lines = ["", f"{title:32}" + "".join(f"{name:>10}" for name in ours)]
    for observed in ("fits", "oom"):
        cells = "".join(f"{table.get((observed, name), 0):10}" for name in ours)
        lines.append(f"{'observed ' + observed:32}{cells}")
    return lines


def as_json(rows: Sequence[Row]) -> str:
    """All rows and the sums by kind of figure."""
    data = {
        "rows": [
            asdict(row) | {"readings": [asdict(one) | {"error": one.error} for one in row.readings]}
            for row in rows
        ],
        "summary": {
            kind: summary([one.error for _, one in counted(rows, kind)]) for kind in words.KINDS
        },
    }
    return json.dumps(data, indent=1) + "\n"


def as_csv(rows: Sequence[Row]) -> str:
    """One line a reading; a row without any has a line of its own."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(
        ("row_id", "model", "kind", "predicted_gib", "measured_gib", "error_percent",
         "peak_gib", "capacity_gib", "verdict", "observed", "reason")
    )  # fmt: skip
    for row in rows:
        tail = (f"{row.peak_gib:.3f}", f"{row.capacity_gib:.3f}", row.verdict, row.observed)
        for one in row.readings:
            figures = (f"{one.predicted_gib:.3f}", one.measured_gib, f"{one.error:.2f}")
            writer.writerow((row.id, row.model, one.kind, *figures, *tail, ""))
        if not row.readings:
            writer.writerow((row.id, row.model, "", "", "", "", *tail, row.reason))
    return stream.getvalue()
