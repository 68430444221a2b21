"""Types of scenario values with several written forms: pins of degrees and batch sizes.

Each type accepts the short forms that a person writes (``cp: 16``, ``cp: [16, 32]``,
``cp: {min: 8}``), holds one normalised form, and writes the short form back when dumped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from meshplan.scenarios.checks import (
    MAX_DEGREE,
    choose,
    complaint,
    listed,
    nearest,
    refusal,
    shown,
    whole,
)

#: Context-parallel exchanges (Megatron-Core ``cp_comm_type``).
CP_COMM_CHOICES = ("p2p", "a2a", "a2a+p2p", "all_gather")


def _range(value: dict[Any, Any], keys: tuple[str, ...]) -> dict[str, int]:
    """The integers of a mapping such as ``{min: 1, max: 8}``, with known keys only."""
    for key in value:
        if key not in keys:
            near = nearest(key, keys)
            raise refusal(
                f"is an unknown key (value {shown(value[key])})",
                f"you meant {near}." if near else f"use {listed(keys)}.",
                (str(key),),
            )
    bounds = {key: whole(value[key], 1, MAX_DEGREE, (key,)) for key in value}
    low, high = bounds.get("min", 1), bounds.get("max", MAX_DEGREE)
    if low > high:
        raise complaint(low, f"at most max ({high})", "swap min and max.", ("min",))
    return bounds


_WHOLE_JSON: JsonSchemaValue = {"type": "integer", "minimum": 1, "maximum": MAX_DEGREE}


class WrittenForm:
    """A frozen value that pydantic builds with ``parse`` and dumps with ``written``."""

    @classmethod
    def parse(cls, value: object) -> Any:
        """Build the value from what a user wrote."""
        raise NotImplementedError

    def written(self) -> Any:
        """The short form that a user would write."""
        raise NotImplementedError

    @classmethod
    def json_form(cls) -> JsonSchemaValue:
        """JSON Schema of what a user may write."""
        raise NotImplementedError

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Parse on the way in; write the short form on the way out."""
        parse: Callable[[object], Any] = cls.parse
        return core_schema.no_info_plain_validator_function(
            parse,
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda instance: instance.written()
            ),
        )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Describe the short forms to editors."""
        return cls.json_form()


@dataclass(frozen=True)
class Pin(WrittenForm):
    """What a scenario allows one degree to be.

    Attributes
    ----------
    values
        The allowed values, ascending, or None for every integer from ``minimum`` to ``maximum``.
    minimum, maximum
        Least and greatest allowed value.
    text
        The pin as the user wrote it: ``16``, ``[16, 32]``, ``{min: 8}``.
    """

    values: tuple[int, ...] | None
    minimum: int
    maximum: int
    text: str = field(compare=False)

    def allowed(self, value: int) -> bool:
        """Whether the pin lets the degree be ``value``."""
        if self.values is not None:
            return value in self.values
        return self.minimum <= value <= self.maximum

    @classmethod
    def parse(cls, value: object) -> Pin:
        """Build a pin from an integer, a list of integers, or ``{min, max}``.

        Raises
        ------
        PydanticCustomError
            If it is none of these, empty, or out of range.
        """
        if isinstance(value, Pin):
            return value
        if isinstance(value, dict):
            bounds = _range(value, ("min", "max"))
            if not bounds:
                raise complaint(
                    value, "an integer, a list, or {min, max}", "write {min: 1, max: 8}."
                )
            text = "{" + ", ".join(f"{key}: {bound}" for key, bound in bounds.items()) + "}"
            return cls(None, bounds.get("min", 1), bounds.get("max", MAX_DEGREE), text)
        if isinstance(value, list | tuple):
            if not value:
                raise complaint(value, "a list of at least one integer", "delete the line.")
            values = [whole(item, 1, MAX_DEGREE, (index,)) for index, item in enumerate(value)]
            return cls(tuple(sorted(set(values))), min(values), max(values), str(values))
        number = whole(value, 1, MAX_DEGREE)
        return cls((number,), number, number, str(number))

    def written(self) -> Any:
        """An integer, a list, or ``{min, max}``."""
        if self.values is None:
            return {"min": self.minimum, "max": self.maximum}
        return self.values[0] if len(self.values) == 1 else list(self.values)

    @classmethod
    def json_form(cls) -> JsonSchemaValue:
        """JSON Schema of a pin."""
        bound = dict(_WHOLE_JSON)
        return {
            "anyOf": [
                dict(_WHOLE_JSON),
                {"type": "array", "items": dict(_WHOLE_JSON), "minItems": 1},
                {
                    "type": "object",
                    "properties": {"min": bound, "max": bound},
                    "additionalProperties": False,
                    "minProperties": 1,
                },
            ]
        }


@dataclass(frozen=True)
class CommPin(WrittenForm):
    """What a scenario allows the context-parallel exchange to be.

    Attributes
    ----------
    values
        The allowed exchanges, in the order p2p, a2a, a2a+p2p, all_gather.
    text
        The pin as the user wrote it.
    """

    values: tuple[str, ...]
    text: str = field(compare=False)

    def allowed(self, value: str) -> bool:
        """Whether the pin lets the exchange be ``value``."""
        return value in self.values

    @classmethod
    def parse(cls, value: object) -> CommPin:
        """Build a pin from a name or a list of names.

        Raises
        ------
        PydanticCustomError
            If a name is not a known exchange, or the list is empty.
        """
        if isinstance(value, CommPin):
            return value
        if isinstance(value, list | tuple):
            if not value:
                raise complaint(value, "a list of at least one name", "delete the line.")
            names = [choose(item, CP_COMM_CHOICES, (index,)) for index, item in enumerate(value)]
            ordered = tuple(name for name in CP_COMM_CHOICES if name in names)
            return cls(ordered, f"[{', '.join(names)}]")
        name = choose(value, CP_COMM_CHOICES)
        return cls((name,), name)

    def written(self) -> Any:
        """A name or a list of names."""
        return self.values[0] if len(self.values) == 1 else list(self.values)

    @classmethod
    def json_form(cls) -> JsonSchemaValue:
        """JSON Schema of the pin."""
        name = {"enum": list(CP_COMM_CHOICES)}
        return {"anyOf": [name, {"type": "array", "items": name, "minItems": 1}]}


@dataclass(frozen=True)
class BatchSize(WrittenForm):
    """Global batch sizes that a scenario allows, in sequences per optimizer step.

    Attributes
    ----------
    minimum, maximum
        Least and greatest global batch size (equal when the user gave one number).
    multiple_of
        Every size is a multiple of this.
    """

    minimum: int
    maximum: int
    multiple_of: int = 1

    def allowed(self, value: int) -> bool:
        """Whether ``value`` sequences are an allowed global batch."""
        return self.minimum <= value <= self.maximum and value % self.multiple_of == 0

    @classmethod
    def parse(cls, value: object) -> BatchSize:
        """Build a batch size from an integer or ``{min, max, multiple_of}``.

        Raises
        ------
        PydanticCustomError
            If it is neither, out of range, or allows no size at all.
        """
        if isinstance(value, BatchSize):
            return value
        if not isinstance(value, dict):
            number = whole(value, 1, MAX_DEGREE)
            return cls(number, number)
        bounds = _range(value, ("min", "max", "multiple_of"))
        if "max" not in bounds:
            raise complaint(value, "an integer, or a mapping with max", "add max.")
        step = bounds.get("multiple_of", 1)
        low, high = bounds.get("min", 1), bounds["max"]
        if high // step * step < low:
            raise complaint(
                step, f"such that a multiple lies in {low} to {high}", "lower it.", ("multiple_of",)
            )
        return cls(low, high, step)

    def written(self) -> Any:
        """An integer, or ``{min, max, multiple_of}``."""
        if self.minimum == self.maximum and self.multiple_of == 1:
            return self.minimum
        return {"min": self.minimum, "max": self.maximum, "multiple_of": self.multiple_of}

    @classmethod
    def json_form(cls) -> JsonSchemaValue:
        """JSON Schema of a global batch size."""
        bound = dict(_WHOLE_JSON)
        return {
            "anyOf": [
                bound,
                {
                    "type": "object",
                    "properties": {"min": bound, "max": bound, "multiple_of": bound},
                    "required": ["max"],
                    "additionalProperties": False,
                },
            ]
        }
