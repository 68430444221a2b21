"""How far is the memory model from what was measured?  Prints predictions, errors and sums.

Each row of the files is a published run with a measured amount of memory, or an out-of-memory
outcome.  The script turns it into a scenario by its own columns and stated defaults, computes the
memory of the rank that the figure is of, and compares like with like::

    python benchmarks/memory_accuracy.py [--json PATH] [--csv PATH] [FILE ...]

FILE defaults to ``benchmarks/data/memory_runs.csv`` and ``memory_published.csv``; any file with
the columns of either will do.  The headline is about figures of PyTorch's allocator at its peak.
Reserved memory is compared after the ratio that the memory model states, what the GPU reports
after adding what lies outside the allocator, and figures whose kind is not stated by themselves.
A figure that two rows give counts once, in the row that states more settings.

A verdict agrees if what fitted does not exceed the usable memory less the headroom, and what ran
out of memory does.  Rows that cannot be predicted are listed with the reason.  Rows that contradict
themselves or say an unknown word are not judged: they are named on standard error, the exit code
is 2, and no file of results is written.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import memory_words as words  # noqa: E402
from benchmarks.command_line import Results, exit_code, json_option  # noqa: E402
from benchmarks.memory_checks import refused  # noqa: E402
from benchmarks.memory_report import Reading, Row, as_csv, as_json, report  # noqa: E402
from benchmarks.memory_rows import Run, read_runs  # noqa: E402
from benchmarks.memory_scenario import Prediction, effects, predict  # noqa: E402

DATA = ROOT / "benchmarks" / "data"
FILES = (DATA / "memory_runs.csv", DATA / "memory_published.csv")
#: Figures nearer than this can be one measurement, given in GB and in GiB.
SAME_GIB = 1e-3
#: By the source column: who published the run.
SOURCES = {
    r"SimuMax": "SimuMax",
    r"Megatron-LM tests": "Megatron-LM functional tests",
    r"Megatron-LM (PR|issue)": "Megatron-LM pull requests, issues",
    r"Megatron-Bridge|^(skills|examples|docs)/": "Megatron-Bridge",
    r"MoE-ModelZoo": "Megatron MoE ModelZoo",
    r"ms-swift": "ms-swift",
    r"mbridge": "mbridge",
    r"verl": "verl",
    r"MLCommons": "MLCommons",
    r"arXiv": "papers",
}
_DENSE = ("tp", "cp", "pp", "vpp")


def judge_runs(runs: Sequence[Run]) -> list[Row]:
    """All runs, predicted; a figure that several give counts once."""
    predicted: list[Prediction | str] = []
    for run in runs:
        try:
            predicted.append(predict(run))
        except words.Unusable as reason:
            predicted.append(str(reason))
    counting = _counting([one for one in predicted if isinstance(one, Prediction)])
    return [
        _left_out(run, one) if isinstance(one, str) else _row(one, id(one) in counting)
        for run, one in zip(runs, predicted, strict=True)
    ]


def _counting(predictions: list[Prediction]) -> set[int]:
    """Of predictions of one measured figure the one whose row states most settings."""
    held: list[Prediction] = []
    for one in predictions:
        for index, other in enumerate(held):
            if _same_figure(one, other):
                if one.run.settings > other.run.settings:
                    held[index] = one
                break
        else:
            held.append(one)
    return {id(one) for one in held}


def _same_figure(one: Prediction, other: Prediction) -> bool:
    """Whether two rows report one measurement: same model, mesh, and figure to the last digit."""
    if not (one.run.figures and other.run.figures):
        return False
    near = abs(one.run.figures[0].gib - other.run.figures[0].gib) < SAME_GIB
    said = one.run.recompute and other.run.recompute
    other_run = said and one.layout.recompute != other.layout.recompute
    return near and not other_run and _setup(one) == _setup(other)


def _setup(one: Prediction) -> tuple[object, ...]:
    card, layout = one.problem.model, one.layout
    degrees = (layout.tp, layout.cp, layout.ep, layout.pp, layout.vpp, layout.dp)
    figures = (card.layers, card.hidden, card.vocab, card.experts)
    return (one.problem.node_type.name, *degrees, *figures)


def _left_out(run: Run, reason: str) -> Row:
    return Row(
        run.file, run.line, run.id, source_of(run.source), run.model, _hardware(run), "",
        run.verdict, reason,
    )  # fmt: skip


def _row(one: Prediction, counts: bool) -> Row:
    run, layout = one.run, one.layout
    readings = []
    for figure in run.figures:
        kind = words.figure_kind(figure.kind)
        readings.append(Reading(run.id, kind, figure.gib, one.gib(kind)))
    names = ("tp", "cp", "ep", "etp", "pp", "vpp") if one.problem.model.is_moe else _DENSE
    degrees = {name: getattr(layout, name) for name in names}
    heaviest = max(one.ranks, key=lambda memory: memory.peak)
    shown = heaviest if one.rank is None else one.ranks[one.rank]
    return Row(
        file=run.file,
        line=run.line,
        id=run.id,
        source=source_of(run.source),
        model=run.model,
        hardware=_hardware(run),
        layout=" ".join(f"{name}{value}" for name, value in degrees.items() if value > 1)
        + f" mbs{layout.mbs} {one.problem.seq_len // 1024}K {one.problem.precision}",
        observed=run.verdict,
        rank=shown.rank,
        event=shown.event,
        peak_gib=one.peak_gib,
        capacity_gib=one.capacity_gib,
        verdict=one.verdict,
        open_recompute=one.open_recompute,
        counts=counts,
        readings=tuple(readings),
        effects=effects(one),
        flags=one.flags if counts else (*one.flags, "the same figure as in another row"),
    )


def source_of(text: str) -> str:
    """Who published a run, by the words of its source column."""
    return next((name for word, name in SOURCES.items() if re.search(word, text)), "others")


def _hardware(run: Run) -> str:
    return f"{run.num_gpus or '?'} {run.gpu}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge files of runs; exit code 2 if a file cannot be read or a row cannot be true."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file", nargs="*", type=Path, default=FILES, metavar="FILE")
    json_option(parser, "all results")
    parser.add_argument("--csv", metavar="PATH|-", help="write the readings as CSV, likewise")
    options = parser.parse_args(arguments)
    return exit_code(lambda: _compare(options))


def _compare(options: argparse.Namespace) -> int:
    results = Results({"--json": options.json, "--csv": options.csv}, options.file)
    runs, faults = refused([run for path in options.file for run in read_runs(path)])
    rows = judge_runs(runs)
    if rows:
        with results.printing():
            print(report(rows))
    for fault in faults:
        print(fault, file=sys.stderr)
    if faults:
        return 2
    results.deliver("--json", lambda: as_json(rows))
    results.deliver("--csv", lambda: as_csv(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
