"""``meshplan sweep``: one scenario over a grid of values."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from meshplan.cli.options import (
    jobs_option,
    quiet_option,
    scenario_argument,
    set_option,
    time_limit_option,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshplan.cli.whole_file import WholeFile
    from meshplan.sweeps.grid import Grid
    from meshplan.sweeps.result import Sweep
    from meshplan.sweeps.run import Done, Means

#: What the name of the journal ends with, after that of the output.
JOURNAL_SUFFIX = ".journal"
#: Between two lines of progress in a file or pipe, in seconds.
_LINE_EVERY_S = 30.0


@click.command(short_help="Solve one scenario over a grid of values.")
@scenario_argument
@click.option(
    "--over",
    "overs",
    metavar="FIELD=V1,V2,...",
    multiple=True,
    required=True,
    help="Values of a field: workload.seq_len=4096,8192, or a range: 4096..65536*2, 8..64+8. "
    "Repeatable: all combinations are solved.",
)
@set_option
@jobs_option
@time_limit_option
@click.option(
    "--output",
    "-o",
    metavar="PATH",
    help="Write a row for each scenario: .csv, .json, or .parquet (needs meshplan[sweep]). What "
    "is finished is kept in PATH.journal: a second run goes on from there.",
)
@click.option(
    "--picture",
    metavar="PNG|SVG",
    help="Draw throughput, data parallelism and least GPUs against the first --over.",
)
@click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="Solve on a Dask cluster: tcp://host:8786; needs meshplan[dask].",
)
@quiet_option
@click.pass_context
def sweep(
    ctx: click.Context,
    file: str,
    overs: tuple[str, ...],
    overrides: tuple[str, ...],
    jobs: int | None,
    time_limit_s: float | None,
    output: str | None,
    picture: str | None,
    scheduler: str | None,
    quiet: bool,
) -> None:
    """Solve the scenario FILE with each combination of values of some fields.

    --time-limit holds for each scenario.  Ctrl-C loses nothing that is finished, if --output is
    given: the same command goes on.
    """
    from meshplan.cli.exit_codes import DONE, OUR_FAULT, STOPPED
    from meshplan.cli.output import picture_file
    from meshplan.cli.sweep_table import show_sweep
    from meshplan.cli.whole_file import keep_apart, output_file
    from meshplan.sweeps.axes import read_axes
    from meshplan.sweeps.grid import read_grid
    from meshplan.sweeps.picture import check_picture, draw
    from meshplan.sweeps.run import Means
    from meshplan.sweeps.tables import table, table_format
    from meshplan.workers import available_cpus

    if scheduler is not None and jobs is not None:
        raise click.UsageError("--jobs is for this machine, --scheduler for a cluster: use one.")
    form = table_format(output) if output is not None else ""
    target = output_file(output, "--output")
    drawing, picture_form = picture_file(picture)
    axes = read_axes(overs, overrides)
    if drawing is not None:
        check_picture(axes)
    grid = read_grid(file, overrides, axes)
    keep_apart([target, drawing], grid.inputs)
    means = Means(jobs or available_cpus(), scheduler, time_limit_s)
    result, stopped = _run(grid, means, target, quiet)
    if stopped:
        ctx.exit(STOPPED)
    contents: list[tuple[WholeFile, bytes]] = []
    if target is not None:
        contents.append((target, table(result, form)))
    if drawing is not None:
        contents.append((drawing, draw(result, picture_form)))
    for written, content in contents:
        written.write(content)
    if not quiet:
        show_sweep(result)
    for row in result.rows:
        if row["status"] == "error":
            said = ", ".join(f"{axis.field}={row[axis.field]}" for axis in axes)
            click.echo(f"Error: {said}: {row['error']}", err=True)
    failed = any(row["status"] == "error" for row in result.rows)
    ctx.exit(OUR_FAULT if failed else DONE if result.proved else STOPPED)


def _run(grid: Grid, means: Means, target: WholeFile | None, quiet: bool) -> tuple[Sweep, bool]:
    """The sweep, and whether Ctrl-C ended it."""
    from meshplan.sweeps.dask_cluster import check_scheduler
    from meshplan.sweeps.journal import Journal
    from meshplan.sweeps.run import Run

    if means.scheduler is not None:
        check_scheduler(means.scheduler)
    path = None if target is None else Path(f"{target.path}{JOURNAL_SUFFIX}")
    journal = None if path is None else Journal(path, means.time_limit_s)
    try:
        run = Run(grid, means, journal)
        for note in journal.notes if journal is not None else ():
            click.echo(note, err=True)
        if run.kept and not quiet:
            click.echo(f"{run.kept} of {len(grid.points)} scenarios are in {path}", err=True)
        try:
            with _shown(quiet) as progress:
                run.run(progress)
        except KeyboardInterrupt:
            result = run.result()
            where = f"kept in {path}; the same command goes on from there" if path else "not kept"
            click.echo(
                f"Stopped: {len(result.rows)} of {len(grid.points)} scenarios, {where}", err=True
            )
            return result, True
        return run.result(), False
    finally:
        if journal is not None:
            journal.close()


@contextmanager
def _shown(quiet: bool) -> Iterator[Callable[[Done], None] | None]:
    """A bar on standard error on a terminal, a line now and then elsewhere."""
    if quiet:
        yield None
        return
    if not sys.stderr.isatty():
        yield _lines()
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("scenarios"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        TextColumn("left"), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda done: bar.update(task, completed=done.rows, total=done.scenarios)


def _lines() -> Callable[[Done], None]:
    said = time.monotonic()

    def show(done: Done) -> None:
        nonlocal said
        if time.monotonic() - said >= _LINE_EVERY_S:
            said = time.monotonic()
            click.echo(f"{done.rows} of {done.scenarios} scenarios", err=True)

    return show
