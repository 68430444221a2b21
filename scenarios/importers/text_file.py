"""Read a small text file of a stranger: bounded, UTF-8, or one clear refusal."""

from __future__ import annotations

import sys
from pathlib import Path

from meshplan.scenarios.errors import InputError
from meshplan.scenarios.yaml_reader import MAX_BYTES, decoded

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
        content = sys.stdin.buffer.read(MAX_BYTES + 1)
    else:
        name = str(path)
        content = _content(name)
    return checked_text(decoded(content, name), name), name


def _content(name: str) -> bytes:
    try:
        with open(name, "rb") as stream:
            return stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        message, advice = "does not exist", "check the path and the folder you are in."
    except IsADirectoryError:
        message, advice = "is a folder, not a file", "name one file in it."
    except ValueError:  # a NUL character in the path
        message, advice = "is not a possible path", "check the path."
    except OSError as error:
        message, advice = (
            f"cannot be read: {error.strerror or error}",
            "check that you may read it.",
        )
    raise InputError(f"the file {name!r} {message}", advice=advice)


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
