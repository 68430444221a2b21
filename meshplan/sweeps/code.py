"""Which code gives the answers: a version number stays the same over many commits of a checkout."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from meshplan import __version__

#: Packages that decide an answer, and the folders of data in them that do.
_DECIDING = {
    "constraints": (),
    "scenarios": ("calibrations", "models"),
    "solver": (),
    "topologies": ("data",),
}
_SHOWN_DIGITS = 12


@cache
def code_name() -> str:
    """The version of meshplan with a digest of the code and the data that decide an answer.

    The same on every machine with the same code, however it was installed.
    """
    digest = hashlib.sha256()
    for package, data in _DECIDING.items():
        spec = find_spec(f"meshplan.{package}")
        for folder in spec.submodule_search_locations or () if spec is not None else ():
            for name, file in sorted(_files(Path(folder), data)):
                # A checkout on Windows may end its lines otherwise.
                content = file.read_bytes().replace(b"\r\n", b"\n")
                digest.update(f"{package}/{name} {len(content)}\n".encode())
                digest.update(content)
    return f"{__version__} (code {digest.hexdigest()[:_SHOWN_DIGITS]})"


def _files(folder: Path, data: tuple[str, ...]) -> Iterator[tuple[str, Path]]:
    for file in folder.rglob("*.py"):
        yield file.relative_to(folder).as_posix(), file
    for inner in data:
        for file in (folder / inner).glob("*.yaml"):
            yield file.relative_to(folder).as_posix(), file


__all__ = ["code_name"]
