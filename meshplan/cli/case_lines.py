"""The lines of ``meshplan test``: one a case in the order of the files, and what runs just now."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from meshplan.scenarios.errors import one_line, printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live

    from meshplan.suite.case import Case, Fault
    from meshplan.suite.workers import Tick

_STYLES = {"pass": "green", "FAIL": "red", "ERROR": "red"}
_OTHER_STYLE = "yellow"
#: Before the lines of a fault: so none of them begins as a command of GitHub Actions does.
_BAR = "      | "
#: Names of running scenarios that fit into one line.
_MOST_NAMED = 3


class CaseLines:
    """Prints the cases of a run, in the order of ``files`` whatever order they end in.

    Parameters
    ----------
    annotate
        Whether each fault gets an annotation of GitHub Actions, too.
    """

    def __init__(self, files: Sequence[Path], *, annotate: bool) -> None:
        self._files = files
        self._width = max(len(one_line(str(file))) for file in files)
        self._annotate = annotate
        self._cases: dict[int, Case] = {}
        self._printed = 0
        self._console, self._live = _live_line()

    def add(self, index: int, case: Case) -> None:
        """Take the outcome of ``files[index]``; print it once all before it are printed."""
        self._cases[index] = case
        while self._printed in self._cases:
            self._print(self._cases[self._printed])
            self._printed += 1

    def add_rest(self) -> list[Case]:
        """Print what is left, cases without an outcome as not run; the cases of all files."""
        from meshplan.suite.case import Case

        for index, file in enumerate(self._files):
            if index not in self._cases:
                self.add(index, Case(file, "not run"))
        return [self._cases[index] for index in range(len(self._files))]

    def tick(self, tick: Tick) -> None:
        """Show which files are at work."""
        if self._live is None:
            return
        failed = sum(case.failed for case in self._cases.values())
        parts = [f"{len(self._cases)} of {len(self._files)}"]
        parts += [f"{failed} failed"] if failed else []
        running = [f"{one_line(file.stem)} {s:.0f} s" for file, s in tick.running.items()]
        more = f" and {len(running) - _MOST_NAMED} more" if len(running) > _MOST_NAMED else ""
        parts.append(", ".join(running[:_MOST_NAMED]) + more)
        from rich.spinner import Spinner

        self._live.update(Spinner("dots", "   ".join(parts)))

    def _print(self, case: Case) -> None:
        for line in case_lines(case, self._width, annotate=self._annotate):
            self._echo(line)

    def _echo(self, line: str) -> None:
        if self._console is None:
            click.echo(line)
            return
        from rich.text import Text

        self._console.print(Text.from_ansi(line), soft_wrap=True)

    def __enter__(self) -> CaseLines:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()


def case_lines(case: Case, width: int, *, annotate: bool = False) -> Iterator[str]:
    """The lines of one case, the path padded to ``width``: outcome, faults, annotations."""
    outcome = click.style(f"{case.outcome:5}", fg=_STYLES.get(case.outcome, _OTHER_STYLE))
    file = one_line(str(case.file))
    if case.outcome == "not run":
        yield f"{outcome} {file}"
        return
    yield f"{outcome} {file:{width}} {case.seconds:7.2f} s  {one_line(case.said)}"
    yield from fault_lines(case.faults)
    if annotate:
        from meshplan.suite.github import workflow_commands

        yield from workflow_commands(case)


def fault_lines(faults: Iterable[Fault]) -> Iterator[str]:
    """The lines of faults."""
    for fault in faults:
        for line in printable(fault.text).split("\n"):
            yield _BAR + line


def _live_line() -> tuple[Console | None, Live | None]:
    """The console that lines must go through, and the line that shows what runs.

    That line stands below the others where both go to one terminal; it is on standard error where
    only that is a terminal, and nowhere else.
    """
    if not sys.stderr.isatty():
        return None, None
    from rich.console import Console
    from rich.live import Live

    both = sys.stdout.isatty()
    console = Console(highlight=False) if both else Console(stderr=True)
    live = Live(console=console, transient=True, redirect_stdout=False, redirect_stderr=False)
    return (console if both else None), live


__all__ = ["CaseLines", "case_lines", "fault_lines"]
