"""First section of a report: what came out, the layout, throughput and memory in a few lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from meshplan.constraints.memory.verdict import Verdict, verdict_of
from meshplan.constraints.problem import Problem
from meshplan.solver.report.cluster import used_rows
from meshplan.solver.report.words import (
    counted,
    offload_text,
    recompute_text,
    relative_time,
    seconds,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

#: Colour of the frame and the first line, by status.
STYLES = {
    "optimal": "green",
    "possible": "green",
    "ok": "green",
    "compared": "cyan",
    "placed": "green",
    "tie": "green",
    "slower": "yellow",
    "faster": "cyan",
    "feasible": "yellow",
    "unknown": "yellow",
    "overfull": "red",
    "illegal": "red",
    "infeasible": "red",
}
#: Who stopped a search, in words.
_STOPPED = {"limit": "a limit", "interrupt": "you"}
#: Memory verdicts in words, of a layout that could run and of one that does not.
_MEMORY = {"fits": "fits", "tight": "tight: test it before you trust it", "overfull": "overfull"}
_IF_SO = {"fits": "would fit", "tight": "would be tight", "overfull": "would not fit"}


def summary(problem: Problem, data: dict[str, Any]) -> RenderableType:
    """Panel with the answer in words and the figures that matter most."""
    return panel(problem.name, data["status"], verdict(problem, data), rows(problem, data))


def panel(
    name: str, status: str, answer: str, figures: Iterable[tuple[str, str]]
) -> RenderableType:
    """A frame in the colour of the status: the answer, and below it labelled figures."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    style = STYLES[status]
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for label, text in figures:
        table.add_row(label, Text(text))
    return Panel(
        Group(Padding(Text(answer, style=f"bold {style}"), (0, 0, 1, 0)), table),
        title=Text(name, style="bold"),
        title_align="left",
        border_style=style,
    )


def verdict(problem: Problem, data: dict[str, Any]) -> str:
    """The answer in a sentence or three."""
    status: str = data["status"]
    if status == "ok":
        return _fit_text(data["memory"])
    if status == "illegal":
        return f"Illegal: this layout breaks {counted(len(data['violations']), 'rule')}."
    if status == "overfull":
        text = f"Overfull: this layout is legal, but {too_much(data['memory'])}."
        if "levers" in data["memory"]:
            return text
        return (
            f"{text} `meshplan memory` shows what single changes would save, "
            "`meshplan diagnose` what would suffice."
        )
    proof: dict[str, Any] = data["proof"]
    took = seconds(proof["wall_s"])
    if status == "infeasible":
        return f"Infeasible: proved in {took} that no layout obeys all rules, pins and limits."
    if status == "unknown":
        return (
            f"Unknown: {_STOPPED[proof['stopped_by']]} stopped the search after {took}, before any "
            "plan was found. " + _bound_text(proof)
        )
    if status == "feasible":
        return (
            f"Feasible, not proved optimal: the best plan when {_STOPPED[proof['stopped_by']]} "
            f"stopped the search after {took}. {_bound_text(proof)}"
        )
    cells = f", over {counted(proof['cells'], 'combination')}" if proof["cells"] else ""
    return f"Optimal: proved in {took}{cells}. " + _optimum_text(problem, data)


def _bound_text(proof: dict[str, Any]) -> str:
    if not proof["bound"]:
        return "Nothing is proved yet."
    text = f"No step can take less than {seconds(proof['bound'])}"
    return (
        f"{text}: at most {proof['gap']:.1%} to gain." if proof["gap"] is not None else f"{text}."
    )


def _optimum_text(problem: Problem, data: dict[str, Any]) -> str:
    """What is optimal about a proved plan."""
    sizes = [int(v) for v in problem.candidates.get("gbs", ())] or [data["layout"]["gbs"]]
    # Per sequence and against this plan, as the list of alternatives has it.
    less = -relative_time(data, data["proof"]["objective"], max(sizes))
    if less < 5e-4:
        return "No layout is faster in this cost model."
    fastest = [other for other in data["alternatives"] or () if other["note"] == "fastest"]
    same = bool(fastest) and fastest[0]["layout"]["dp"] == data["layout"]["dp"]
    merit = "less memory at the same DP" if same else "more DP, then less memory"
    return (
        f"The fastest layout takes {less:.1%} less time; this one is preferred within "
        f"dp_tolerance = {problem.limits.dp_tolerance:.1%} for {merit}."
    )


def question_rows(problem: Problem) -> Iterator[tuple[str, str]]:
    """What was asked: model, workload and cluster."""
    model = problem.model
    yield "model", f"{model.title or model.name}, {problem.seq_len:,} tokens, {problem.precision}"
    yield "cluster", _cluster_text(problem)


def rows(problem: Problem, data: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Question, layout, throughput and memory: labels and figures; an empty pair is a gap."""
    model = problem.model
    yield from question_rows(problem)
    yield from used_rows(problem, data)
    if data["layout"] is None:
        return
    layout = data["layout"]
    yield "", ""
    yield (
        "attention",
        (
            f"tp {layout['tp']} × cp {layout['cp']} × dp {layout['dp']} × pp {layout['pp']}"
            f" = {layout['gpus']:,} GPUs" + (f", vpp {layout['vpp']}" if layout["vpp"] > 1 else "")
        ),
    )
    if model.is_moe:
        product = layout["etp"] * layout["ep"] * layout["edp"] * layout["pp"]
        yield (
            "experts",
            (
                f"etp {layout['etp']} × ep {layout['ep']} × edp {layout['edp']} × pp {layout['pp']}"
                f" = {product:,} GPUs"
            ),
        )
    yield (
        "batch",
        f"mbs {layout['mbs']} × dp {layout['dp']} × ga {layout['ga']:,} = gbs {layout['gbs']:,}",
    )
    if data["pipeline"] and layout["pp"] * layout["vpp"] > 1:
        yield "pipeline", data["pipeline"]["layout"]
        yield from _even_rows(data)
    yield "recompute", recompute_text(data)
    yield "optimizer", offload_text(data)
    if data["activation_offload"]:
        yield "activations", f"inputs of {', '.join(data['activation_offload'])} on the host"
    yield "exchange", _exchange_text(model.is_moe, data)
    yield from _cost_rows(data)


def _even_rows(data: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What the even split would have cost."""
    even = data["pipeline"]["even"]
    if even is None:
        return
    if even["layout"] == data["pipeline"]["layout"]:
        yield "even split", "this is one" if even["exact"] else _no_even(data["pipeline"])
        return
    text = f"{even['peak_gib']:.1f} GiB ({_IF_SO[even['verdict']]})"
    if data.get("time") is not None:
        slower = even["step_s"] / data["time"]["step_s"] - 1
        text = f"{seconds(even['step_s'])} ({slower:+.1%}), {text}"
    if not even["exact"]:
        text = f"none exists; the nearest, {even['layout']}, would take {text}"
    yield "even split", text


def _no_even(pipeline: dict[str, Any]) -> str:
    """How near a split comes to an even one, of which there is none."""
    parts = ("layers", "embedding", "mtp", "loss")
    idle = sum(not any(slot[part] for part in parts) for slot in pipeline["slots"])
    of = f"{idle} of {len(pipeline['slots'])} slots hold nothing"
    return f"none exists; {of if idle else 'this is the nearest'}"


def _cluster_text(problem: Problem) -> str:
    cluster = problem.cluster if problem.whole is None else problem.whole
    sizes = sorted(set(cluster.domains))
    span = str(sizes[0]) if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    return (
        f"{cluster.gpus:,} × {problem.node_type.gpu}, "
        f"{counted(len(cluster.domains), 'NVLink domain')} of {span}"
    )


def _exchange_text(is_moe: bool, data: dict[str, Any]) -> str:
    parts = [f"dispatcher {data['dispatcher']}"] if is_moe else []
    if data["layout"]["cp"] > 1:
        parts.append(f"CP over {data['layout']['cp_comm']}")
    graphs = data["cuda_graphs"]
    parts.append(f"CUDA graphs {', '.join(graphs)}" if graphs else "no CUDA graphs")
    return "; ".join(parts)


def _fit_text(memory: dict[str, Any]) -> str:
    """That a legal layout fits, or how close it is."""
    over = memory["peak_gib"] - memory["capacity_gib"]
    if memory["verdict"] == "fits":
        return "OK: this layout is legal and fits."
    if over <= 0:
        return "OK: this layout is legal and tight: test it before you trust it."
    return f"OK: this layout is legal, but takes {over:.1f} GiB of the headroom: it must be tested."


def too_much(memory: dict[str, Any], where: str = "") -> str:
    """What an overfull layout lacks; ``where`` its GPUs lack it, if that is to be told."""
    over = memory["peak_gib"] - memory["capacity_gib"]
    lacks = []
    if _gpu_verdict(memory) == "overfull":
        lacks.append(f"its peak memory is {over:.1f} GiB too much{where}")
    if _hosts_overfull(memory):
        lacks.append(f"it needs {_host_text(memory, ' of host memory')}")
    return ", and ".join(lacks)


def _hosts_overfull(memory: dict[str, Any]) -> bool:
    return bool(memory["host_gib"] > memory["host_capacity_gib"])


def _gpu_verdict(memory: dict[str, Any]) -> Verdict:
    """The verdict on the GPUs alone, which may have room where the hosts have none."""
    if _hosts_overfull(memory):
        return verdict_of(memory["peak_gib"], memory["capacity_gib"])
    found: Verdict = memory["verdict"]
    return found


def _host_text(memory: dict[str, Any], of: str = "") -> str:
    """Host memory of the fullest rank against its share, for a GPU and for a node of such ranks."""
    need, room, gpus = (memory[f"host_{name}"] for name in ("gib", "capacity_gib", "gpus"))
    each = f"{need / gpus:,.1f} of {room / gpus:,.1f} GiB{of} a GPU"
    return f"{each} ({need:,.0f} of {room:,.0f} for the {gpus} of a node)" if gpus > 1 else each


def _cost_rows(data: dict[str, Any]) -> Iterator[tuple[str, str]]:
    time, memory = data.get("time"), data["memory"]
    if memory is None:
        return
    yield "", ""
    legal = data["status"] != "illegal"
    if time is not None:
        yield from _time_rows(time, legal)
    yield from _memory_rows(memory, legal)


def _time_rows(time: dict[str, Any], legal: bool) -> Iterator[tuple[str, str]]:
    yield "step time", f"{seconds(time['step_s'])} {_trust_text(time, legal)}"
    yield (
        "throughput",
        (
            f"{time['tokens_per_s_per_gpu']:,.0f} tokens/s and {time['model_tflops_per_gpu']:,.0f} "
            f"model TFLOP/s per GPU, {time['mfu']:.1%} of the {time['mfu_of']}"
        ),
    )


def _memory_rows(memory: dict[str, Any], legal: bool) -> Iterator[tuple[str, str]]:
    fullest = max(memory["stages"], key=lambda stage: stage["peak_gib"])
    words = _MEMORY if legal else _IF_SO
    peak = f"{memory['peak_gib']:.1f} of {memory['capacity_gib']:.1f} GiB"
    yield "memory", f"{peak} on rank {fullest['rank']} ({words[_gpu_verdict(memory)]})"
    if memory["host_gib"]:
        over = f": {words['overfull']}" if _hosts_overfull(memory) else ""
        yield "host memory", _host_text(memory) + over


def _trust_text(time: dict[str, Any], legal: bool) -> str:
    """How far to trust a step time: ``± 8% (estimate)``."""
    note = "estimate" if legal else "as if it were legal"
    if time["error_band"] is None:
        return f"({note}, {time['note'].replace('-', ' ')}: do not trust it)"
    if time["calibration"]["beyond"]:
        note += "; far outside the calibration's runs"
    return f"± {time['error_band']:.0%} ({note})"
