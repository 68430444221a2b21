"""``meshplan diagnose``: why nothing fits, and what would help."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from meshplan.cli.options import (
    arguments_option,
    html_option,
    json_option,
    layout_option,
    quiet_option,
    scenario_argument,
    set_option,
    time_limit_option,
)

if TYPE_CHECKING:
    from meshplan.cli.whole_file import WholeFile
    from meshplan.solver.diagnosis.result import Diagnosis


@click.command(short_help="Say why nothing fits, and what would help.")
@scenario_argument
@layout_option
@arguments_option
@json_option
@html_option
@click.option(
    "--markdown",
    "markdown_path",
    metavar="PATH|-",
    help="Write the report as Markdown, for a pull request, to a file or to standard output.",
)
@set_option
@time_limit_option
@quiet_option
@click.pass_context
def diagnose(
    ctx: click.Context,
    file: str,
    layout: str | None,
    arguments_file: str | None,
    json_path: str | None,
    html_path: str | None,
    markdown_path: str | None,
    overrides: tuple[str, ...],
    time_limit_s: float | None,
    quiet: bool,
) -> None:
    """Say why nothing fits in the scenario FILE, and what would help.

    The facts that cannot hold together, in the scenario's own fields and numbers, and changes that
    make a layout possible, each verified by a solve.  Where something fits already, what it is
    close to.

    With --layout or --args the question is about that layout: its values are pins, and what it
    leaves open is free as far as the scenario says nothing.

    Exit code 3 if it is proved that nothing fits, 0 if something does, 4 if a limit came before
    either was known.
    """
    import meshplan
    from meshplan.cli.check import asked_layout
    from meshplan.cli.output import deliver, page_file
    from meshplan.cli.progress import shown_progress
    from meshplan.cli.whole_file import DASH, output_file

    if json_path == markdown_path == DASH:
        raise click.UsageError("--json and --markdown both go to standard output; give one a path.")
    target = output_file(json_path, "--json")
    markdown = output_file(markdown_path, "--markdown")
    page = page_file(html_path)
    outputs = [target, markdown, page]
    scenario, stated = asked_layout(file, overrides, layout, arguments_file, outputs, quiet)
    with shown_progress(quiet) as progress:
        found = meshplan.diagnose(scenario, stated, time_limit_s=time_limit_s, progress=progress)
    _deliver_markdown(found, markdown_path, markdown)
    ctx.exit(deliver(found, json_path, target, quiet or markdown_path == DASH, page))


def _deliver_markdown(found: Diagnosis, path: str | None, file: WholeFile | None) -> None:
    if file is not None:
        file.write(found.to_markdown())
    elif path is not None:
        sys.stdout.write(found.to_markdown())
