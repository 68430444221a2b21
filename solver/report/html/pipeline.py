"""Section on the pipeline: what each slot holds and takes, and when the first passes run."""

from __future__ import annotations

from typing import Any

from meshplan.solver.report.html.content import Drawing, Section, Table, table
from meshplan.solver.report.words import seconds
from meshplan.solver.time.timeline import Pass, timeline

#: A figure of the schedule has at most so many ranks and bars; passes beyond are not computed.
_MOST_RANKS, _MOST_BARS, _MOST_PASSES = 16, 1200, 40_000
#: How much longer than a forward pass a backward pass is drawn: twice the FLOPs, and the forward
#: pass once more under full recompute.  The time model gives the sum of both.
_BACKWARD, _BACKWARD_FULL = 2.0, 3.0


def pipeline_section(data: dict[str, Any]) -> Section:
    """Work of each slot, and the beginning of the schedule."""
    return Section(
        "pipeline",
        "Pipeline",
        f"Layout string: {data['pipeline']['layout']}",
        drawings=(_slot_drawing(data), _schedule_drawing(data)),
        tables=(_slot_table(data), _rank_table(data)),
    )


def _holds(slot: dict[str, Any]) -> str:
    """What a slot holds, in Megatron's letters: ``E t*3``."""
    layers = slot["layers"]
    parts = ["E"] if slot["embedding"] else []
    if layers:
        parts.append("t" if layers == 1 else f"t*{layers}")
    parts += ["m"] * slot["mtp"] + ["L"] * slot["loss"]
    return " ".join(parts) or "–"


def _slot_drawing(data: dict[str, Any]) -> Drawing:
    edges = dict.fromkeys(range(data["layout"]["pp"]), 0.0)
    drawn = []
    pipeline = data["pipeline"]
    for slot, time_s in zip(pipeline["slots"], pipeline["slot_s"], strict=True):
        rank, chunk = slot["rank"], slot["chunk"]
        start = edges[rank]
        edges[rank] += time_s
        drawn.append(
            {
                "rank": rank,
                "chunk": chunk,
                "holds": _holds(slot),
                "seconds": time_s,
                "start": round(start, 6),
                "end": round(edges[rank], 6),
                "color": f"var(--s{1 + chunk % 2})",
            }
        )
    label = (
        "Work of each pipeline rank for one micro-batch, forward and backward, slot by slot; the "
        "slowest slot of each chunk sets the pace. E embedding, t layer, m multi-token "
        "prediction, L loss."
    )
    return Drawing("slots", label, drawn)


def _slot_table(data: dict[str, Any]) -> Table:
    """One row a slot; runs of slots that hold and take the same share one."""
    pipeline = data["pipeline"]
    runs: list[tuple[dict[str, Any], dict[str, Any], str, float]] = []
    for slot, time_s in zip(pipeline["slots"], pipeline["slot_s"], strict=True):
        holds = _holds(slot)
        if runs and runs[-1][2:] == (holds, time_s):
            runs[-1] = (runs[-1][0], slot, holds, time_s)
        else:
            runs.append((slot, slot, holds, time_s))
    rows = []
    for first, last, holds, time_s in runs:
        names = [f"rank {one['rank']}, chunk {one['chunk']}" for one in (first, last)]
        name = names[0] if first is last else f"{names[0]} to {names[1]}"
        rows.append((name, holds, seconds(time_s)))
    heads = ("slots, in the order of the layers", "hold", "time of one micro-batch")
    return table("What each pipeline slot holds and takes", heads, rows, (0, 1))


def _rank_table(data: dict[str, Any]) -> Table:
    """The beginning of the schedule, rank by rank."""
    passes, _ = _first_passes(data)
    ranks = range(data["layout"]["pp"])
    firsts: dict[tuple[int, bool], str] = {}
    for one in passes:
        firsts.setdefault((one.rank, one.forward), seconds(one.start_s))
    ahead = data["pipeline"]["warm_up"]
    rows = [
        (str(rank), *(firsts.get((rank, way), "–") for way in (True, False)), f"{ahead[rank]:,}")
        for rank in ranks
    ]
    heads = ("rank", "first forward pass", "first backward pass", "forward passes before it")
    return table("When each rank begins", heads, rows)


def _schedule_drawing(data: dict[str, Any]) -> Drawing:
    passes, most = _first_passes(data)
    layout = data["layout"]
    bars = _bars(passes, layout["pp"])
    horizon = passes[-1].start_s if len(passes) < most else max(one.end_s for one in passes)
    if len(bars) > _MOST_BARS:
        bars = bars[:_MOST_BARS]
        horizon = min(horizon, bars[-1]["start"])
    full = data["recompute"]["granularity"] == "full"
    factor = "three times" if full else "twice"
    kind = "interleaved 1F1B" if layout["vpp"] > 1 else "1F1B"
    label = (
        f"The first {seconds(horizon)} of the {kind} schedule, {layout['ga']:,} micro-batches a "
        f"step. Gaps are the bubble. A backward pass is drawn {factor} as long as its forward "
        "pass; the time model gives their sum."
    )
    if layout["pp"] > _MOST_RANKS:
        label += f" {_MOST_RANKS} of {layout['pp']} ranks are shown."
    for bar in bars:
        bar["end"] = min(bar["end"], round(horizon, 6))
    drawn = [bar for bar in bars if bar["start"] < horizon]
    return Drawing("schedule", label, drawn, (("s1", "forward"), ("s4", "backward")))


def _first_passes(data: dict[str, Any]) -> tuple[list[Pass], int]:
    """Passes until rank 0 is done with its first group of micro-batches, and how many there are."""
    layout, pipeline = data["layout"], data["pipeline"]
    backward = _BACKWARD_FULL if data["recompute"]["granularity"] == "full" else _BACKWARD
    forward_s = [time_s / (1 + backward) for time_s in pipeline["slot_s"]]
    backward_s = [time_s - part for time_s, part in zip(pipeline["slot_s"], forward_s, strict=True)]
    ga = layout["ga"]
    most = 2 * ga * len(forward_s)
    found = timeline(forward_s, backward_s, pipeline["warm_up"], ga, min(most, _MOST_PASSES))
    returned = 0
    for place, one in enumerate(found):
        returned += one.rank == 0 and one.chunk == 0 and not one.forward
        if returned == min(layout["pp"], ga):
            return found[: place + 1], most
    return found, most


def _bars(passes: list[Pass], pp: int) -> list[dict[str, Any]]:
    """A bar a pass; of many passes, one a run without a gap through the same slot."""
    step = max(1, -(-pp // _MOST_RANKS))
    shown = {*range(0, pp, step), pp - 1}
    found = [one for one in passes if one.rank in shown]
    runs: list[list[Pass]] = []
    if len(found) <= _MOST_BARS:
        runs = [[one] for one in found]
    else:
        last: dict[int, list[Pass]] = {}
        for one in found:
            run = last.get(one.rank)
            if run and _follows(one, run[-1]):
                run.append(one)
            else:
                last[one.rank] = [one]
                runs.append(last[one.rank])
    return [_bar(run) for run in runs]


def _follows(one: Pass, before: Pass) -> bool:
    same = (one.forward, one.chunk) == (before.forward, before.chunk)
    return same and abs(one.start_s - before.end_s) < 1e-9


def _bar(run: list[Pass]) -> dict[str, Any]:
    first, last = run[0], run[-1]
    number = str(first.micro_batch)
    if len(run) > 1:
        number += f"–{last.micro_batch}"
    return {
        "rank": first.rank,
        "chunk": first.chunk,
        "pass": "forward" if first.forward else "backward",
        "micro-batch": number,
        "start": round(first.start_s, 6),
        "end": round(last.end_s, 6),
        "color": "var(--s1)" if first.forward else "var(--s4)",
    }


__all__ = ["pipeline_section"]
