"""Where the result of a command goes: a file, standard output, the terminal."""

from __future__ import annotations

import sys
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
    from meshplan.cli.text_table import PLAIN_WIDTH
    from meshplan.solver.report.text import render, render_text

    if not sys.stdout.isatty():
        sys.stdout.write(render_text(result, PLAIN_WIDTH))
        return
    from rich.console import Console

    render(result, Console())
