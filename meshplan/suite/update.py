"""``meshplan test --update``: what came out becomes what is expected."""

from __future__ import annotations

import difflib
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from meshplan.scenarios import InputError, loads
from meshplan.scenarios.files import read_file
from meshplan.suite.case import Case, digest_of
from meshplan.suite.expectations import mismatches
from meshplan.suite.rewrite import CannotRewrite, Value, with_expectation

if TYPE_CHECKING:
    from meshplan.scenarios import Expect, Scenario
    from meshplan.suite.answer import Answer

#: Degrees of a new expectation; the others follow from them and the cluster.
_DEGREES = ("tp", "cp", "pp", "ep")
_MARK = b"\xef\xbb\xbf"


class NoUpdate(Exception):
    """Why a file stays as it is, in words."""


@dataclass(frozen=True)
class Update:
    """A file whose expectation changes.

    Attributes
    ----------
    old, new
        Its text.
    marked
        Whether it begins with the byte order mark of UTF-8.
    """

    file: Path
    old: str
    new: str
    marked: bool

    @property
    def content(self) -> bytes:
        """The new file."""
        return (_MARK if self.marked else b"") + self.new.encode()

    def diff(self) -> Iterator[str]:
        """The lines of a unified diff, without line ends."""
        name = self.file.as_posix()
        for line in difflib.unified_diff(_lines(self.old), _lines(self.new), name, name):
            yield line.rstrip("\r\n")
            if not line.endswith("\n"):
                yield "\\ No newline at end of file"


def _lines(text: str) -> list[str]:
    """Lines with their ends; only a line feed ends one, as for the YAML parser's marks."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def update_of(case: Case) -> Update | None:
    """The file with the expectation that its answer meets; None where it needs no change.

    Raises
    ------
    NoUpdate
        If there is no proved answer to expect, or the file must not or cannot be changed.
    """
    if case.answer is None or not (case.mismatches or case.outcome == "open"):
        return None
    if not case.answer.final:
        raise NoUpdate(f"{case.answer.status} is no answer to expect: it is not proved")
    _refuse_special(case.file)
    text, marked = read_file(case.file), case.file.read_bytes().startswith(_MARK)
    if digest_of(text) != case.digest:
        raise NoUpdate("the file changed while it was solved")
    before = loads(text, str(case.file))
    wanted = expectation(before.expect, case.answer)
    try:
        new = with_expectation(text, wanted)
    except CannotRewrite as error:
        raise NoUpdate(f"{error}; write by hand: expect: {dict(wanted)}") from None
    _verify(before, new, case.answer, wanted)
    return Update(case.file, text, new, marked)


def _refuse_special(file: Path) -> None:
    """Refuse a file that is more than one, or that somebody has protected."""
    found = os.lstat(file)
    if stat.S_ISLNK(found.st_mode):
        raise NoUpdate(f"it is a link to {os.readlink(file)}; update that file")
    if found.st_nlink > 1:
        raise NoUpdate(f"it has {found.st_nlink} names (hard links), which would be cut apart")
    if not found.st_mode & 0o222 or not os.access(file, os.W_OK):
        raise NoUpdate("it is read-only")


def expectation(expect: Expect | None, answer: Answer) -> dict[str, Value]:
    """What ``answer`` meets, in as much detail as ``expect`` has.

    Where the kind of answer changes, the status, and for a conflict its rules.  Without an
    expectation so far, the status and the conflict or the degrees that the others follow from.
    """
    if answer.status == "infeasible":
        rules = {"conflict": answer.conflicts[0]} if answer.conflicts else {}
        return {"status": "infeasible", **rules}
    if expect is None:
        degrees = {name: answer.layout[name] for name in _DEGREES}
        return {"status": answer.status, "layout": degrees}
    status = "feasible" if expect.status == "feasible" else answer.status
    wanted: dict[str, Value] = {"status": status}
    if stated := expect.layout.stated():
        wanted["layout"] = {name: answer.layout[name] for name in stated}
    if expect.recompute is not None:
        modules = answer.recompute or ("none",)
        wanted["recompute"] = modules[0] if modules[0] in ("none", "full") else modules
    if expect.dispatcher is not None and answer.dispatcher is not None:
        wanted["dispatcher"] = answer.dispatcher
    return wanted


def _verify(before: Scenario, new: str, answer: Answer, wanted: dict[str, Value]) -> None:
    """Hold the new text to what it must say; anchors and the like can make it say otherwise."""
    try:
        after = loads(new, str(before.source.file))
    except InputError as error:
        said = error.message.partition("\n")[0]
    else:
        same = before.model_copy(update={"expect": None}) == after.model_copy(
            update={"expect": None}
        )
        if same and after.expect is not None and not mismatches(after.expect, answer):
            return
        said = "it would say something else"
    raise NoUpdate(f"it cannot be changed in place ({said}); write by hand: {dict(wanted)}")


__all__ = ["NoUpdate", "Update", "expectation", "update_of"]
