"""Which files are scenarios, and which of them ``-k`` chooses."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from meshplan.scenarios.checks import shown
from meshplan.scenarios.errors import InputError

#: A scenario says so at the start of a line; other YAML files in a folder are passed over.
_SCENARIO = re.compile(rb"^meshplan\s*:", re.MULTILINE)
#: Folders of model cards, and of what is installed: meshplan itself brings scenarios along.
_SKIPPED = ("models", "site-packages")
_MOST_BYTES = 1 << 20
#: Words, brackets; the rest of a ``-k`` expression is blank.
_TOKEN = re.compile(r"[()]|[^\s()]+")


def scenario_files(paths: Iterable[str]) -> list[Path]:
    """Scenario files: those given, and those in the folders given, each once.

    Raises
    ------
    InputError
        If a path does not exist, or nothing is found at all.
    """
    given = list(paths)
    found: dict[Path, None] = {}
    for name in given:
        path = Path(name)
        if path.is_dir():
            found |= dict.fromkeys(_in_folder(path))
        elif path.is_file():
            found[path] = None
        else:
            raise InputError(
                f"{shown(name)} is neither a file nor a folder", advice="check the path."
            )
    if not found:
        raise InputError(
            f"there is no scenario in {', '.join(shown(name) for name in given)}",
            advice="a scenario is a .yaml file that starts with 'meshplan: 1'.",
        )
    return list(found)


def _in_folder(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*.yaml")):
        inside = path.relative_to(folder).parts[:-1]
        skipped = any(name in _SKIPPED or name.startswith(".") for name in inside)
        if not skipped and path.is_file() and is_scenario(path):
            yield path


def are_scenarios(paths: Iterable[str]) -> list[str]:
    """The paths without those of files that are no scenarios; what cannot be read stays."""
    return [name for name in paths if not Path(name).is_file() or is_scenario(Path(name))]


def is_scenario(path: Path) -> bool:
    """Whether the file says that it is a scenario."""
    with path.open("rb") as file:
        return _SCENARIO.search(file.read(_MOST_BYTES)) is not None


def selected(files: Iterable[Path], expression: str) -> list[Path]:
    """The files that ``expression`` chooses: parts of paths with and, or, not and brackets.

    Capitals do not count.

    Raises
    ------
    InputError
        If it is malformed, or chooses none.
    """
    known = list(files)
    chooses = _Expression(expression).parsed()
    chosen = [file for file in known if chooses(file.as_posix().lower())]
    if not chosen:
        raise InputError(
            f"-k {shown(expression)} chooses none of {len(known)} scenarios",
            advice="give a part of their paths, such as: h100 and not 128k.",
        )
    return chosen


_Chooser = Callable[[str], bool]


class _Expression:
    """A ``-k`` expression while it is read: *or* binds weaker than *and*, *not* strongest."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _TOKEN.findall(text)

    def parsed(self) -> _Chooser:
        chooser = self._any()
        if self._tokens:
            raise self._fault(f"{shown(self._tokens[0])} is one too many")
        return chooser

    def _next(self) -> str | None:
        return self._tokens[0].lower() if self._tokens else None

    def _any(self) -> _Chooser:
        parts = [self._all()]
        while self._next() == "or":
            self._tokens.pop(0)
            parts.append(self._all())
        return lambda path: any(part(path) for part in parts)

    def _all(self) -> _Chooser:
        parts = [self._one()]
        while self._next() == "and":
            self._tokens.pop(0)
            parts.append(self._one())
        return lambda path: all(part(path) for part in parts)

    def _one(self) -> _Chooser:
        word = self._next()
        if word in (None, "and", "or", ")"):
            raise self._fault(
                f"a word is missing before {shown(word)}" if word else "it ends early"
            )
        self._tokens.pop(0)
        if word == "not":
            part = self._one()
            return lambda path: not part(path)
        if word == "(":
            inner = self._any()
            if self._next() != ")":
                raise self._fault("a ) is missing")
            self._tokens.pop(0)
            return inner
        return lambda path: str(word) in path

    def _fault(self, what: str) -> InputError:
        return InputError(
            f"-k {shown(self._text)} is malformed: {what}",
            advice="write parts of paths with and, or, not and brackets: h100 and not 128k.",
        )


__all__ = ["are_scenarios", "is_scenario", "scenario_files", "selected"]
