"""``meshplan check``: judge one layout, with no solver."""

from __future__ import annotations

import click

from meshplan.cli.options import json_option, quiet_option, scenario_argument, set_option


@click.command(short_help="Judge one layout, with no search.")
@scenario_argument
@click.option(
    "--layout",
    metavar="TEXT",
    help='"tp=1,cp=32,ep=32,pp=8,vpp=4": see below. What it leaves open comes from the '
    "scenario's pins, then is completed.",
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
    r"""Judge one layout of the scenario FILE: rules broken, memory, step time, advice.

    Exit code 1 if the layout is illegal or does not fit.

    \b
    Keys of --layout, joined by commas:
      tp cp pp vpp dp ep etp edp mbs ga gbs   degrees and batch
      recompute=moe+mlp      modules joined by +, full or none
      offload=100            percent of the optimizer on the host
      dispatcher=deepep      alltoall, deepep or hybridep
      cp_comm=p2p            p2p, a2a, a2a+p2p or all_gather
      graphs=attn+mlp        scopes of CUDA graphs joined by +, or none
      pipeline="Et*3|(tt|)*29m|L"   Megatron's layout string, or even
    """
    import meshplan
    from meshplan.cli.output import deliver, json_file

    target = json_file(json_path)
    report = meshplan.check(meshplan.load(file, overrides), layout)
    ctx.exit(deliver(report, json_path, target, quiet))
