"""``meshplan flops``: the FLOPs of one model, by part and sequence length."""

from __future__ import annotations

import sys

import click

from meshplan.cli.options import json_option


@click.command(short_help="Count the FLOPs of a model.")
@click.argument("model", metavar="MODEL")
@click.option(
    "--seq",
    "seq_lens",
    type=int,
    multiple=True,
    metavar="N",
    help="Tokens in a sequence; repeat it to compare several. A scenario has one of its own.",
)
@json_option
def flops(model: str, seq_lens: tuple[int, ...], json_path: str | None) -> None:
    """Count the training FLOPs of MODEL per token and per sequence, as published figures do.

    MODEL is a model card (see `meshplan models`), a scenario file, or a Hugging Face config.json;
    `-` is a config.json on standard input.  Recompute is not counted; what it would add is shown.
    """
    from meshplan.cli.output import written_to_stdout
    from meshplan.cli.whole_file import keep_apart, output_file
    from meshplan.solver.report.flops import files_of
    from meshplan.solver.report.flops import flops as flops_of

    target = output_file(json_path, "--json")
    report = flops_of(model, seq_lens)
    keep_apart([target], files_of(model))
    if written_to_stdout(report, json_path, target):
        return
    if not sys.stdout.isatty():
        sys.stdout.write(str(report))
        return
    from rich.console import Console

    report.render(Console())
