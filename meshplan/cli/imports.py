"""``meshplan import``: files that people have, as parts of a scenario."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from meshplan.cli.import_runs import import_runs
from meshplan.cli.import_topology import import_topology
from meshplan.cli.part_output import PartOutput, part_options

if TYPE_CHECKING:
    from meshplan.scenarios.importers import MegatronArguments, ScenarioPart

#: Most unknown flags that are listed one by one.
_MOST_LISTED = 200


@click.group(name="import", short_help="Turn files that people have into parts of a scenario.")
def imports() -> None:
    """Turn files that people have into parts of a scenario.

    The part goes to standard output, what was decided or left out to standard error.
    """


@imports.command(name="args", short_help="Megatron launch arguments.")
@click.argument("file", metavar="FILE|-")
@part_options
def import_args(file: str, output: str | None, json_path: str | None) -> None:
    """Read Megatron-LM launch arguments: degrees, options and workload of a run.

    FILE is a launch script, the arguments as Megatron-LM prints them, or a string such as
    tp4_pp2_ep8; `-` is standard input.  Nothing in it is executed.
    """
    from meshplan.scenarios.importers import read_arguments_file

    target = PartOutput(output, json_path, {"the file to import": file})
    arguments = read_arguments_file(file)
    part = arguments.to_scenario_part()
    findings = argument_findings(arguments, part)
    sections = dict(part.sections())
    data = sections | {
        "source": arguments.source,
        "form": arguments.form,
        "settings": [
            {"name": one.name, "value": one.value, "line": one.line} for one in arguments.settings
        ],
        "unknown": [
            {"flag": one.name, "line": one.line, "near": one.near} for one in arguments.unknown
        ],
        "notes": [*arguments.notes, *part.notes],
    }
    target.deliver(_yaml(sections, arguments.source), data)
    print_findings(findings)


@imports.command(name="model", short_help="A Hugging Face config.json.")
@click.argument("file", metavar="CONFIG.json|-")
@click.option("--name", metavar="NAME", help="Name of the card; else from the file or its folder.")
@part_options
def import_hf_model(file: str, name: str | None, output: str | None, json_path: str | None) -> None:
    """Read a Hugging Face config.json as a model card.

    Architectures that are not known, or that a card cannot hold, are refused with the reason.
    """
    from meshplan.scenarios.importers import import_model
    from meshplan.scenarios.parameters import active_parameters, total_parameters

    target = PartOutput(output, json_path, {"the file to import": file})
    imported = import_model(file, name)
    total, active = total_parameters(imported.card), active_parameters(imported.card)
    findings = [
        f"{imported.card.name}: {total / 1e9:.2f} B parameters, {active / 1e9:.2f} B active, "
        "without MTP layers",
        *(f"not held by a card: {text}" for text in imported.approximations),
        *imported.notes,
    ]
    sections = {"model": imported.figures()}
    data = sections | {
        "family": imported.family,
        "parameters_b": round(total / 1e9, 3),
        "active_b": round(active / 1e9, 3),
        "approximations": list(imported.approximations),
        "notes": list(imported.notes),
    }
    target.deliver(_yaml(sections, file), data)
    print_findings(findings)


imports.add_command(import_runs)
imports.add_command(import_topology)


def argument_findings(arguments: MegatronArguments, part: ScenarioPart) -> list[str]:
    """What the user should know about arguments that were read: defaults, and what was not read."""
    findings = [*part.notes, *arguments.notes]
    for one in arguments.unknown[:_MOST_LISTED]:
        if one.near is not None:
            findings.append(f"line {one.line}: {one.name} is not known; did you mean {one.near}?")
    others = [one for one in arguments.unknown if one.near is None]
    if others:
        names = ", ".join(f"{one.name[:60]} (line {one.line})" for one in others[:_MOST_LISTED])
        more = f" and {len(others) - _MOST_LISTED} more" if len(others) > _MOST_LISTED else ""
        count = "1 flag is" if len(others) == 1 else f"{len(others)} flags are"
        findings.append(f"{count} not read: {names}{more}")
    return findings


def print_findings(findings: list[str], label: str = "note") -> None:
    """Print findings on standard error, one a line, each with a label."""
    from meshplan.scenarios.errors import one_line

    for text in findings:
        click.echo(f"{label}: {one_line(text)}", err=True)


def _yaml(sections: dict[str, Any], origin: str) -> str:
    import yaml

    from meshplan.scenarios.errors import one_line

    body = yaml.safe_dump(sections, sort_keys=False, default_flow_style=None, width=100)
    return f"# from {one_line(origin)}\n{body}"
