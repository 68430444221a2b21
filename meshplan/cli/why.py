"""``meshplan why``: what a layout loses against the optimum, or which rule it breaks."""

from __future__ import annotations

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


@click.command(short_help="Say why a layout is not the optimum.")
@scenario_argument
@layout_option
@arguments_option
@json_option
@html_option
@set_option
@time_limit_option
@quiet_option
@click.pass_context
def why(
    ctx: click.Context,
    file: str,
    layout: str | None,
    arguments_file: str | None,
    json_path: str | None,
    html_path: str | None,
    overrides: tuple[str, ...],
    time_limit_s: float | None,
    quiet: bool,
) -> None:
    """Hold one layout of the scenario FILE against the optimum.

    Which rule it breaks, or by how much it does not fit, or what it loses: the step time by part
    beside the optimum's, and each decision in which they differ changed alone.

    Exit code 1 if the layout is illegal or does not fit.  --layout takes the keys of
    `meshplan check`; without one the scenario's pins are completed.
    """
    import meshplan
    from meshplan.cli.check import asked_layout
    from meshplan.cli.output import deliver, page_file
    from meshplan.cli.progress import shown_progress
    from meshplan.cli.whole_file import output_file

    target, page = output_file(json_path, "--json"), page_file(html_path)
    scenario, stated = asked_layout(file, overrides, layout, arguments_file, [target, page], quiet)
    with shown_progress(quiet) as progress:
        report = meshplan.why(scenario, stated, time_limit_s=time_limit_s, progress=progress)
    ctx.exit(deliver(report, json_path, target, quiet, page))
