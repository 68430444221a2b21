"""Checks of single values whose refusals carry their whole wording.

A refusal is a pydantic error of type ``meshplan``; its context holds the ``text`` ("is 0, but
must be ..."), the ``advice``, and for a value inside the field the path to it (``at``).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from meshplan.scenarios.yaml_reader import shorten

#: Largest degree, GPU count or batch size: more than any cluster that exists, by far.
MAX_DEGREE = 1_048_576


def shown(value: object) -> str:
    """``value`` as a user would write it in YAML, cut short, for an error message."""
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return shorten(value)
    if isinstance(value, int | float):
        text = str(value) if not isinstance(value, int) or abs(value) < 10**30 else "a huge integer"
        return text if len(text) <= 40 else f"{text[:37]}..."
    if isinstance(value, dict):
        kind = "mapping"
    elif isinstance(value, list | tuple):
        kind = "list"
    else:
        return f"a {type(value).__name__}"
    plain = all(isinstance(part, int | float | str) for part in value)
    text = ", ".join(shown(part) for part in list(value)[:20]) if plain else ""
    if not value:
        return f"an empty {kind}"
    return f"the {kind} [{text}]" if kind == "list" and 0 < len(text) <= 60 else f"a {kind}"


def nearest(name: object, choices: Iterable[str]) -> str | None:
    """The choice that ``name`` most likely meant, or None."""
    if not isinstance(name, str) or len(name) > 100:
        return None
    near = get_close_matches(name.lower(), list(choices), n=1, cutoff=0.55)
    return near[0] if near else None


def meant(name: object, choices: Iterable[str]) -> str | None:
    """Advice on what ``name`` most likely meant: all choices that it begins, or the nearest."""
    names = tuple(choices)
    if isinstance(name, str) and (begun := [one for one in names if one.startswith(f"{name}-")]):
        return f"you meant {listed(begun)}."
    near = nearest(name, names)
    return f"you meant {near}." if near else None


def listed(choices: Iterable[str]) -> str:
    """``a, b or c``."""
    *most, last = choices
    return f"{', '.join(most)} or {last}" if most else last


def refusal(text: str, advice: str, at: tuple[str | int, ...] = ()) -> PydanticCustomError:
    """Error to raise in a validator; ``text`` continues a sentence that starts with the field."""
    return PydanticCustomError("meshplan", "{text}", {"text": text, "advice": advice, "at": at})


def complaint(
    value: object, wanted: str, advice: str, at: tuple[str | int, ...] = ()
) -> PydanticCustomError:
    """Error to raise in a validator: the field ``is <value>, but must be <wanted>``."""
    return refusal(f"is {shown(value)}, but must be {wanted}", advice, at)


def choose(value: object, choices: Iterable[str], at: tuple[str | int, ...] = ()) -> str:
    """``value`` if it is one of ``choices``.

    Raises
    ------
    PydanticCustomError
        If it is not; the advice names the nearest choice.
    """
    names = tuple(choices)
    if isinstance(value, str) and value in names:
        return value
    raise complaint(value, listed(names), meant(value, names) or f"use {names[0]}.", at)


def whole(value: object, low: int, high: int, at: tuple[str | int, ...] = ()) -> int:
    """``value`` if it is an integer (no boolean, no float) from ``low`` to ``high``.

    Raises
    ------
    PydanticCustomError
        If it is not.
    """
    wanted = f"an integer from {low} to {high}" if low < high else str(low)
    if isinstance(value, int) and not isinstance(value, bool):
        if low <= value <= high:
            return value
        advice = f"use a value in the range {low} to {high}." if low < high else f"write {low}."
        raise complaint(value, wanted, advice, at)
    advice = f"write a plain integer, for example {low}."
    if isinstance(value, float) and value.is_integer() and low <= value <= high:
        advice = f"write {int(value)}, without a point or an exponent."
    if isinstance(value, str):
        digits = value.replace("_", "").replace(",", "").strip()
        if digits.isascii() and digits.isdigit() and len(digits) < 20:
            advice = f"write {int(digits)}, without quotes, zeros in front or separators."
        elif thousands := re.fullmatch(r"([0-9]{1,6})[kK]", digits):
            advice = f"write {int(thousands[1]) * 1024}, as a plain integer."
    raise complaint(value, wanted, advice, at)


@dataclass(frozen=True)
class Within:
    """Annotation of a number: ``Annotated[int, Within(1, 8)]``, strict and with its bounds named.

    On ``float`` it takes integers as well, but neither booleans nor NaN.
    """

    low: float
    high: float

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Check first in our words, then let pydantic state the same bounds (for JSON Schema)."""
        low, high = self.low, self.high
        if source is int:
            return core_schema.no_info_before_validator_function(
                lambda value: whole(value, int(low), int(high)),
                core_schema.int_schema(ge=int(low), le=int(high)),
            )
        return core_schema.no_info_before_validator_function(
            self.check_float, core_schema.float_schema(ge=low, le=high)
        )

    def check_float(self, value: object) -> float:
        """``value`` as a float.

        Raises
        ------
        PydanticCustomError
            If it is no finite number within the bounds.
        """
        good = isinstance(value, int | float) and not isinstance(value, bool)
        if good and math.isfinite(value) and self.low <= value <= self.high:  # type: ignore[arg-type, operator]
            return float(value)  # type: ignore[arg-type]
        raise complaint(
            value,
            f"a number from {self.low:g} to {self.high:g}",
            f"use a value in the range {self.low:g} to {self.high:g}.",
        )
