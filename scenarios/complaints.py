"""Word pydantic's errors for people: the path, the value, what it must be, and what to try."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from meshplan.scenarios.checks import listed, meant, nearest, shown
from meshplan.scenarios.errors import InputError
from meshplan.scenarios.source_map import SourceMap, dotted
from meshplan.scenarios.yaml_reader import KeyPath

#: More than this many faults at once help nobody.
MAX_FAULTS = 5

#: What a value must be, by pydantic's error type, and what to try.
_WANTED = {
    "int_type": ("an integer", "write a plain integer."),
    "int_from_float": ("an integer", "write it without a fraction."),
    "float_type": ("a number", "write a plain number."),
    "float_parsing": ("a number", "write a plain number."),
    "finite_number": ("a finite number", "write a finite number."),
    "date_type": ("a date", "write it as 2026-11-30."),
    "date_parsing": ("a date", "write it as 2026-11-30."),
    "date_from_datetime_parsing": ("a date", "write it as 2026-11-30."),
    "date_from_datetime_inexact": ("a date", "write it as 2026-11-30."),
    "bool_type": ("true or false", "write true or false."),
    "bool_parsing": ("true or false", "write true or false."),
    "string_type": ("text", "put it in quotes."),
    "string_pattern_mismatch": ("a name of letters, digits, '-', '_' and '.'", "use these alone."),
    "tuple_type": ("a list", "write it in brackets: [...]."),
    "list_type": ("a list", "write it in brackets: [...]."),
    "dict_type": ("a mapping", "put its keys on the lines below, indented."),
}
_LIMITS = {
    "greater_than_equal": ("ge", "at least"),
    "greater_than": ("gt", "more than"),
    "less_than_equal": ("le", "at most"),
    "less_than": ("lt", "less than"),
    "string_too_short": ("min_length", "text with a length of at least"),
    "string_too_long": ("max_length", "text with a length of at most"),
    "too_short": ("min_length", "a list with a length of at least"),
    "too_long": ("max_length", "a list with a length of at most"),
}


@dataclass(frozen=True)
class _Fault:
    path: KeyPath
    message: str
    advice: str


def input_error(
    error: ValidationError,
    root: type[BaseModel],
    source: SourceMap,
    prefix: KeyPath = (),
    whole: str = "the scenario",
) -> InputError:
    """One error for all faults that pydantic found, first line first.

    Parameters
    ----------
    error
        What validating ``root`` raised.
    root
        The model that was validated.
    source
        Where the values were written.
    prefix
        Path of the validated value in the scenario: ``("model",)`` for a model card.
    whole
        What the validated value is called where there is no path.
    """
    found = error.errors(include_url=False)
    # Entries that are refused leave a list too short, but that is no fault of its own.
    inner = {details["loc"][:-1] for details in found}
    faults = [
        _fault(details, root, prefix, whole)
        for details in found
        if details["type"] != "too_short" or details["loc"] not in inner
    ]
    errors = [source.error(fault.path, fault.message, fault.advice) for fault in faults]
    errors.sort(key=lambda one: one.line if one.line is not None else -1)
    if len(errors) == 1:
        return errors[0]
    first, *others = errors[:MAX_FAULTS]
    texts = [f"{first.message}\nMaybe {first.advice}", *(str(other) for other in others)]
    if len(errors) > MAX_FAULTS:
        texts.append(f"(and {len(errors) - MAX_FAULTS} more)")
    return InputError("\n".join(texts), file=first.file, line=first.line)


def _fault(details: Any, root: type[BaseModel], prefix: KeyPath, whole: str) -> _Fault:
    """Reword one error of pydantic."""
    kind: str = details["type"]
    inside: KeyPath = details["loc"]
    context: dict[str, Any] = details.get("ctx", {})
    value = shown(details["input"])
    path = (*prefix, *inside)
    if kind == "meshplan":
        path = (*path, *context["at"])
        return _Fault(path, f"{dotted(path)} {context['text']}", context["advice"])
    name = dotted(path) if path else whole
    parent = root if len(inside) == 1 else _section(root, inside[:-1])
    keys = list(parent.model_fields) if parent else []
    if kind == "extra_forbidden":
        near = nearest(inside[-1], keys)
        advice = f"you meant {near}." if near else f"use {listed(keys)}."
        return _Fault(path, f"{name} is an unknown key (value {value})", advice)
    if kind == "missing":
        example = "the line 'meshplan: 1'" if path == ("meshplan",) else str(path[-1])
        return _Fault(path, f"{name} is missing", f"add {example}.")
    if kind == "literal_error":
        choices = re.findall(r"'([^']*)'", context["expected"])
        advice = meant(details["input"], choices) or f"write {choices[0]}."
        return _Fault(path, f"{name} is {value}, but must be {listed(choices)}", advice)
    if kind in ("model_type", "model_attributes_type"):
        section = _section(root, inside)
        advice = f"put its keys below, indented: {listed(section.model_fields)}." if section else ""
        return _Fault(path, f"{name} is {value}, but must be a mapping", advice or "indent.")
    if kind == "value_error":
        text = str(context.get("error", details["msg"]))
        return _Fault(path, f"{name}: {text}", "one of these figures is a slip.")
    if kind in _LIMITS:
        key, words = _LIMITS[kind]
        bounds = _bounds(parent, inside[-1]) if parent else None
        advice = f"use a value {bounds}." if bounds else f"use {words} {context[key]}."
        return _Fault(path, f"{name} is {value}, but must be {words} {context[key]}", advice)
    wanted, advice = _WANTED.get(kind, ("something else: " + details["msg"], "see the schema."))
    return _Fault(path, f"{name} is {value}, but must be {wanted}", advice)


def _section(root: type[BaseModel], path: Iterable[str | int]) -> type[BaseModel] | None:
    """The model at ``path`` below ``root``, or None if something else is there."""
    section: type[BaseModel] | None = root
    for key in path:
        info = section.model_fields.get(str(key)) if section else None
        section = next(_models_in(info.annotation), None) if info else None
    return section


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """Models that an annotation such as ``Expect | None`` names."""
    for part in (annotation, *get_args(annotation)):
        if isinstance(part, type) and issubclass(part, BaseModel):
            yield part


def _bounds(section: type[BaseModel], key: str | int) -> str | None:
    """``from 1 to 4096``, if the field has both bounds."""
    schema = section.model_json_schema()["properties"].get(key, {})
    for form in (schema, *schema.get("anyOf", ())):
        if "minimum" in form and "maximum" in form:
            return f"from {form['minimum']} to {form['maximum']}"
    return None
