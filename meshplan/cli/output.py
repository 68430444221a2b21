"""Where the result of a command goes: a file, standard output, the terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from meshplan.cli.exit_codes import DONE, INFEASIBLE, NOT_AS_HOPED, STOPPED
from meshplan.cli.whole_file import WholeFile

if TYPE_CHECKING:
    from meshplan.solver.report.text import Result


class HasJson(Protocol):
    """A result that can be written as JSON."""

    def to_json(self) -> dict[str, Any]:
        """The result as plain data."""


#: Exit code by the status of a result.
EXIT_CODES = {
    "optimal": DONE,
    "possible": DONE,
    "ok": DONE,
    "compared": DONE,
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


def exit_code(result: Result) -> int:
    """The exit code that a result deserves."""
    code = EXIT_CODES[result.status]
    # A comparison with a plan that is not proved optimal is no final answer.
    return STOPPED if code == DONE and not getattr(result, "proved", True) else code


def page_file(path: str | None) -> WholeFile | None:
    """The file of ``--html``, checked; None where there is none.

    Raises
    ------
    InputError
        If it cannot be written, or the libraries that draw the figures are not installed.
    """
    if path is None:
        return None
    from meshplan.solver.report.html.vega import need_plotting

    need_plotting()
    return WholeFile(path, "--html")


def picture_file(path: str | None) -> tuple[WholeFile | None, str]:
    """The file of ``--picture``, checked, and its format: ``png`` or ``svg``.

    Raises
    ------
    InputError
        If it cannot be written, its name ends otherwise, or Matplotlib is not installed.
    """
    if path is None:
        return None, ""
    from meshplan.scenarios.errors import InputError
    from meshplan.solver.extras import need

    need("matplotlib", "plot", "--picture")
    file, form = WholeFile(path, "--picture"), path.lower().rpartition(".")[2]
    if form not in ("png", "svg"):
        raise InputError(
            f"{file.said}, but a picture is a .png or a .svg file", advice="end its name so."
        )
    return file, form


def deliver(
    result: Result,
    json_path: str | None,
    file: WholeFile | None,
    quiet: bool,
    page: WholeFile | None = None,
) -> int:
    """Write and print a result; the exit code that it deserves."""
    code = exit_code(result)
    if page is not None:
        page.write(result.to_html())
    if not (written_to_stdout(result, json_path, file) or quiet):
        show(result)
    return code


def written_to_stdout(result: HasJson, json_path: str | None, file: WholeFile | None) -> bool:
    """Write a result as JSON if asked to; whether it went to standard output, instead of a report.

    ``file`` is the one that ``json_path`` names; None for standard output.
    """
    if json_path is None:
        return False
    from meshplan.solver.report.data import dumps

    text = dumps(result.to_json())
    if file is None:
        sys.stdout.write(text)
        return True
    file.write(text)
    return False


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
