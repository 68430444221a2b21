"""``meshplan check``: judge one layout, with no solver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
)

if TYPE_CHECKING:
    from meshplan.cli.whole_file import WholeFile
    from meshplan.scenarios import Scenario


@click.command(short_help="Judge one layout, with no search.")
@scenario_argument
@layout_option
@arguments_option
@json_option
@html_option
@set_option
@quiet_option
@click.pass_context
def check(
    ctx: click.Context,
    file: str,
    layout: str | None,
    arguments_file: str | None,
    json_path: str | None,
    html_path: str | None,
    overrides: tuple[str, ...],
    quiet: bool,
) -> None:
    """Judge one layout of the scenario FILE: rules broken, memory, step time, advice.

    Exit code 1 if the layout is illegal or does not fit.

    \b
    Keys of --layout, joined by commas:
      tp cp pp vpp dp ep etp edp mbs ga gbs   degrees and batch
      gpus=256               the number of GPUs: must be the cluster's
      recompute=moe+mlp      modules joined by +, full or none
      offload=100            percent of the optimizer state on the host
      dispatcher=deepep      alltoall, deepep or hybridep
      cp_comm=p2p            p2p, a2a, a2a+p2p or all_gather
      graphs=attn+mlp        scopes of CUDA graphs joined by +, or none
      pipeline="Et*3|(tt|)*29m|L"   Megatron's layout string, or even

    With `auto` a key is open though the scenario pins it.
    """  # noqa: D301 - click reads the character, not the two
    import meshplan
    from meshplan.cli.output import deliver, page_file
    from meshplan.cli.whole_file import output_file

    target, page = output_file(json_path, "--json"), page_file(html_path)
    scenario, stated = asked_layout(file, overrides, layout, arguments_file, [target, page], quiet)
    report = meshplan.check(scenario, stated)
    ctx.exit(deliver(report, json_path, target, quiet, page))


def asked_layout(
    file: str,
    overrides: tuple[str, ...],
    layout: str | None,
    arguments_file: str | None,
    targets: Sequence[WholeFile | None],
    quiet: bool,
) -> tuple[Scenario, Mapping[str, object] | str | None]:
    """The scenario, and the layout that --layout or --args gives.

    Raises
    ------
    click.UsageError
        If both give one.
    InputError
        If they cannot be read, or the result would be written over one of the files.
    """
    import meshplan
    from meshplan.cli.whole_file import keep_apart
    from meshplan.scenarios import input_files

    if layout is not None and arguments_file is not None:
        raise click.UsageError("--layout and --args both give a layout; use one of them.")
    scenario = meshplan.load(file, overrides)
    keep_apart(targets, {**input_files(scenario), "--args": arguments_file})
    if arguments_file is not None:
        return _with_arguments(scenario, arguments_file, quiet)
    return scenario, layout


def _with_arguments(
    scenario: Scenario, arguments_file: str, quiet: bool
) -> tuple[Scenario, dict[str, object]]:
    """The scenario with the recipe of a launch script, and the layout that the script states.

    What the user should know goes to standard error.
    """
    from meshplan.cli.imports import argument_findings, print_findings
    from meshplan.scenarios import resolve_model
    from meshplan.scenarios.importers import read_arguments_file
    from meshplan.scenarios.importers.agreement import disagreements, with_recipe

    arguments = read_arguments_file(arguments_file)
    model = resolve_model(scenario)
    part = arguments.to_scenario_part(model.layers)
    changed, taken = with_recipe(scenario, part)
    if not quiet:
        found = disagreements(arguments, part, scenario, model)
        print_findings([*found, *taken, *argument_findings(arguments, part)])
    return changed, part.stated_layout()
