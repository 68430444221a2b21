"""``meshplan diff``: two results side by side."""

from __future__ import annotations

import click

from meshplan.cli.options import html_option, json_option, quiet_option, time_limit_option


@click.command(short_help="Compare two plans, decision by decision.")
@click.argument("first", metavar="A.json")
@click.argument("second", metavar="B.json")
@json_option
@html_option
@time_limit_option
@quiet_option
@click.pass_context
def diff(
    ctx: click.Context,
    first: str,
    second: str,
    json_path: str | None,
    html_path: str | None,
    time_limit_s: float | None,
    quiet: bool,
) -> None:
    """Compare two results that `solve --json` or `check --json` wrote.

    Which decisions differ, where the time goes, and what each decision of B costs or gains when A
    takes it alone. Both are costed again by this version.
    """
    import meshplan
    from meshplan.cli.output import deliver, page_file
    from meshplan.cli.whole_file import keep_apart, output_file

    target, page = output_file(json_path, "--json"), page_file(html_path)
    keep_apart([target, page], {"A.json": first, "B.json": second})
    report = meshplan.diff(first, second, time_limit_s=time_limit_s)
    ctx.exit(deliver(report, json_path, target, quiet, page))
