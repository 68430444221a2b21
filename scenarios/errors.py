"""The one error that bad input raises, and text that a terminal may show."""

from __future__ import annotations


def printable(text: str) -> str:
    """``text`` with control characters as escapes: files and their names may hold any.

    Line ends stay; a terminal obeys the others, or writes from right to left.
    """
    return "".join(
        char if char.isprintable() or char in "\n\u00a0\u3000" else ascii(char)[1:-1]
        for char in text
    )


def one_line(text: str) -> str:
    """``text`` as :func:`printable` makes it, with line ends as escapes, too."""
    return printable(text).replace("\n", "\\n")


class InputError(Exception):
    """Bad input by a person: printed plainly, exit code 2, never a traceback.

    Parameters
    ----------
    message
        Names the field *and its value*.
    advice
        What to do, without the leading "Maybe".
    file, line
        Where the value stands, if it came from a file (1-based line).
    """

    def __init__(
        self,
        message: str,
        *,
        advice: str | None = None,
        file: str | None = None,
        line: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.advice = advice
        self.file = file
        self.line = line

    def __str__(self) -> str:
        where = ""
        if self.file is not None:
            where = f"{self.file}:{self.line}: " if self.line is not None else f"{self.file}: "
        text = f"{where}{self.message}"
        if self.advice:
            text += f"\nMaybe {self.advice}"
        return printable(text)
