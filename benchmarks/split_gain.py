"""What the exact split of the layers is worth against the framework's even split.

Each question is answered twice with everything else the same: with the layers free
(``options.pipeline_layout: auto``), and with even splits only; both times degrees and options that
the question leaves open are chosen anew, so the best even plan stands beside the best plan.  Best
means fastest: the tolerance for more data parallelism is 0::

    python benchmarks/split_gain.py [--json PATH|-] [--time-limit S] [FILES...]

Questions: the files (default: the seed scenarios, but those that give a split), and published
models on clusters, with the degrees of published layouts, and free.  *Even* means the framework's
own: the layers, with or without embedding and loss counted as one each, divided by the slots; where
there are two such splits (embedding or loss), the better one.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:  # run as a program
    sys.path.insert(0, str(ROOT))

from benchmarks.command_line import Results, dumps, exit_code, json_option  # noqa: E402
from meshplan.constraints.pipeline import even_splits, format_layout  # noqa: E402
from meshplan.constraints.problem import Problem  # noqa: E402
from meshplan.constraints.resolve import resolve  # noqa: E402
from meshplan.scenarios import from_mapping  # noqa: E402
from meshplan.solver.results import Infeasible, Plan, Unknown  # noqa: E402
from meshplan.solver.solve import solve  # noqa: E402

Answer = Plan | Infeasible | Unknown
#: Gain over the best even split, or that none is feasible, from which a question counts.
WORTH = 0.03
#: Published models on clusters: model, preset, GPUs, tokens, batch, precision, published degrees.
#: Degrees as in Megatron-Bridge's performance recipes and the reports of DeepSeek-V3 and Kimi-K2.
PUBLISHED: tuple[tuple[str, str, int, int, int, str, dict[str, int]], ...] = (
    ("deepseek-v3", "h100-hgx", 1024, 4096, 8192, "fp8-block", {"pp": 8, "vpp": 4}),
    ("deepseek-v3", "gb200-nvl72", 256, 4096, 2048, "mxfp8", {"tp": 1, "pp": 4, "vpp": 4}),
    ("deepseek-v3", "b200-hgx", 256, 4096, 2048, "fp8-tensor", {"tp": 1, "pp": 16, "vpp": 1}),
    ("kimi-k2", "gb200-nvl72", 256, 4096, 2048, "mxfp8", {"tp": 1, "pp": 4, "vpp": 4}),
    ("kimi-k2", "h100-hgx", 1024, 4096, 4096, "fp8-block", {"pp": 16, "vpp": 2}),
    ("glm-4.5-air", "h100-hgx", 64, 4096, 1024, "bf16", {"tp": 1, "pp": 4, "vpp": 1}),
    ("llama-3.1-405b", "h100-hgx", 512, 8192, 512, "fp8-tensor", {"tp": 8, "pp": 8, "vpp": 8}),
    ("llama-3.1-405b", "h100-hgx", 1024, 8192, 1024, "bf16", {"tp": 8, "pp": 16, "vpp": 4}),
    ("qwen3-235b-a22b", "h100-hgx", 256, 4096, 2048, "bf16", {"tp": 2, "pp": 8, "vpp": 4}),
    ("qwen3-235b-a22b", "h100-hgx", 256, 4096, 2048, "bf16", {"tp": 2, "pp": 8, "vpp": 1}),
    ("mixtral-8x22b", "h100-hgx", 256, 4096, 256, "bf16", {"tp": 2, "pp": 8, "vpp": 2}),
    ("moonlight-16b-a3b", "h100-hgx", 32, 4096, 512, "bf16", {"tp": 1, "pp": 4, "vpp": 1}),
)


@dataclass(frozen=True)
class Row:
    """One question: best plan, best even plan, and what lies between them."""

    name: str
    status: str
    split: str
    step_s: float | None
    even_status: str
    even_split: str
    even_step_s: float | None

    @property
    def gain(self) -> float | None:
        """Share of the even plan's step that the exact split saves; None if there is no such."""
        if self.step_s is None or self.even_step_s is None:
            return None
        return 1 - self.step_s / self.even_step_s

    @property
    def counts(self) -> bool:
        """Whether the exact split makes feasible what no even one does, or is well faster."""
        if self.status == "optimal" and self.even_status == "infeasible":
            return True
        return self.gain is not None and self.gain > WORTH


def questions(files: Sequence[Path]) -> Iterator[dict[str, Any]]:
    """Scenarios without a split of their own: files first, then the published models."""
    for file in files:
        data = yaml.safe_load(file.read_text("utf-8"))
        if "pipeline_layout" not in data.get("options", {}):
            yield {key: value for key, value in data.items() if key != "expect"}
    free: set[str] = set()
    for model, preset, gpus, tokens, batch, precision, degrees in PUBLISHED:
        size = f"{gpus}-{tokens // 1024}k-{precision}"
        name = f"{model.replace('.', '-')}-{preset.split('-')[0]}-{size}"
        asked = {
            "meshplan": 1,
            "model": model,
            "cluster": {"preset": preset, "gpus": gpus},
            "workload": {
                "seq_len": tokens,
                "global_batch_size": batch,
                "precision": precision,
            },
        }
        shown = "-".join(f"{k}{v}" for k, v in degrees.items())
        yield {**asked, "name": f"{name}-{shown}", "layout": degrees}
        if name not in free:
            free.add(name)
            yield {**asked, "name": f"{name}-free"}


def with_split(data: dict[str, Any], split: str, **pins: int) -> Problem:
    """The question with a split, and maybe degrees, given."""
    return resolve(
        from_mapping(
            {
                **data,
                "options": {**data.get("options", {}), "pipeline_layout": split},
                "objective": {"dp_tolerance": 0},
                "layout": {**data.get("layout", {}), **pins},
            }
        )
    )


def even_answers(data: dict[str, Any], time_limit_s: float) -> Iterator[Answer]:
    """Answers with even splits: the first of each degrees in one search, others one by one."""
    problem = with_split(data, "even")
    yield solve(problem, time_limit_s=time_limit_s)
    card = problem.model
    for pp in problem.domain("pp"):
        for vpp in problem.domain("vpp"):
            degrees = {"pp": int(pp), "vpp": int(vpp)}
            if int(pp) == 1:
                continue
            splits = even_splits(card.layers, int(pp), int(vpp), mtp=card.mtp_layers > 0)
            for slots in list(splits)[1:]:
                text = format_layout(slots, card.mtp_layers)
                yield solve(with_split(data, text, **degrees), time_limit_s=time_limit_s)


def compared(data: dict[str, Any], time_limit_s: float) -> Row:
    """Best plan and best even plan of one question."""
    exact = solve(with_split(data, "auto"), time_limit_s=time_limit_s)
    even = list(even_answers(data, time_limit_s))
    plans = [one for one in even if isinstance(one, Plan)]
    best = min(plans, key=lambda one: one.proof.objective, default=even[0])
    open_ = any(one.status not in ("optimal", "infeasible") for one in even)
    return Row(
        name=data["name"],
        status=exact.status,
        split=_split(exact),
        step_s=_step(exact),
        even_status="not proved" if open_ else best.status,
        even_split=_split(best),
        even_step_s=_step(best),
    )


def _split(answer: Answer) -> str:
    if not isinstance(answer, Plan):
        return ""
    layout = answer.layout
    shown = format_layout(layout.slots, answer.problem.model.mtp_layers)
    return f"pp{layout.pp} vpp{layout.vpp} `{shown}`"


def _step(answer: Answer) -> float | None:
    """Best step time, s."""
    return answer.proof.objective if isinstance(answer, Plan) else None


_HEAD = "| question | step s | plan | even: step s | even: plan | gain |\n|---|--:|---|--:|---|--:|"


def line(row: Row) -> str:
    """One question as a line of a Markdown table."""

    def cells(status: str, step: float | None, split: str) -> str:
        escaped = split.replace("|", "\\|")
        return f"{status if step is None else f'{step:.2f}'} | {escaped}"

    gain = "" if row.gain is None else f"{row.gain:.1%}"
    if row.status == "optimal" and row.even_status == "infeasible":
        gain = "only so"
    gain = f"**{gain}**" if row.counts else gain
    return (
        f"| {row.name} | {cells(row.status, row.step_s, row.split)} "
        f"| {cells(row.even_status, row.even_step_s, row.even_split)} | {gain} |"
    )


def run(files: Sequence[Path], time_limit_s: float) -> list[Row]:
    """All questions, printing the table as it grows."""
    print(_HEAD)
    rows = []
    for data in questions(files):
        rows.append(compared(data, time_limit_s))
        print(line(rows[-1]), flush=True)
    feasible = [row for row in rows if row.status == "optimal"]
    only = [row for row in feasible if row.even_status == "infeasible"]
    faster = [row for row in feasible if row.gain is not None and row.gain > WORTH]
    print(
        f"\n{len(rows)} questions, {len(feasible)} with a plan: no even split in {len(only)}, "
        f"over {WORTH:.0%} faster in {len(faster)}."
    )
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; 0, or 1 if a best even plan is better than the best plan."""
    parser = argparse.ArgumentParser(description="Exact pipeline splits against even ones.")
    parser.add_argument("files", metavar="FILE", nargs="*", type=Path, help="default: all seeds")
    parser.add_argument("--time-limit", metavar="S", type=float, default=120.0)
    json_option(parser, "all rows")
    given = parser.parse_args(arguments)
    return exit_code(lambda: _measure(given), yaml.YAMLError)


def _measure(given: argparse.Namespace) -> int:
    files = given.files or sorted((ROOT / "scenarios/seed").glob("*.yaml"))
    results = Results({"--json": given.json}, files)
    with results.printing():
        rows = run(files, given.time_limit)
    results.deliver("--json", lambda: dumps([{**asdict(row), "gain": row.gain} for row in rows]))
    return int(any(row.gain is not None and row.gain < 0 for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
