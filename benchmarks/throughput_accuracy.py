"""How far is the step-time model from published throughput?  Prints predictions, errors and sums.

Each row of the files is a published run with its model TFLOP/s.  The script turns it into a
scenario by its own columns and stated defaults (:mod:`benchmarks.throughput_scenario`), and
compares what the model says::

    python benchmarks/throughput_accuracy.py [--no-fit] [--json PATH] [FILE ...]

FILE defaults to ``benchmarks/data/published_runs.csv``; any file with its columns will do, as
``benchmarks/data/unseen_runs.csv``, which no fit takes in (give it alone, with ``--no-fit``).  Rows
that the columns speak against are predicted and printed, but neither fitted nor counted; rows whose
settings are guesses are not fitted on, and have sums of their own; rows that cannot be predicted
are listed with the reason.  TFLOP/s are compared, but for rows whose FLOPs
were counted by another formula: there tokens/s.

Parameters are fitted on training rows alone and judged on held-out ones: random halves of the
layouts with none shared, one model left out, one GPU type left out.  Beside it stands the mean
TFLOP/s of the other rows of a model, GPU and precision.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.command_line import Results, exit_code, json_option  # noqa: E402
from benchmarks.memory_words import Unusable  # noqa: E402
from benchmarks.throughput_aims import aim_lines  # noqa: E402
from benchmarks.throughput_fit import (  # noqa: E402
    Clock,
    MissingExtra,
    Outcome,
    cross_validate,
    defaults,
)
from benchmarks.throughput_report import Row, as_json, report  # noqa: E402
from benchmarks.throughput_rows import Measured, read_measured  # noqa: E402
from benchmarks.throughput_scenario import Case, case_of  # noqa: E402
from benchmarks.throughput_series import series  # noqa: E402

FILES = (ROOT / "benchmarks" / "data" / "published_runs.csv",)
#: Fewest counted rows for which a fit on half of them says anything.
LEAST_ROWS = 40
_DENSE = ("tp", "cp", "pp", "vpp")


def judge(measured: Sequence[Measured]) -> tuple[list[Row], list[Case], dict[int, float]]:
    """All rows, the counted ones as cases, and the predictions of these by shipped parameters."""
    rows: list[Row] = []
    cases: list[Case] = []
    predicted: dict[int, float] = {}
    values = defaults()
    for one in measured:
        try:
            case = case_of(one)
        except Unusable as reason:
            rows.append(_left_out(one, str(reason)))
            continue
        figure = Clock([case]).tflops(0, values)
        rows.append(_row(case, figure))
        if not case.apart:
            predicted[len(cases)] = figure
            cases.append(case)
    return rows, cases, predicted


def _left_out(one: Measured, reason: str) -> Row:
    run = one.run
    return Row(run.id, run.model, run.gpu, run.num_gpus, run.precision, run.release, "",
               reason=reason)  # fmt: skip


def _row(case: Case, figure: float) -> Row:
    from meshplan.solver.time.trust import error_band

    problem, layout = case.problem, case.layout
    names = (*_DENSE, "ep", "etp") if problem.model.is_moe else _DENSE
    degrees = {name: getattr(layout, name) for name in names}
    return Row(
        id=case.id,
        model=case.model,
        gpu=case.gpu,
        gpus=problem.gpus,
        precision=problem.precision,
        release=case.release,
        layout=f"{problem.gpus} "
        + " ".join(f"{name}{value}" for name, value in degrees.items() if value > 1)
        + f" mbs{layout.mbs} ga{layout.ga} {problem.seq_len // 1024}K {problem.precision}",
        measured=case.tflops,
        predicted=figure,
        seq_len=problem.seq_len,
        hybrid=error_band(problem) != problem.calibration.error_band,
        apart=case.apart,
        doubt=case.doubt,
        flags=case.flags,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge files of runs; exit code 2 if one cannot be read, or the fit cannot be done."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file", nargs="*", type=Path, default=FILES, metavar="FILE")
    json_option(parser, "all results")
    parser.add_argument("--no-fit", action="store_true", help="shipped parameters alone")
    parser.add_argument("--workers", type=int, default=2, help="processes of the fit")
    options = parser.parse_args(arguments)
    return exit_code(lambda: _compare(options), MissingExtra)


def _compare(options: argparse.Namespace) -> int:
    results = Results({"--json": options.json}, options.file)
    measured = [one for path in options.file for one in read_measured(path)]
    rows, cases, predicted = judge(measured)
    outcomes: list[Outcome] = []
    if not options.no_fit and len(cases) >= LEAST_ROWS:
        outcomes = cross_validate(cases, options.workers)
    with results.printing():
        print(report(rows, cases, predicted, outcomes, series(measured)))
        print(*aim_lines(cases, outcomes), sep="\n")
    results.deliver("--json", lambda: as_json(rows, cases, predicted, outcomes))
    return 0


if __name__ == "__main__":
    sys.exit(main())
