"""What the benchmarks share on the command line: bad input in one message, and files of results."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from pathlib import Path
from typing import Any

from meshplan.cli.whole_file import DASH, WholeFile, keep_apart, output_file
from meshplan.scenarios.errors import InputError, printable

#: Data of the benchmarks: some of it is read whatever files are given.
_DATA = Path(__file__).parent / "data"


def exit_code(action: Callable[[], int], *refusals: type[Exception]) -> int:
    """What ``action`` returns; 2, and a message, if input or output fails it.

    ``refusals`` are errors besides :class:`InputError` whose text says what to do.
    """
    told: tuple[type[Exception], ...] = (InputError, *refusals)
    try:
        return action()
    except told as error:
        print(error, file=sys.stderr)
    except OSError as error:
        print(printable(f"{error.filename}: {error.strerror}"), file=sys.stderr)
    return 2


class Results:
    """Where the results of a benchmark go: files that never replace what was read.

    Parameters
    ----------
    paths
        Path after each option, such as ``--json``; None where it was not given, and ``-`` for
        standard output.
    inputs
        Files that are read.

    Raises
    ------
    InputError
        At once, if a file cannot be written, is read, or is given twice.
    """

    def __init__(self, paths: Mapping[str, Path | str | None], inputs: Iterable[Path] = ()) -> None:
        self._to_stdout = [option for option, path in paths.items() if str(path) == DASH]
        if len(self._to_stdout) > 1:
            raise InputError(
                f"{' and '.join(self._to_stdout)} both go to standard output",
                advice="give a path for one of them.",
            )
        self._files: dict[str, WholeFile | None] = {
            option: output_file(path, option) for option, path in paths.items()
        }
        read = {f"FILE {n}": path for n, path in enumerate(inputs, 1)}
        shipped = {f"data/{path.name}": path for path in _DATA.iterdir()}
        keep_apart(self._files.values(), {**read, **shipped})

    def printing(self) -> AbstractContextManager[Any]:
        """Where the report is printed: on standard error if a result goes to standard output."""
        return redirect_stdout(sys.stderr) if self._to_stdout else nullcontext()

    def deliver(self, option: str, content: Callable[[], str]) -> None:
        """Write or print the result of ``option``, if it was asked for."""
        file = self._files[option]
        if file is not None:
            file.write(content())
        elif option in self._to_stdout:
            sys.stdout.write(content())


def json_option(parser: argparse.ArgumentParser, what: str) -> None:
    """Add the option ``--json``, which writes ``what``."""
    text = f"write {what} as JSON to a file, or to standard output"
    parser.add_argument("--json", metavar="PATH|-", help=text)


def dumps(data: Any) -> str:
    """``data`` as JSON for a file."""
    return json.dumps(data, indent=1) + "\n"
