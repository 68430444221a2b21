"""Where ``meshplan import`` puts a part and the findings: files, standard output."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click


def findings_option(instead_of: str) -> Callable[[Any], Any]:
    """Option ``--json``, which alone stands for ``--json -``."""
    return click.option(
        "--json",
        "json_path",
        metavar="PATH|-",
        is_flag=False,
        flag_value="-",
        help="Write JSON with all findings to a file, or to standard output instead of the "
        f"{instead_of}.",
    )


def part_options(command: Any) -> Any:
    """Options ``--output`` and ``--json``."""
    command = findings_option("part")(command)
    return click.option(
        "--output",
        "-o",
        metavar="PATH|-",
        help="Write the part to a file, whole or not at all; `import runs` adds to a table.",
    )(command)


class PartOutput:
    """The files of ``--output`` and ``--json``, checked at once.

    Parameters
    ----------
    output, json_path
        As given; ``-`` is standard output.
    inputs
        What is read, by what a message shall call it.

    Attributes
    ----------
    path
        Path of ``--output``, if that is a file.

    Raises
    ------
    InputError
        If a file cannot be written, is read, or is given twice.
    """

    def __init__(
        self, output: str | None, json_path: str | None, inputs: Mapping[str, str | Path]
    ) -> None:
        from meshplan.cli.whole_file import DASH, keep_apart, output_file

        self._part = output_file(output, "--output")
        self._json = output_file(json_path, "--json")
        self._prints_json = json_path == DASH
        self.path = output if self._part is not None else None
        keep_apart([self._part, self._json], inputs)

    def deliver(self, part: str, data: Mapping[str, Any]) -> None:
        """Write and print the part and, if it was asked for, ``data`` as JSON."""
        findings = json.dumps(data, indent=2) + "\n"
        if self._part is not None:
            self._part.write(part)
        elif not self._prints_json:
            click.echo(part, nl=False)
        if self._json is not None:
            self._json.write(findings)
        elif self._prints_json:
            click.echo(findings, nl=False)


__all__ = ["PartOutput", "findings_option", "part_options"]
