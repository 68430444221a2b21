"""One decision of a plan, as the two frameworks say it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

Value: TypeAlias = bool | int | float | str | tuple[str, ...] | tuple[int, ...] | None

#: A word that Hydra's grammar takes for a string without quotes.
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SPECIAL = ("true", "false", "null", "nan", "inf")


@dataclass(frozen=True)
class Setting:
    """One decision.

    Attributes
    ----------
    words
        Flags of Megatron-LM with their values; empty where its default says it.
    overrides
        Fields of Megatron-Bridge's configuration.  A recipe may have set any of them, so these
        are complete, defaults included.
    """

    words: tuple[str, ...] = ()
    overrides: Mapping[str, Value] = field(default_factory=dict)


def flag(name: str, *values: Value) -> tuple[str, ...]:
    """``--name`` and its values as words: ``flag("micro-batch-size", 2)``."""
    return (f"--{name}", *(_word(value) for value in values))


def _word(value: Value) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def setting(words: Iterable[str] = (), /, **overrides: Value) -> Setting:
    """A setting; ``__`` in the name of an override stands for its dot: ``model__seq_length``."""
    named = {name.replace("__", ".", 1): value for name, value in overrides.items()}
    return Setting(tuple(words), named)


def override_text(name: str, value: Value) -> str:
    """``model.context_parallel_size=4``, in Hydra's grammar."""
    return f"{name}={_hydra(value)}"


def _hydra(value: Value) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{','.join(_hydra(one) for one in value)}]"
    if not isinstance(value, str):
        return _word(value)
    if _PLAIN.fullmatch(value) and value.lower() not in _SPECIAL:
        return value
    return '"{}"'.format(value.replace("\\", "\\\\").replace('"', '\\"'))


__all__ = ["Setting", "Value", "flag", "override_text", "setting"]
