"""Words and numbers that the sections of a report share."""

from __future__ import annotations

from typing import Any

#: Events of a step at which a rank may peak, in a word or two.
EVENT_WORDS = {
    "backward": "backward",
    "loss": "loss",
    "update_dense": "optimizer",
    "update_expert": "optimizer",
}


def runs_of_ranks(stages: list[dict[str, Any]]) -> list[tuple[int, dict[str, Any]]]:
    """Runs of pipeline ranks that are equal but for their number: the first, and the last stage."""
    runs: list[tuple[int, dict[str, Any]]] = []
    for stage in stages:
        if runs and {**runs[-1][1], "rank": 0} == {**stage, "rank": 0}:
            runs[-1] = (runs[-1][0], stage)
        else:
            runs.append((stage["rank"], stage))
    return runs


def seconds(value: float) -> str:
    """A duration with three digits that count: ``583 s``, ``34.5 s``, ``0.214 s``, ``8.1 ms``."""
    if value >= 100:
        return f"{value:,.0f} s"
    if value >= 10:
        return f"{value:.1f} s"
    if value >= 0.1:
        return f"{value:.2f} s" if value >= 1 else f"{value:.3f} s"
    return f"{value * 1e3:.1f} ms"


def relative_time(plan: dict[str, Any], step_s: float, gbs: int) -> float:
    """Time of another step against the plan's, per sequence: -0.017 is 1.7 % less.

    Per sequence, since plans may differ in their batch; ``gbs`` is that of the other step.
    """
    plan_s: float = plan["time"]["step_s"] / plan["layout"]["gbs"]
    return step_s / gbs / plan_s - 1


def counted(number: int, noun: str) -> str:
    """``1 rule``, ``2 rules``, ``38.6 million rules``."""
    amount = f"{number / 1e6:.1f} million" if number >= 1_000_000 else f"{number:,}"
    return f"{amount} {noun}" + ("" if number == 1 else "s")


def recompute_text(data: dict[str, Any]) -> str:
    """Recompute in words: ``full``, ``none``, or the modules."""
    recompute = data["recompute"]
    if recompute["granularity"] == "full":
        return "full"
    return ", ".join(recompute["modules"]) or "none"


def offload_text(data: dict[str, Any]) -> str:
    """Where the optimizer state is."""
    share = data["optimizer_offload"]
    return f"{share:.0%} on the host" if share else "on the GPUs"


def short_layout(data: dict[str, Any]) -> str:
    """The degrees that tell layouts apart, in one line; those of 1 are left out.

    So are ``etp`` and ``edp`` where they say what ``tp``, ``cp`` and ``dp`` do, as in all dense
    models: there is no other grid of experts then.
    """
    layout = data["layout"]
    names = ["tp", "cp", "pp", "vpp", "dp", "ep", "etp", "edp", "mbs", "ga"]
    attention = (layout["tp"], 1, layout["dp"] * layout["cp"])
    if (layout["etp"], layout["ep"], layout["edp"]) == attention:
        names = [name for name in names if name not in ("etp", "edp")]
    return " ".join(f"{n}={layout[n]}" for n in names if layout[n] != 1) or "one GPU"
