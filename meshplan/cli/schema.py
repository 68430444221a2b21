"""``meshplan schema``: JSON Schema of scenario files, for editors."""

from __future__ import annotations

import json

import click


@click.command()
def schema() -> None:
    """Print the JSON Schema of scenario files, for editors."""
    from meshplan.scenarios import json_schema

    click.echo(json.dumps(json_schema(), indent=2))
