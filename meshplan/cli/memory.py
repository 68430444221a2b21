"""``meshplan memory``: the memory of one layout, rank by rank and item by item."""

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
)


@click.command(short_help="Show the memory of one layout in detail.")
@scenario_argument
@layout_option
@arguments_option
@click.option(
    "--rank",
    type=int,
    metavar="N",
    help="Pipeline rank to show item by item; the fullest unless given.",
)
@json_option
@html_option
@set_option
@quiet_option
@click.pass_context
def memory(
    ctx: click.Context,
    file: str,
    layout: str | None,
    arguments_file: str | None,
    rank: int | None,
    json_path: str | None,
    html_path: str | None,
    overrides: tuple[str, ...],
    quiet: bool,
) -> None:
    """Show the memory of one layout of the scenario FILE.

    Which event makes the peak of each rank, what adds up to it, and what single changes of
    recompute, offload, exchange, dispatcher, loss and graphs would give and cost.

    Exit code 1 if the layout is illegal or does not fit.  --layout takes the keys of
    `meshplan check`; without one the scenario's pins are completed.
    """
    import meshplan
    from meshplan.cli.check import asked_layout
    from meshplan.cli.output import deliver, page_file
    from meshplan.cli.whole_file import output_file

    target, page = output_file(json_path, "--json"), page_file(html_path)
    scenario, stated = asked_layout(file, overrides, layout, arguments_file, [target, page], quiet)
    report = meshplan.memory(scenario, stated, rank=rank)
    ctx.exit(deliver(report, json_path, target, quiet, page))
