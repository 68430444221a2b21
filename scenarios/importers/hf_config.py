"""The fields of one Hugging Face ``config.json``, checked one by one, with where they stand."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from meshplan.scenarios.checks import shown
from meshplan.scenarios.errors import InputError
from meshplan.scenarios.importers.text_file import checked_text
from meshplan.scenarios.yaml_reader import shorten

_MOST_WIDTH = 1 << 20
_MOST_VOCABULARY = 10_000_000


def parse_config(text: str, name: str) -> dict[str, Any]:
    """The JSON object in ``text``.

    Raises
    ------
    InputError
        If it is no JSON, no object, nested too deeply, or names a key twice.
    """
    text = checked_text(text, name)
    try:
        data = json.loads(text, object_pairs_hook=_without_duplicates)
    except json.JSONDecodeError as error:
        raise InputError(
            f"malformed JSON: {error.msg}",
            advice="check that this is a whole config.json.",
            file=name,
            line=error.lineno,
        ) from None
    except RecursionError:
        raise InputError(
            "the JSON is nested too deeply", advice="this is no config.json.", file=name
        ) from None
    except _Duplicate as error:
        raise InputError(
            f"the key {shorten(str(error))} stands twice in one object",
            advice="delete one of the two.",
            file=name,
        ) from None
    except ValueError as error:  # an integer of thousands of digits
        raise InputError(
            f"malformed JSON: {shorten(str(error))}", advice="check its numbers.", file=name
        ) from None
    if not isinstance(data, dict):
        what = "null" if data is None else shown(data)
        raise InputError(
            f"the file holds {what}, but a config.json is an object",
            advice="name the config.json of the model.",
            file=name,
        )
    return data


class _Duplicate(Exception):
    pass


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _Duplicate(key)
        found[key] = value
    return found


class Fields:
    """Fields of a configuration, taken by name and kind; remembers what became of them.

    Parameters
    ----------
    data
        The object that holds the fields (``text_config`` of a model with vision).
    text
        The whole file, to find lines.
    file
        Its name, for messages.
    family
        Name of the architecture, for messages.

    Attributes
    ----------
    notes
        Sentences for the user.
    approximations
        Parts of the decoder that a model card cannot hold, in sentences.
    """

    def __init__(self, data: Mapping[str, Any], text: str, file: str, family: str) -> None:
        self.data, self.text, self.file, self.family = data, text, file, family
        self.notes: list[str] = []
        self.approximations: list[str] = []

    def refuse(self, key: str, message: str, advice: str) -> InputError:
        """An error about the field ``key``, at its line where that is certain."""
        return InputError(message, advice=advice, file=self.file, line=self._line(key))

    def _line(self, key: str) -> int | None:
        places = [found.start() for found in re.finditer(f'"{re.escape(key)}"\\s*:', self.text)]
        return self.text.count("\n", 0, places[0]) + 1 if len(places) == 1 else None

    def _missing(self, key: str, what: str) -> InputError:
        return InputError(
            f"{key} is missing, which {self.family} needs ({what})",
            advice=f"add {key} to the file, or check that it is the model's own config.json.",
            file=self.file,
        )

    def value(self, key: str) -> Any:
        """The field as it is; None if it is absent or null."""
        return self.data.get(key)

    def whole(self, key: str, what: str, *, default: int | None = None, low: int = 1) -> int:
        """An integer; ``default`` is the one that the architecture's own class documents.

        Raises
        ------
        InputError
            If it is missing without a default, or no integer in range.
        """
        value = self.data.get(key)
        if value is None:
            if default is None:
                raise self._missing(key, what)
            self.notes.append(f"{key} not given: {default}, the default of {self.family}")
            return default
        high = _MOST_VOCABULARY if key == "vocab_size" else _MOST_WIDTH
        if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
            return value
        raise self.refuse(
            key,
            f"{key} is {shown(value)}, but must be an integer from {low} to {high}",
            "check that this is the model's own config.json.",
        )

    def optional(self, key: str, what: str, *, low: int = 1) -> int | None:
        """An integer, or None if it is absent or null."""
        return None if self.data.get(key) is None else self.whole(key, what, low=low)

    def flag(self, key: str, default: bool) -> bool:
        """A truth value; ``default`` is the one that the architecture's own class documents.

        Raises
        ------
        InputError
            If it is neither true nor false.
        """
        value = self.data.get(key)
        if value is None:
            return default
        if isinstance(value, bool):
            return value
        raise self.refuse(key, f"{key} is {shown(value)}, but must be true or false", "mend it.")

    def words(self, key: str) -> list[str] | None:
        """A list of strings, or None if it is absent or null.

        Raises
        ------
        InputError
            If it is something else, or longer than 2048.
        """
        value = self.data.get(key)
        if value is None:
            return None
        if (
            isinstance(value, list)
            and len(value) <= 2048
            and all(isinstance(v, str) for v in value)
        ):
            return value
        raise self.refuse(key, f"{key} is {shown(value)}, but must be a list of names", "mend it.")

    def only(self, key: str, allowed: tuple[object, ...], why: str) -> None:
        """Refuse the field if it is given and none of ``allowed``."""
        value = self.data.get(key)
        if value is None or any(value == one and type(value) is type(one) for one in allowed):
            return
        raise self.refuse(
            key,
            f"{key} is {shown(value)}, which a model card cannot hold: {why}",
            "give the model's figures under `model:` as far as they go.",
        )


__all__ = ["Fields", "parse_config"]
