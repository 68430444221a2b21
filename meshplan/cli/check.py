"""``meshplan check``: judge one layout, with no solver."""

from __future__ import annotations

import click

from meshplan.cli.options import json_option, quiet_option, scenario_argument, set_option


@click.command()
@scenario_argument
@click.option(
    "--layout",
    metavar="TEXT",
    help='Degrees and options: "tp=1,cp=32,ep=32,pp=8,vpp=4,recompute=moe+mlp,offload=100". Keys: '
    "tp cp pp vpp dp ep etp edp mbs ga gbs, recompute (modules joined by +, full or none), "
    "offload (percent), dispatcher, cp_comm, graphs (scopes joined by +), pipeline (a layout "
    "string, or even). What is left open comes from the scenario's pins, then is completed.",
)
@json_option
@set_option
@quiet_option
@click.pass_context
def check(
    ctx: click.Context,
    file: str,
    layout: str | None,
    json_path: str | None,
    overrides: tuple[str, ...],
    quiet: bool,
) -> None:
    """Judge one layout of the scenario FILE: rules broken, memory, step time, advice.

    Exit code 1 if the layout is illegal or does not fit.
    """
    import meshplan
    from meshplan.cli.output import deliver, json_file

    target = json_file(json_path)
    report = meshplan.check(meshplan.load(file, overrides), layout)
    ctx.exit(deliver(report, json_path, target, quiet))
