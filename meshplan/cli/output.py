"""Where output goes: files that are written whole or not at all, and the terminal."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from meshplan.cli.exit_codes import DONE, INFEASIBLE, NOT_AS_HOPED, STOPPED

if TYPE_CHECKING:
    from meshplan.scenarios.errors import InputError
    from meshplan.solver.report.text import Result

#: Exit code by the status of a result.
EXIT_CODES = {
    "optimal": DONE,
    "ok": DONE,
    "tie": DONE,
    "slower": DONE,
    "faster": DONE,
    "illegal": NOT_AS_HOPED,
    "overfull": NOT_AS_HOPED,
    "infeasible": INFEASIBLE,
    "feasible": STOPPED,
    "unknown": STOPPED,
}
#: Columns of a report that goes into a file or pipe.
_PLAIN_WIDTH = 100


class WholeFile:
    """A file that appears whole or not at all.

    Parameters
    ----------
    path
        Where it shall be.
    option
        What the user wrote it after, for messages: ``--json``.

    Raises
    ------
    InputError
        At once, if it could not be written: so nobody waits for an answer that cannot be kept.
    """

    def __init__(self, path: str, option: str) -> None:
        self._shown = path
        self._option = option
        try:
            self._path = Path(os.path.realpath(path))
            self._is_special = self._path.exists() and not self._path.is_file()
            if self._path.is_dir():
                raise IsADirectoryError(21, "it is a folder")
            if self._is_special:  # a device or pipe cannot be replaced, only written
                return
            if self._path.exists() and not os.access(self._path, os.W_OK):
                raise PermissionError(13, "it is read-only")
            os.unlink(self._temporary())
        except (OSError, ValueError) as error:
            raise self._refusal(error) from None

    def write(self, content: str | bytes) -> None:
        """Put the file in its place; text is written as UTF-8.

        Raises
        ------
        InputError
            If it cannot be written after all; nothing is left behind.
        """
        temporary = None
        try:
            data = content.encode("utf-8") if isinstance(content, str) else content
            if self._is_special:
                self._path.write_bytes(data)
                return
            temporary = self._temporary()
            with open(temporary, "wb") as file:
                file.write(data)
            os.chmod(temporary, self._mode())
            os.replace(temporary, self._path)
        except (OSError, ValueError) as error:
            if temporary is not None and os.path.exists(temporary):
                os.unlink(temporary)
            raise self._refusal(error) from None

    def _temporary(self) -> str:
        handle, name = tempfile.mkstemp(prefix=f".{self._path.name[:40]}.", dir=self._path.parent)
        os.close(handle)
        return name

    def _mode(self) -> int:
        if self._path.exists():
            return self._path.stat().st_mode & 0o777
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask

    def _refusal(self, error: Exception) -> InputError:
        from meshplan.scenarios.errors import InputError
        from meshplan.scenarios.yaml_reader import shorten

        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return InputError(
            f"{self._option} is {shorten(self._shown)}, but that cannot be written ({why})",
            advice="give the path of a file in an existing folder that you may write to.",
        )


def json_file(json_path: str | None) -> WholeFile | None:
    """The file for ``--json``, checked; None for none or standard output.

    Raises
    ------
    InputError
        If it cannot be written.
    """
    return None if json_path in (None, "-") else WholeFile(str(json_path), "--json")


def exit_code(result: Result) -> int:
    """The exit code that a result deserves."""
    code = EXIT_CODES[result.status]
    # A comparison with a plan that is not proved optimal is no final answer.
    return STOPPED if code == DONE and not getattr(result, "proved", True) else code


def deliver(result: Result, json_path: str | None, file: WholeFile | None, quiet: bool) -> int:
    """Write and print a result; the exit code that it deserves."""
    code = exit_code(result)
    if json_path is not None:
        from meshplan.solver.report.data import dumps

        text = dumps(result.to_json())
        if file is None:
            sys.stdout.write(text)
            return code
        file.write(text)
    if not quiet:
        show(result)
    return code


def show(result: Result) -> None:
    """Print the report: in colour on a terminal, as plain text elsewhere."""
    from meshplan.solver.report.text import render, render_text

    if not sys.stdout.isatty():
        sys.stdout.write(render_text(result, _PLAIN_WIDTH))
        return
    from rich.console import Console

    render(result, Console())


def print_table(
    rows: Iterable[Sequence[str]],
    *,
    title: str = "",
    columns: Sequence[str] = (),
    numbers: Sequence[str] = (),
) -> None:
    """Print rows as aligned columns, the last of which may wrap, then an empty line.

    Parameters
    ----------
    columns
        Heads of the columns; none for a table of names and texts.
    numbers
        Those of ``columns`` that are aligned to the right.
    """
    import click
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    known = list(rows)
    width = min(Console().width, _PLAIN_WIDTH) if sys.stdout.isatty() else _PLAIN_WIDTH
    console = Console(width=width, highlight=False)
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=bool(columns), pad_edge=False)
    for index in range(len(known[0])):
        head = columns[index] if columns else ""
        table.add_column(
            Text(head),
            justify="right" if head in numbers else "left",
            no_wrap=index < len(known[0]) - 1,
            overflow="fold",
        )
    indent = "  " if title else ""
    for row in known:
        table.add_row(Text(indent + row[0]), *(Text(text) for text in row[1:]))
    with console.capture() as captured:
        if title:
            console.print(Text(title, style="bold"))
        console.print(table)
    lines = captured.get().splitlines()
    click.echo("\n".join(line.rstrip() for line in lines) + "\n")
