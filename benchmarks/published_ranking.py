"""Where published MoE layouts stand among all layouts of their scenarios, by our objective.

For each published run of a model with experts, the script opens its layout, solves the scenario,
and counts the choices of degrees with a plan that is faster than the published layout::

    python benchmarks/published_ranking.py [OPTION ...] [FILE ...]

FILE defaults to ``benchmarks/data/published_runs.csv``; any file with its columns will do.  Rows
that the columns speak against, and those that the model cannot predict, are left out
(:mod:`benchmarks.throughput_scenario`).  Rows of one scenario and layout, which differ in their
release and figure, are one.

A large loss is a fault of the model, or a finding: docs/benchmarks.md says which.  Exit code 1
if a published layout that is legal and fits beats what was proved to be the optimum.

A last table sets the model beside what a public estimator is recorded to say of three measured
layouts (``data/compared_layouts.yaml``).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.command_line import Results, exit_code, json_option  # noqa: E402
from benchmarks.memory_words import Unusable  # noqa: E402
from benchmarks.ranking import Standing, open_scenario, standing  # noqa: E402
from benchmarks.ranking_report import as_json, line, report  # noqa: E402
from benchmarks.throughput_rows import Measured, read_measured  # noqa: E402
from benchmarks.throughput_scenario import case_of  # noqa: E402
from meshplan.scenarios.errors import InputError  # noqa: E402

FILES = (ROOT / "benchmarks" / "data" / "published_runs.csv",)
LIMIT_S = 300.0

#: Rows of one scenario: by layout, those that have it.
Task = tuple[tuple[Measured, ...], ...]
#: A standing, or the names of rows and why they have none.
Answer = Standing | tuple[str, str]


def tasks(rows: Iterable[Measured], only: str = "") -> tuple[list[Task], list[tuple[str, str]]]:
    """Comparable rows of MoE models by scenario and layout, and the others with the reason."""
    found: dict[str, dict[str, list[Measured]]] = defaultdict(lambda: defaultdict(list))
    left_out: list[tuple[str, str]] = []
    for row in rows:
        if only not in row.run.id:
            continue
        try:
            case = case_of(row)
        except Unusable as reason:
            left_out.append((row.run.id, str(reason)))
            continue
        if not case.problem.model.is_moe:
            left_out.append((case.id, "no experts"))
            continue
        if case.apart:
            left_out.append((case.id, case.apart))
            continue
        opened = open_scenario(case)
        del opened["framework"]
        found[repr(opened)][case.key].append(row)
    return [tuple(map(tuple, layouts.values())) for layouts in found.values()], left_out


def judge(task: Task, limit_s: float) -> list[Answer]:
    """Where the layouts of one scenario stand; the search may take ``limit_s`` seconds."""
    answers: list[Answer] = []
    for rows in task:
        cases = [case_of(row) for row in rows]
        try:
            answers.append(standing(cases, limit_s))
        except Unusable as reason:
            answers.append((", ".join(case.id for case in cases), str(reason)))
    return answers


def answers(found: Sequence[Task], workers: int, limit_s: float) -> Iterator[list[Answer]]:
    """The answers to all tasks, as they come."""
    if workers <= 1:
        yield from (judge(task, limit_s) for task in found)
        return
    from concurrent.futures import ProcessPoolExecutor, as_completed

    with ProcessPoolExecutor(workers) as pool:
        try:
            for done in as_completed([pool.submit(judge, task, limit_s) for task in found]):
                yield done.result()
        finally:
            pool.shutdown(cancel_futures=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Rank the layouts of files of runs; exit codes 1 and 2 as above and for bad input."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file", nargs="*", type=Path, default=FILES, metavar="FILE")
    json_option(parser, "all results")
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="only rows with TEXT in their name"
    )
    parser.add_argument("--workers", type=int, default=2, help="processes that search")
    parser.add_argument(
        "--time-limit", type=float, default=LIMIT_S, metavar="S",
        help="seconds for the layouts of one scenario; beyond it they are left out",
    )  # fmt: skip
    options = parser.parse_args(arguments)
    return exit_code(lambda: _rank(options))


def _rank(options: argparse.Namespace) -> int:
    results = Results({"--json": options.json}, options.file)
    rows = [row for path in options.file for row in read_measured(path)]
    found, left_out = tasks(rows, options.only)
    if not found:
        raise InputError(
            f"no comparable run of a model with experts among {len(rows)} rows",
            advice="leave out --only, or see docs/time-model.md for what is compared.",
        )
    standings: list[Standing] = []
    started = time.monotonic()
    for number, some in enumerate(answers(found, options.workers, options.time_limit), 1):
        for answer in some:
            if isinstance(answer, Standing):
                standings.append(answer)
                text = line(answer)
            else:
                left_out.append(answer)
                text = ": ".join(answer)
            spent = time.monotonic() - started
            print(f"[{number}/{len(found)}, {spent:.0f} s] {text}", file=sys.stderr, flush=True)
    with results.printing():
        print(report(standings, left_out))
    results.deliver("--json", lambda: as_json(standings, left_out))
    wrong = [one for one in standings if one.refutes_the_proof]
    for one in wrong:
        print(f"FAILED: {one.ids[0]} is faster than the optimum", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
