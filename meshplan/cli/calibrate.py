"""``meshplan calibrate``: fit the step-time model to a user's own measured runs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from meshplan.cli.options import json_option, quiet_option

if TYPE_CHECKING:
    from meshplan.cli.whole_file import WholeFile


@click.command(short_help="Fit the step-time model to measured runs.")
@click.argument("runs", metavar="RUNS.csv")
@click.option(
    "--out",
    "out",
    metavar="PATH",
    help="Write the calibration: a file for the key calibration of a scenario.",
)
@click.option(
    "--base",
    default="default",
    show_default=True,
    metavar="default|FILE",
    help="Calibration to start from, and to keep where the runs cannot tell.",
)
@click.option("--picture", metavar="PNG", help="Draw measured against predicted, before and after.")
@json_option
@quiet_option
def calibrate(
    runs: str, out: str | None, base: str, picture: str | None, json_path: str | None, quiet: bool
) -> None:
    """Fit the efficiencies of the step-time model to the measured runs in RUNS.csv.

    \b
    Columns of RUNS.csv (`meshplan import runs` writes it from training logs):
      scenario               path of a scenario file, from the folder of RUNS.csv
      layout                 as after `meshplan check --layout`; empty for the scenario's pins
      step_s                 measured seconds per step; or tflops_per_gpu, or
                             tokens_per_s_per_gpu: exactly one of the three is filled in
      name, weight           optional

    A common factor on all efficiencies is tried first, single ones only where they predict unseen
    runs better; the rest stays, with the reason.
    Files are written when all is done, or not at all.
    """  # noqa: D301 - click reads the character, not the two
    from meshplan.cli.whole_file import keep_apart, output_file
    from meshplan.scenarios.errors import one_line
    from meshplan.solver.calibrate import calibrate as fit_to
    from meshplan.solver.calibrate.runs import files_of_runs
    from meshplan.solver.extras import need
    from meshplan.solver.report.data import dumps

    need("scipy", "calibrate", "meshplan calibrate")
    if picture is not None:
        need("matplotlib", "plot", "--picture")
    out_file, picture_file = _file(out, "--out"), _file(picture, "--picture")
    target = output_file(json_path, "--json")
    outputs = (out_file, picture_file, target)
    keep_apart(outputs, {"RUNS.csv": runs, "--base": None if base == "default" else base})
    keep_apart(outputs, files_of_runs(runs, base))
    name = Path(out).stem if out is not None else None
    with _shown(quiet) as progress:
        report = fit_to(runs, base=base, name=name, progress=progress)
    # All contents before the first file, so that a fault leaves none behind.
    contents: list[tuple[WholeFile, str | bytes]] = []
    if out_file is not None:
        contents.append((out_file, report.to_yaml()))
    if picture_file is not None:
        contents.append((picture_file, report.picture()))
    if target is not None:
        contents.append((target, dumps(report.to_json())))
    for file, content in contents:
        file.write(content)
    if out is not None and report.worth.text:
        click.echo(f"warning: {one_line(out)} is worth {report.worth.text}", err=True)
    if json_path == "-":
        sys.stdout.write(dumps(report.to_json()))
        return
    if quiet:
        return
    if not sys.stdout.isatty():
        sys.stdout.write(str(report))
    else:
        from rich.console import Console

        report.render(Console())
    if out is not None:
        path = one_line(out)
        click.echo(f"\nWritten to {path}: name it in a scenario as   calibration: {path}")


def _file(path: str | None, option: str) -> WholeFile | None:
    from meshplan.cli.whole_file import WholeFile

    return None if path is None else WholeFile(path, option)


@contextmanager
def _shown(quiet: bool) -> Iterator[Callable[[int, int], None] | None]:
    """A line on standard error while the cross-validation runs, if somebody would see it."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    try:
        yield lambda number, total: click.echo(
            f"\rcross-validation {number + 1} of {total}", nl=False, err=True
        )
    finally:
        click.echo("\r\x1b[K", nl=False, err=True)
