"""Read a small file that a user names: bounded and UTF-8, or one clear refusal."""

from __future__ import annotations

from pathlib import Path

from meshplan.scenarios.errors import InputError

#: Largest file that is read; scenarios, scripts and model configurations have a few kilobytes.
MAX_BYTES = 1 << 20


def read_file(path: str | Path, most: int = MAX_BYTES) -> str:
    """Text of the file at ``path``.

    Raises
    ------
    InputError
        If it is missing, a folder, unreadable, larger than ``most`` bytes, or no UTF-8 text.
    """
    name = str(path)
    try:
        with open(path, "rb") as stream:
            content = stream.read(most + 1)
    except FileNotFoundError:
        raise InputError(
            f"the file {name!r} does not exist",
            advice=_neighbour(name) or "check the path and the folder you are in.",
        ) from None
    except IsADirectoryError:
        raise InputError(
            f"{name!r} is a folder, not a file", advice="name one file in it."
        ) from None
    except ValueError:  # a NUL character in the path
        raise InputError(f"{name!r} is not a possible path", advice="check the path.") from None
    except OSError as error:
        raise InputError(
            f"the file {name!r} cannot be read: {error.strerror or error}",
            advice="check that you may read it.",
        ) from None
    return decoded(content, name, most)


def decoded(content: bytes, name: str, most: int = MAX_BYTES) -> str:
    """The text of a file's bytes; an ``InputError`` if they are over ``most``, or no UTF-8."""
    if len(content) > most:
        raise InputError(
            f"the file is larger than {most} bytes",
            advice="this is not the file you meant: those read here are much smaller.",
            file=name,
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"byte {content[error.start]:#04x} at offset {error.start} is not UTF-8 text",
            advice="save the file as UTF-8, or check that it is a text file.",
            file=name,
            line=content.count(b"\n", 0, error.start) + 1,
        ) from None


def _neighbour(name: str) -> str | None:
    """Advice that names a file of nearly the same name in the same folder, if there is one."""
    from difflib import get_close_matches

    path = Path(name)
    try:
        names = sorted(entry.name for entry in path.parent.iterdir())
    except (OSError, ValueError):
        return None
    near = get_close_matches(path.name, names, n=1)
    return f"you meant {str(path.with_name(near[0]))!r}." if near else None


__all__ = ["MAX_BYTES", "decoded", "read_file"]
