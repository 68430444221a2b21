"""``meshplan export``: a plan as launch flags, overrides or a batch script."""

from __future__ import annotations

import click

_TARGETS = ("megatron-lm", "megatron-bridge", "slurm")


@click.command(short_help="Turn a plan into launch flags, overrides or a batch script.")
@click.argument("file", metavar="PLAN.json")
@click.option(
    "--to", "target", type=click.Choice(_TARGETS), required=True, help="What to make of it."
)
@click.option(
    "--with-model", is_flag=True, help="Begin with the flags of the model; for megatron-lm."
)
@click.option("--out", "out", metavar="PATH|-", help="Write it to a file, whole or not at all.")
def export(file: str, target: str, with_model: bool, out: str | None) -> None:
    """Turn a plan that `solve --json` or `check --json` wrote into what launches it.

    megatron-lm: flags in a bash array; megatron-bridge: overrides of a recipe; slurm: a script for
    sbatch.  Each with the environment variables that the plan needs.  A plan that was edited, or
    whose figures this version does not get, is refused.
    """
    from meshplan import __version__
    from meshplan.cli.whole_file import keep_apart, output_file
    from meshplan.solver.export.documents import megatron_bridge, megatron_lm
    from meshplan.solver.export.plan_file import read_plan
    from meshplan.solver.export.slurm import slurm

    if with_model and target != "megatron-lm":
        raise click.UsageError("--with-model is for --to megatron-lm: recipes have their model.")
    written = output_file(out, "--out")
    keep_apart([written], {"the plan": file})
    plan, written_by = read_plan(file), f"meshplan {__version__}"
    if target == "megatron-lm":
        text = megatron_lm(plan, written_by, with_model=with_model)
    else:
        text = (megatron_bridge if target == "megatron-bridge" else slurm)(plan, written_by)
    if written is None:
        click.echo(text, nl=False)
    else:
        written.write(text)
