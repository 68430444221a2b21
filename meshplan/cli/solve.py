"""``meshplan solve``: the best plan of a scenario."""

from __future__ import annotations

import click

from meshplan.cli.options import (
    html_option,
    json_option,
    quiet_option,
    scenario_argument,
    set_option,
    time_limit_option,
)

#: Percent by which plans of the Pareto front may be slower than the fastest.
_WITHIN = 10.0


@click.command(short_help="Find the best layout, and prove it.")
@scenario_argument
@json_option
@html_option
@set_option
@time_limit_option
@click.option(
    "--top",
    type=click.IntRange(1, 1000),
    default=None,
    metavar="K",
    help="Rank the K fastest degree tuples, each with its best split, proved.",
)
@click.option(
    "--pareto",
    is_flag=True,
    help="Show all plans of which none is better in throughput, DP and memory at once.",
)
@click.option(
    "--within",
    type=click.FloatRange(0, 1000),
    default=None,
    metavar="PERCENT",
    help="How much slower than the fastest layout plans of --pareto may be; 10 by default.",
)
@click.option(
    "--binding",
    is_flag=True,
    help="Relax each limit, pin and resource by one step, and solve again: what it would gain.",
)
@click.option(
    "--picture",
    metavar="PNG|SVG",
    help="Draw the cluster: which GPUs hold which stages and expert groups, which stay idle.",
)
@quiet_option
@click.pass_context
def solve(
    ctx: click.Context,
    file: str,
    json_path: str | None,
    html_path: str | None,
    overrides: tuple[str, ...],
    time_limit_s: float | None,
    top: int | None,
    pareto: bool,
    within: float | None,
    binding: bool,
    picture: str | None,
    quiet: bool,
) -> None:
    """Find the best layout of the scenario FILE and prove that none is better.

    Ctrl-C and --time-limit give the best plan so far and what is proved.
    """
    import meshplan
    from meshplan.cli.output import deliver, page_file, picture_file
    from meshplan.cli.progress import shown_progress
    from meshplan.cli.whole_file import keep_apart, output_file
    from meshplan.scenarios import input_files

    if within is not None and not pareto:
        raise click.UsageError("--within is for --pareto: give both.")
    share = (_WITHIN if within is None else within) / 100
    target, page = output_file(json_path, "--json"), page_file(html_path)
    drawing, form = picture_file(picture)
    scenario = meshplan.load(file, overrides)
    keep_apart([target, page, drawing], input_files(scenario))
    with shown_progress(quiet) as progress:
        result = meshplan.solve(
            scenario,
            time_limit_s=time_limit_s,
            progress=progress,
            top=top or 0,
            pareto_within=share if pareto else None,
            binding=binding,
        )
    if drawing is not None and isinstance(result, meshplan.Plan):
        drawing.write(meshplan.place(result).picture(form))
    ctx.exit(deliver(result, json_path, target, quiet, page))
