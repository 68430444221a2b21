"""Files that are written whole or not at all, and never over what was read."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from meshplan.scenarios.errors import InputError

#: Path that stands for standard input or standard output.
DASH = "-"
#: Options whose files are of one format: its name, and the bytes that such a file can begin with.
_FORMATS = {"--json": ("JSON", b"{["), "--html": ("HTML", b"<")}


class WholeFile:
    """A file that appears whole or not at all.

    Parameters
    ----------
    path
        Where it shall be.
    option
        What the user wrote it after, for messages: ``--json``.

    Attributes
    ----------
    option
        As given.
    path
        Where it is, links followed.

    Raises
    ------
    InputError
        At once, if it could not be written: so nobody waits for an answer that cannot be kept.
        Nor is ``-`` the name of a file: where standard output will do, nobody makes one of these.
    """

    def __init__(self, path: str, option: str) -> None:
        self._shown = path
        self.option = option
        if path == DASH:
            from meshplan.scenarios.errors import InputError

            raise InputError(
                f"{self.said}, but this result does not go to standard output",
                advice="give the path of a file; ./- is a file of that name.",
            )
        try:
            self.path = Path(os.path.realpath(path))
            self._is_special = self.path.exists() and not self.path.is_file()
            if self.path.is_dir():
                raise IsADirectoryError(21, "it is a folder")
            if self._is_special:  # a device or pipe cannot be replaced, only written
                return
            if self.path.exists() and not os.access(self.path, os.W_OK):
                raise PermissionError(13, "it is read-only")
            os.unlink(self._temporary())
        except (OSError, ValueError) as error:
            raise self._refusal(error) from None

    @property
    def said(self) -> str:
        """Option and path, as a message begins: ``--json is 'a.json'``."""
        from meshplan.scenarios.yaml_reader import shorten

        return f"{self.option} is {shorten(self._shown, 200)}"

    def is_same(self, path: str | Path) -> bool:
        """Whether ``path`` leads to this file: by another name, or by a link of either kind.

        ``-`` is the file that standard input comes from, if it comes from one.  Devices and pipes
        are never the same: writing there takes nothing away.
        """
        try:
            other = os.fstat(0) if str(path) == DASH else os.stat(path)
            own = os.stat(self.path)
        except OSError:  # one of them does not exist (yet)
            return str(path) != DASH and os.path.realpath(path) == str(self.path)
        except ValueError:  # a NUL character: no path at all
            return False
        return stat.S_ISREG(own.st_mode) and os.path.samestat(own, other)

    def keep_other_formats(self) -> None:
        """Refuse to replace a file of another format: a scenario, a log, a table.

        Raises
        ------
        InputError
            If it does.
        """
        from meshplan.scenarios.errors import InputError

        if self.option not in _FORMATS or self._is_special or not self.path.exists():
            return
        name, starts = _FORMATS[self.option]
        try:
            with open(self.path, "rb") as file:
                begin = file.read(1000).lstrip()
        except OSError:  # it may only be written
            return
        if begin and begin[:1] not in starts:
            raise InputError(
                f"{self.said}, a file that holds no {name}, which would be overwritten",
                advice="give another name, or delete the file.",
            )

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
                self.path.write_bytes(data)
                return
            temporary = self._temporary()
            with open(temporary, "wb") as file:
                file.write(data)
            os.chmod(temporary, self._mode())
            os.replace(temporary, self.path)
        except (OSError, ValueError) as error:
            if temporary is not None and os.path.exists(temporary):
                os.unlink(temporary)
            raise self._refusal(error) from None

    def _temporary(self) -> str:
        handle, name = tempfile.mkstemp(prefix=f".{self.path.name[:40]}.", dir=self.path.parent)
        os.close(handle)
        return name

    def _mode(self) -> int:
        if self.path.exists():
            return self.path.stat().st_mode & 0o777
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask

    def _refusal(self, error: Exception) -> InputError:
        from meshplan.scenarios.errors import InputError

        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return InputError(
            f"{self.said}, but that cannot be written ({why})",
            advice="give the path of a file in an existing folder that you may write to.",
        )


def keep_apart(
    outputs: Iterable[WholeFile | None], inputs: Mapping[str, str | Path | None]
) -> None:
    """Refuse an output that is an input, or another output, or replaces a file of another format.

    Parameters
    ----------
    outputs
        What will be written; None stands for an option that is not in use.
    inputs
        What was read, by what a message shall call it; ``-`` is standard input.

    Raises
    ------
    InputError
        If two are the same file, by whatever names, or ``--json`` would replace what is no JSON, or
        ``--html`` what is no HTML.
    """
    from meshplan.scenarios.errors import InputError
    from meshplan.scenarios.yaml_reader import shorten

    known: list[WholeFile] = []
    for file in outputs:
        if file is None:
            continue
        for name, path in inputs.items():
            if path is not None and file.is_same(path):
                shown = "" if str(path) == DASH else f" ({shorten(str(path), 200)})"
                raise InputError(
                    f"{file.said}, the same file as {name}{shown}, which would be overwritten",
                    advice="give the result a name of its own.",
                )
        for other in known:
            if file.is_same(other.path):
                raise InputError(
                    f"{file.said}, the same file as {other.option}",
                    advice="give each result a name of its own.",
                )
        file.keep_other_formats()
        known.append(file)


def output_file(path: str | Path | None, option: str) -> WholeFile | None:
    """The file for an option, checked; None for none or standard output.

    Raises
    ------
    InputError
        If it cannot be written.
    """
    return None if path is None or str(path) == DASH else WholeFile(str(path), option)


__all__ = ["DASH", "WholeFile", "keep_apart", "output_file"]
