"""What the ranking of published layouts prints and writes."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict

from benchmarks.command_line import dumps
from benchmarks.compared_layouts import as_data
from benchmarks.compared_layouts import lines as lines_compared
from benchmarks.ranking import CHOICE, Standing

#: Losses that are shown in full, one of each scenario.
LARGEST = 10
#: Rows named for each reason to leave some out.
_NAMED = 3
#: Parts of the step whose difference is at least this share of the published step time, in percent.
_SHOWN = 1
_BANDS = (2, 5, 10, 20)


def line(one: Standing) -> str:
    """A published layout in one line."""
    rank = f"{one.rank[0]}" if one.rank[0] == one.rank[1] else "{}-{}".format(*one.rank)
    marks = ("?" if one.doubt else "") + ("!" if one.verdict == "overfull" or one.broken else "")
    more = f" and {len(one.ids) - 1} more" if len(one.ids) > 1 else ""
    name = _short(one.ids[0], 52 - len(more)) + more
    return (
        f"{name:52} {one.loss:6.1f}% {rank:>9} of {one.choices:<6}{marks:3}"
        f"{one.predicted:6.0f} {one.measured:6.0f}  {', '.join(one.differs) or 'nothing'}"
    )


def _short(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def report(standings: Sequence[Standing], left_out: Sequence[tuple[str, str]]) -> str:
    """All layouts by their loss, the largest ones in full, and sums."""
    ordered = sorted(standings, key=lambda one: -one.loss)
    lines = [
        f"{'published layout':52} {'loss':>7} {'rank':>9} of {'choices':9}model  published  "
        "differs from the optimum"
    ]
    lines += [line(one) for one in ordered]
    lines += [
        "",
        "loss: throughput below the optimum, by the model; rank among choices of "
        + ", ".join(CHOICE),
        "TFLOP/s of the published layout, by the model and published.",
        "?: settings of the row in doubt; !: does not fit by the model, or breaks a rule",
        *_largest(_largest_losses(ordered)),
        *_sums(standings),
        *_left_out(left_out),
        "",
        *lines_compared(),
    ]
    return "\n".join(lines)


def _largest_losses(ordered: Sequence[Standing]) -> list[Standing]:
    """The worst layout of each scenario, which its optimum tells, that loses anything."""
    worst: dict[tuple[str, float], Standing] = {}
    for one in ordered:
        if one.loss > 0:
            worst.setdefault((one.best_layout, one.best_step_s), one)
    return list(worst.values())[:LARGEST]


def _left_out(left_out: Sequence[tuple[str, str]]) -> list[str]:
    names: dict[str, list[str]] = defaultdict(list)
    for name, reason in left_out:
        names[reason].append(name)
    lines = ["", f"{len(left_out)} rows left out"] if left_out else []
    for reason, some in sorted(names.items(), key=lambda item: -len(item[1])):
        more = f" and {len(some) - _NAMED} more" if len(some) > _NAMED else ""
        lines.append(f"  {len(some):3} {reason}: {', '.join(some[:_NAMED])}{more}")
    return lines


def _largest(worst: Sequence[Standing]) -> list[str]:
    lines = ["", f"the {len(worst)} largest losses, one of each scenario, and where the time goes"]
    for one in worst:
        lines += [
            "",
            f"{one.ids[0]}: {one.loss:.1f} %" + (f" ({one.doubt})" if one.doubt else ""),
            f"  published {one.step_s:8.3f} s  {one.layout}",
            f"  optimum   {one.best_step_s:8.3f} s  {one.best_layout}",
        ]
        if one.own_best_step_s is not None and one.own_best_step_s < one.step_s:
            lines.append(f"  best with the published degrees {one.own_best_step_s:.3f} s")
        lines.append(f"  {_differing_parts(one)}")
        lines += [f"  does not fit by the model ({one.verdict})"] * (one.verdict == "overfull")
        lines += [f"  breaks {', '.join(one.broken)}"] * bool(one.broken)
    return lines


def _differing_parts(one: Standing) -> str:
    parts = {
        name: one.best_parts.get(name, 0.0) - one.parts.get(name, 0.0)
        for name in {**one.parts, **one.best_parts}
    }
    shown = sorted(parts, key=lambda name: -abs(parts[name]))
    return "; ".join(
        f"{name.replace('_', ' ')} {parts[name]:+.2f} s"
        for name in shown
        if abs(parts[name]) >= one.step_s * _SHOWN / 100
    )


def _sums(standings: Sequence[Standing]) -> list[str]:
    """How many lose how much, of all and of those whose settings are known."""
    lines = [""]
    sure = [one for one in standings if not one.doubt]
    for title, some in (("all", standings), ("settings not in doubt", sure)):
        losses = [one.loss for one in some]
        if not losses:
            continue
        counts = ", ".join(
            f"{sum(loss <= band for loss in losses)} within {band} %" for band in _BANDS
        )
        lines.append(
            f"{len(losses)} published layouts, {title}: loss median "
            f"{statistics.median(losses):.1f} %, mean {statistics.fmean(losses):.1f} %; {counts}"
        )
    return lines


def as_json(standings: Sequence[Standing], left_out: Sequence[tuple[str, str]]) -> str:
    """All layouts, by their loss."""
    rows = [
        {**asdict(one), "rank": list(one.rank), "loss_percent": one.loss}
        for one in sorted(standings, key=lambda one: -one.loss)
    ]
    return dumps(
        {
            "choice": list(CHOICE),
            "layouts": rows,
            "left_out": [{"id": name, "reason": reason} for name, reason in left_out],
            "compared": as_data(),
        }
    )
