"""``meshplan solve``: the best plan of a scenario."""

from __future__ import annotations

import click

from meshplan.cli.options import (
    json_option,
    quiet_option,
    scenario_argument,
    set_option,
    time_limit_option,
)


@click.command(short_help="Find the best layout, and prove it.")
@scenario_argument
@json_option
@set_option
@time_limit_option
@click.option(
    "--binding",
    is_flag=True,
    help="Relax each limit, pin and resource by one step, and solve again: what it would gain.",
)
@quiet_option
@click.pass_context
def solve(
    ctx: click.Context,
    file: str,
    json_path: str | None,
    overrides: tuple[str, ...],
    time_limit_s: float | None,
    binding: bool,
    quiet: bool,
) -> None:
    """Find the best layout of the scenario FILE and prove that none is better.

    Ctrl-C and --time-limit give the best plan so far and what is proved.
    """
    import meshplan
    from meshplan.cli.output import deliver
    from meshplan.cli.progress import shown_progress
    from meshplan.cli.whole_file import keep_apart, output_file
    from meshplan.scenarios import input_files

    target = output_file(json_path, "--json")
    scenario = meshplan.load(file, overrides)
    keep_apart([target], input_files(scenario))
    with shown_progress(quiet) as progress:
        result = meshplan.solve(
            scenario, time_limit_s=time_limit_s, progress=progress, binding=binding
        )
    ctx.exit(deliver(result, json_path, target, quiet))
