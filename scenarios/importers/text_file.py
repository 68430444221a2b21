"""Read a small text file of a stranger: bounded, UTF-8, or one clear refusal."""

from __future__ import annotations

import sys
from pathlib import Path

from meshplan.scenarios.errors import InputError
from meshplan.scenarios.files import MAX_BYTES, decoded, read_file

#: Name of standard input in messages, and the path that stands for it.
STANDARD_INPUT = "<standard input>"
DASH = "-"


def read_text(path: str | Path) -> tuple[str, str]:
    """Text of the file at ``path`` (``-``: standard input), and its name for messages.

    Raises
    ------
    InputError
        If it is missing, a folder, unreadable, larger than 1 MiB, or no UTF-8 text.
    """
    if str(path) == DASH:
        name = STANDARD_INPUT
        text = decoded(sys.stdin.buffer.read(MAX_BYTES + 1), name)
    else:
        name = str(path)
        text = read_file(path)
    return checked_text(text, name), name


def checked_text(text: str, name: str) -> str:
    """``text`` with plain line ends, if it is of a size and made of characters that are read.

    Raises
    ------
    InputError
        If it is longer than 1 MiB, or has a NUL character.
    """
    if len(text) > MAX_BYTES:
        raise InputError(
            f"the text is longer than {MAX_BYTES} characters",
            advice="this is not the text you meant; give only the launch script or the file.",
            file=name,
        )
    if (place := text.find("\0")) >= 0:
        raise InputError(
            "a NUL character is no text",
            advice="check that this is a text file.",
            file=name,
            line=text.count("\n", 0, place) + 1,
        )
    return text.replace("\r\n", "\n").replace("\r", "\n")


__all__ = ["MAX_BYTES", "STANDARD_INPUT", "checked_text", "read_text"]
