"""``meshplan schema``: JSON Schema of scenario files, for editors, and of a diagnosis."""

from __future__ import annotations

import json

import click


@click.command()
@click.argument(
    "what", type=click.Choice(["scenario", "diagnosis"]), default="scenario", metavar="[WHAT]"
)
def schema(what: str) -> None:
    """Print the JSON Schema of scenario files, for editors.

    With `diagnosis`, that of what `meshplan diagnose --json` writes.
    """
    if what == "scenario":
        from meshplan.scenarios import json_schema as made
    else:
        from meshplan.solver.report.diagnosis_schema import diagnosis_schema as made
    click.echo(json.dumps(made(), indent=2))
