"""Where each value of a scenario was written, so that later errors can name the line."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from meshplan.scenarios.errors import InputError
from meshplan.scenarios.yaml_reader import KeyPath, shorten


@dataclass(frozen=True, eq=False)
class SourceMap:
    """Where each value of a scenario was written.

    Attributes
    ----------
    file
        Name of the file, as given; ``<string>`` for text, None for a mapping made in Python.
    lines
        1-based line of each path that the file wrote.
    overrides
        Paths that an override replaced, with the override as written.
    """

    file: str | None = None
    lines: dict[KeyPath, int] = field(default_factory=dict)
    overrides: dict[KeyPath, str] = field(default_factory=dict)

    def __eq__(self, other: object) -> bool:
        """Equal to every other source: where a scenario stands is no part of what it says."""
        return isinstance(other, SourceMap)

    def __hash__(self) -> int:
        """The same for all, as they are equal."""
        return 0

    def override_of(self, path: KeyPath) -> str | None:
        """The override that wrote ``path``, something around it, or all that it holds."""
        for end in range(len(path), 0, -1):
            if path[:end] in self.overrides:
                return self.overrides[path[:end]]
        if path in self.lines or not path:
            return None
        inside = (said for keys, said in self.overrides.items() if keys[: len(path)] == path)
        return next(inside, None)

    def nearest_line(self, path: KeyPath) -> int | None:
        """Line of ``path`` or of the closest value around it."""
        for end in range(len(path), -1, -1):
            if path[:end] in self.lines:
                return self.lines[path[:end]]
        return None

    @property
    def folder(self) -> Path:
        """Folder that relative paths in the scenario start from."""
        return Path(self.file).parent if self.file is not None else Path()

    def error(self, path: KeyPath, message: str, advice: str | None = None) -> InputError:
        """An error about the value at ``path``: with file and line, or with its override."""
        override = self.override_of(path)
        if override is not None:
            return InputError(f"override {shorten(override)}: {message}", advice=advice)
        return InputError(message, advice=advice, file=self.file, line=self.nearest_line(path))


def path_keys(path: str) -> KeyPath:
    """``layout.cp[1]`` as keys and indices: ``("layout", "cp", 1)``."""
    parts = re.findall(r"[^.\[\]]+", path)
    return tuple(int(part) if part.isascii() and part.isdigit() else part for part in parts)


def dotted(path: KeyPath) -> str:
    """``("layout", "cp", 1)`` as a person reads it: ``layout.cp[1]``."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            # Keys come from the file: odd ones are quoted so that no message is torn apart.
            name = part if re.fullmatch(r"[\w+-]{1,60}", part) else shorten(part)
            text += f".{name}" if text else name
    return text or "the scenario"
