"""``meshplan limits``: how far one field can go before nothing fits."""

from __future__ import annotations

import click

from meshplan.cli.options import (
    json_option,
    quiet_option,
    scenario_argument,
    set_option,
    time_limit_option,
)


@click.command(short_help="Find how far each field can go before nothing fits.")
@scenario_argument
@json_option
@set_option
@time_limit_option
@quiet_option
@click.pass_context
def limits(
    ctx: click.Context,
    file: str,
    json_path: str | None,
    overrides: tuple[str, ...],
    time_limit_s: float | None,
    quiet: bool,
) -> None:
    """Find how far each field of the scenario FILE can go before nothing fits.

    The least GPUs and the least memory of one, the longest sequence, the largest global batch and
    micro-batch, and the most data parallelism: each exact, with all else as it is, and with the
    best plan that it leaves.

    Exit code 4 if the time limit came before all of them were proved; what is known is shown.
    """
    import meshplan
    from meshplan.cli.exit_codes import DONE, STOPPED
    from meshplan.cli.output import written_to_stdout
    from meshplan.cli.progress import shown_progress
    from meshplan.cli.whole_file import keep_apart, output_file
    from meshplan.scenarios import input_files

    target = output_file(json_path, "--json")
    scenario = meshplan.load(file, overrides)
    keep_apart([target], input_files(scenario))
    with shown_progress(quiet) as progress:
        report = meshplan.limits(scenario, time_limit_s=time_limit_s, progress=progress)
    if not (written_to_stdout(report, json_path, target) or quiet):
        click.echo(str(report), nl=False)
    ctx.exit(DONE if report.proved else STOPPED)
