"""Failed cases as annotations of GitHub Actions, at the lines of the scenario files.

The form is that of the workflow commands in GitHub's documentation, with its escapes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from meshplan.scenarios.errors import printable
from meshplan.suite.case import Case, Fault

#: Folder of the checkout; annotations want paths from there.
_WORKSPACE = "GITHUB_WORKSPACE"


def workflow_commands(case: Case) -> Iterator[str]:
    """A line for each fault of a case: ``::error file=...,line=...::text``."""
    for fault in case.faults:
        yield _error(fault, title=f"meshplan: {case.file.stem}")


def _error(fault: Fault, title: str) -> str:
    properties = {
        "file": None if fault.file is None else _from_workspace(fault.file),
        "line": fault.line,
        "col": fault.column,
        "title": title,
    }
    said = ",".join(
        f"{name}={_property(printable(str(value)))}"
        for name, value in properties.items()
        if value is not None
    )
    return f"::error {said}::{_data(printable(fault.text))}"


def _from_workspace(file: str) -> str:
    """The path from the top of the checkout; as given if it is not in there."""
    base = os.environ.get(_WORKSPACE)
    path = Path(file).resolve()
    if base and path.is_relative_to(Path(base).resolve()):
        return path.relative_to(Path(base).resolve()).as_posix()
    return Path(file).as_posix()


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


__all__ = ["workflow_commands"]
