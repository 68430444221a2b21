"""What ``meshplan test`` keeps of a run: new expectations, and the lock of the answers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from meshplan import __version__
from meshplan.cli.case_lines import case_lines, fault_lines
from meshplan.cli.whole_file import WholeFile
from meshplan.scenarios.checks import shown
from meshplan.scenarios.errors import InputError, one_line
from meshplan.suite.case import Case, Fault
from meshplan.suite.lock import Lock, read_lock
from meshplan.suite.update import NoUpdate, update_of

if TYPE_CHECKING:
    from collections.abc import Iterator

_DEFAULT = "meshplan.lock"
_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


def updated(case: Case) -> Case:
    """The case with its answer as what it expects, once that is shown and written.

    A file that cannot be changed stays as it is, and its case fails.
    """
    try:
        change = update_of(case)
        if change is None:
            return case
        for line in change.diff():
            click.echo(click.style(one_line(line), fg=_COLOURS.get(line[:1])))
        WholeFile(str(case.file), "--update").write(change.content)
    except (NoUpdate, InputError) as error:
        fault = Fault(f"not updated: {error}", str(case.file), 1)
        click.echo(one_line(str(case.file)))
        for line in fault_lines([fault]):
            click.echo(line)
        return replace(case, outcome="FAIL", faults=(*case.faults, fault))
    # Beside its expectation a case may differ from the lock, which stays a failure.
    left = case.faults[len(case.mismatches) :]
    return replace(case, outcome="FAIL" if left else "updated", faults=left)


class LockFile:
    """The options ``--lock``, ``--locked`` and ``--lock-file``.

    Attributes
    ----------
    target
        The file that will be written; None if none will.

    Raises
    ------
    click.UsageError
        If the options do not go together.
    InputError
        If the file cannot be read or written.
    """

    def __init__(self, path: str | None, *, writes: bool, holds: bool) -> None:
        if writes and holds:
            raise click.UsageError("--lock writes the answers, --locked compares: use one of them.")
        if path is not None and not (writes or holds):
            raise click.UsageError("--lock-file is for --lock and --locked: give one of them.")
        name = path or _DEFAULT
        self.target = WholeFile(name, "--lock-file") if writes else None
        self._held = _lock_to_hold(name) if holds else None
        if self.target is not None:
            self._old = read_lock(name) if os.path.exists(name) else Lock(self.target.path)

    def held(self, case: Case) -> Case:
        """The case, failed if ``--locked`` is given and the answer is another than locked."""
        return case if self._held is None else self._held.held(case)

    def vanished(self, *, annotate: bool) -> Iterator[Case]:
        """With ``--locked``, a failed case for locked scenarios that are no more."""
        case = self._held.vanished() if self._held is not None else None
        if case is not None:
            yield case
            for line in case_lines(case, 0, annotate=annotate):
                click.echo(line)

    def written(self, cases: Sequence[Case]) -> list[Case]:
        """The cases, after ``--lock`` has written their answers, if all are proved."""
        if self.target is None:
            return list(cases)
        without = [one for one in cases if one.answer is None or not one.answer.final]
        if without:
            names = ", ".join(one_line(str(one.file)) for one in without[:3])
            more = f" and {len(without) - 3} more" if len(without) > 3 else ""
            fault = Fault(f"not written: there is no proved answer to {names}{more}")
            case = Case(self.target.path, "FAIL", faults=(fault,), said="as before")
            for line in case_lines(case, 0):
                click.echo(line)
            return [*cases, case]
        new = self._old.with_answers(cases)
        text = new.dumps()
        if text != self._old.text:
            self.target.write(text)
        click.echo(f"{one_line(str(self.target.path))}: {new.changes_from(self._old)}")
        return list(cases)


def _lock_to_hold(name: str) -> Lock:
    if not os.path.exists(name):
        raise InputError(
            f"--locked is given, but there is no {shown(name)}",
            advice="write it first: meshplan test --lock.",
        )
    lock = read_lock(name)
    if lock.meshplan != __version__:
        said = f"{lock.file} was written by meshplan {lock.meshplan}, this is {__version__}"
        click.echo(f"note: {one_line(said)}", err=True)
    return lock


__all__ = ["LockFile", "updated"]
