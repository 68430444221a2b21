"""The journal beside the output: each finished row at once, so that a stop loses none.

A text file of JSON lines.  The first says what it is; each other one holds a row under the key of
its scenario.  Lines are only ever added.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any

from meshplan import __version__
from meshplan.scenarios.errors import InputError, one_line
from meshplan.sweeps.row import COLUMNS

#: What the first line has to say.
FORMAT = 1
_HEAD_BEGINS = b'{"meshplan_sweep":'
_PROVED = ("optimal", "infeasible")


class Journal:
    """The journal of one output, open for adding.  Two sweeps cannot have it at once.

    Parameters
    ----------
    path
        Where it is; made if it is not there.
    time_limit_s
        Of this sweep: a row that a shorter limit cut short counts for nothing here.

    Attributes
    ----------
    notes
        Sentences on what was found there and is not used.

    Raises
    ------
    InputError
        If it cannot be opened, is no journal, or another sweep has it.
    """

    def __init__(self, path: Path, time_limit_s: float | None = None) -> None:
        self.path, self._time_limit_s = path, time_limit_s
        self.notes: list[str] = []
        self._rows: dict[str, dict[str, Any]] = {}
        try:
            self._file: IO[bytes] = open(path, "a+b")  # noqa: SIM115 - open as long as it lives
        except OSError as error:
            raise self._refusal(f"cannot be written ({error.strerror})") from None
        try:
            self._lock()
            self._read()
        except BaseException:
            self._file.close()
            raise

    def rows_of(self, keys: Iterable[str]) -> dict[str, Mapping[str, Any]]:
        """The rows that are there for these scenarios; notes how many are for others."""
        wanted = set(keys)
        found = {key: row for key, row in self._rows.items() if key in wanted}
        if others := len(self._rows) - len(found):
            rows = "1 row is" if others == 1 else f"{others:,} rows are"
            self.notes.append(
                f"{one_line(str(self.path))}: {rows} of other scenarios, of other files that they "
                "name, or of other code of meshplan; not used here"
            )
        return dict(found)

    def add(self, row: Mapping[str, Any]) -> None:
        """Keep a row; when this returns, it is on the disk.

        Raises
        ------
        InputError
            If the disk is full or gone.
        """
        limit = None if row["status"] in _PROVED else self._time_limit_s
        self._write({"key": row["scenario"], "time_limit_s": limit, "row": dict(row)})
        self._rows[row["scenario"]] = dict(row)

    def close(self) -> None:
        """Let others have it."""
        self._file.close()

    def _lock(self) -> None:
        try:
            import fcntl
        except ImportError:  # not on this system
            return
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise self._refusal(
                "is in use by another sweep", "wait for it, or give another --output."
            ) from None
        except OSError:  # a file system without locks
            self.notes.append(
                f"{one_line(str(self.path))} cannot be locked: start no second sweep on it"
            )

    def _read(self) -> None:
        self._file.seek(0)
        content = self._file.read()
        whole, _, torn = content.rpartition(b"\n")
        lines = whole.split(b"\n") if whole else []
        if lines:
            self._check_head(_parsed(lines[0]))
        elif not _HEAD_BEGINS.startswith(torn[: len(_HEAD_BEGINS)]):
            raise self._foreign()
        if torn:
            # The last write was cut short: what follows shall begin on a line of its own.
            self._truncate(len(content) - len(torn))
        if not lines:
            self._write({"meshplan_sweep": FORMAT, "meshplan": __version__})
        for number, line in enumerate(lines[1:], start=2):
            self._take(_parsed(line), number)

    def _check_head(self, head: Any) -> None:
        if not isinstance(head, dict) or "meshplan_sweep" not in head:
            raise self._foreign()
        if head["meshplan_sweep"] != FORMAT:
            raise self._refusal(
                f"is of the format {one_line(str(head['meshplan_sweep']))[:20]}, and this version "
                f"of meshplan reads {FORMAT}"
            )

    def _take(self, entry: Any, number: int) -> None:
        """Use a line, if it is whole and no limit shorter than ours cut its search short."""
        match entry:
            case {"key": str() as key, "time_limit_s": limit, "row": {"scenario": said} as row}:
                if said == key and row.keys() == COLUMNS.keys() and self._lasts(row, limit):
                    self._rows[key] = row
            case _:
                self.notes.append(
                    f"{one_line(str(self.path))}: line {number} cannot be read; its row is missing"
                )

    def _lasts(self, row: Mapping[str, Any], limit: Any) -> bool:
        if row["status"] in _PROVED:
            return True
        ours = self._time_limit_s
        return ours is not None and isinstance(limit, int | float) and limit >= ours

    def _truncate(self, size: int) -> None:
        try:
            self._file.truncate(size)
        except OSError as error:
            raise self._refusal(f"cannot be written ({error.strerror})") from None

    def _write(self, entry: Mapping[str, Any]) -> None:
        line = json.dumps(entry, separators=(",", ":"), allow_nan=False).encode() + b"\n"
        try:
            self._file.write(line)
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise self._refusal(f"cannot be written ({error.strerror})") from None

    def _foreign(self) -> InputError:
        return self._refusal(
            "is no journal of a sweep, which would be overwritten",
            "give another --output, or delete the file.",
        )

    def _refusal(self, what: str, advice: str | None = None) -> InputError:
        return InputError(
            f"the journal {one_line(str(self.path))} {what}",
            advice=advice or "give another --output, or delete the journal to start anew.",
        )


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


__all__ = ["FORMAT", "Journal"]
