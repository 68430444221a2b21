"""Read a layout that a person states: ``tp=1,cp=32,recompute=moe+mlp``, or a mapping.

What is stated may be part of a layout; :mod:`meshplan.solver.complete` fills in the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches

from meshplan.constraints.decisions import (
    CP_COMM_TYPES,
    DEGREES,
    DISPATCHERS,
    GRAPH_SCOPES,
    RECOMPUTE_MODULES,
)
from meshplan.constraints.layout import Layout
from meshplan.scenarios.checks import MAX_DEGREE, shown
from meshplan.scenarios.errors import InputError

#: Longest layout text that is read; a real one has a few hundred characters.
_MOST_CHARACTERS = 10_000
_AUTO = "auto"
#: Names of the options as in a layout text, and other spellings of them.
OPTIONS: tuple[str, ...] = (
    "recompute", "offload", "dispatcher", "cp_comm", "graphs", "pipeline",
)  # fmt: skip
_SPELLINGS = {
    "optimizer_offload": "offload",
    "cuda_graphs": "graphs",
    "pipeline_layout": "pipeline",
}
_KEYS: tuple[str, ...] = (*DEGREES, "gpus", *OPTIONS)
_EXAMPLE = '"tp=1,cp=32,ep=32,pp=8,vpp=4,recompute=moe+mlp,offload=100"'


@dataclass(frozen=True)
class Stated:
    """What is stated about a layout; what is None or absent is open.

    Attributes
    ----------
    degrees
        Degrees by name, ``gbs`` and ``gpus`` included.
    recompute
        Module names, in canonical order; ``recompute_full`` stands for the granularity ``full``.
    offload
        Percentage of the optimizer state on the host.
    pipeline
        ``even`` or a layout string.
    free
        Options that are said to be ``auto``: whatever the scenario pins, they are open.
    """

    degrees: Mapping[str, int] = field(default_factory=dict)
    recompute: tuple[str, ...] | None = None
    recompute_full: bool = False
    offload: int | None = None
    dispatcher: str | None = None
    cp_comm: str | None = None
    graphs: tuple[str, ...] | None = None
    pipeline: str | None = None
    free: frozenset[str] = frozenset()


def stated_by(layout: Layout) -> Stated:
    """All that a whole layout states; ``dp``, ``edp`` and ``ga`` follow from its other degrees."""
    following = ("dp", "edp", "ga")
    return Stated(
        degrees={name: getattr(layout, name) for name in DEGREES if name not in following},
        recompute=layout.recompute,
        recompute_full=layout.recompute_full,
        offload=layout.offload,
        dispatcher=layout.dispatcher,
        cp_comm=layout.cp_comm,
        graphs=layout.cuda_graphs,
    )


def read_layout(layout: Mapping[str, object] | str | None) -> Stated:
    """What ``layout`` states.

    Raises
    ------
    InputError
        For an unknown or repeated key, or a value that cannot be; it names key and value.
    """
    if layout is None:
        return Stated()
    pairs = _pairs(layout) if isinstance(layout, str) else _items(layout)
    degrees: dict[str, int] = {}
    options: dict[str, object] = {}
    free: set[str] = set()
    for written, value in pairs:
        key = _SPELLINGS.get(written, written)
        if key not in _KEYS:
            raise _unknown(written, value)
        if key in degrees or key in options or key in free:
            raise InputError(f"layout gives {key} twice", advice="keep one of them.")
        if value == _AUTO:
            free.add(key)
        elif key in OPTIONS:
            options |= _option(key, written, value)
        else:
            degrees[key] = _whole(written, value)
    return Stated(degrees, free=frozenset(free), **options)  # type: ignore[arg-type]


def _pairs(text: str) -> list[tuple[str, object]]:
    """Keys and values of a text; a comma ends a value only if another key follows."""
    if len(text) > _MOST_CHARACTERS:
        raise InputError(
            f"layout has {len(text)} characters, more than {_MOST_CHARACTERS}",
            advice="leave out what is the default.",
        )
    if not text.strip(" ,\t\n"):
        raise InputError(f"layout is {shown(text)}: it states nothing", advice=f"write {_EXAMPLE}.")
    pairs: list[tuple[str, object]] = []
    for part in re.split(r",(?=\s*[A-Za-z_]+\s*=)", text.strip(" ,\t\n")):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not key or not value:
            raise InputError(
                f"layout has the part {shown(part.strip())}, which is not key=value",
                advice=f"write {_EXAMPLE}.",
            )
        pairs.append((key.lower(), value))
    return pairs


def _items(layout: Mapping[str, object]) -> list[tuple[str, object]]:
    return [(str(key), value) for key, value in layout.items() if value is not None]


def _unknown(key: str, value: object) -> InputError:
    near = get_close_matches(key, (*_KEYS, *_SPELLINGS), n=1, cutoff=0.5)
    advice = f"you meant {near[0]}." if near else f"use {', '.join(_KEYS)}."
    if key == "activation_offload":
        advice = "it belongs to the scenario: --set options.activation_offload=[core_attn]."
    return InputError(
        f"layout has the unknown key {shown(key)} (value {_said(value)})", advice=advice
    )


def _said(value: object) -> str:
    """``value`` for a message: plain words without quotes."""
    return (
        value if isinstance(value, str) and re.fullmatch(r"[\w.+-]{1,40}", value) else shown(value)
    )


def _whole(key: str, value: object, low: int = 1, high: int = MAX_DEGREE) -> int:
    number = value
    if isinstance(value, str) and re.fullmatch(r"[+-]?[0-9]{1,30}", value):
        number = int(value)
    if isinstance(number, int) and not isinstance(number, bool) and low <= number <= high:
        return number
    advice = f"write {key}={high if low == 0 else low}."
    if isinstance(value, str) and "=" in value:
        advice = f"put a comma between the keys: {_EXAMPLE}."
    raise InputError(
        f"layout has {key} = {_said(value)}, but {key} must be an integer from {low} to {high}",
        advice=advice,
    )


def _option(key: str, written: str, value: object) -> dict[str, object]:
    if key == "recompute":
        if value == "full":
            return {"recompute": (), "recompute_full": True}
        return {"recompute": _names(written, value, RECOMPUTE_MODULES, ("none", "full", _AUTO))}
    if key == "graphs":
        return {"graphs": _names(written, value, GRAPH_SCOPES, ("none", _AUTO))}
    if key == "offload":
        return {"offload": _percent(written, value)}
    if key == "pipeline":
        if not isinstance(value, str):
            raise InputError(
                f"layout has {written} = {_said(value)}, but it must be even or a layout string",
                advice='write "Et*3|(tt|)*29m|L".',
            )
        return {"pipeline": value}
    choices = DISPATCHERS if key == "dispatcher" else CP_COMM_TYPES
    return {key: _choice(written, value, choices)}


def _choice(key: str, value: object, choices: Iterable[str]) -> str:
    names = tuple(choices)
    if isinstance(value, str) and value in names:
        return value
    near = get_close_matches(str(value)[:60], names, n=1, cutoff=0.5)
    raise InputError(
        f"layout has {key} = {_said(value)}, but {key} must be one of {', '.join(names)}",
        advice=f"you meant {near[0]}." if near else f"write {key}={names[0]}.",
    )


def _names(
    key: str, value: object, names: tuple[str, ...], words: tuple[str, ...]
) -> tuple[str, ...]:
    """The names of ``a+b+c`` or of a list, in canonical order; ``none`` is no name."""
    if value in ("none", "", False):
        return ()
    if isinstance(value, str):
        parts: list[object] = [
            part.strip() for part in value.strip("[]").replace("+", ",").split(",")
        ]
    elif isinstance(value, list | tuple | set | frozenset):
        parts = list(value)
    else:
        raise InputError(
            f"layout has {key} = {_said(value)}, but it must be {' or '.join(words)} or names",
            advice=f"write {key}={names[1]}+{names[2]}.",
        )
    if alone := next((part for part in parts if part in words and len(parts) > 1), None):
        raise InputError(
            f"layout has {key} = {_said(value)}, but {alone} stands for itself",
            advice=f"write {key}={alone}, or leave {alone} out.",
        )
    chosen = {_choice(key, part, (*names, *words) if len(parts) == 1 else names) for part in parts}
    return tuple(name for name in names if name in chosen)


def _percent(key: str, value: object) -> int:
    """Percentage from ``offload`` (0 to 100), or from ``optimizer_offload`` (0 to 1) as files have.

    Both take ``true`` and ``false``.
    """
    text = str(value).strip().lower()
    if text in ("true", "false"):
        return 100 if text == "true" else 0
    try:
        fraction = float(text) if len(text) <= 40 else -1.0
    except ValueError:
        fraction = -1.0
    if key != "optimizer_offload":
        if 0 < fraction < 1:
            raise InputError(
                f"layout has {key} = {_said(value)}, but {key} is in percent, without a fraction",
                advice=f"write {key}={round(fraction * 100)}, or optimizer_offload={text}.",
            )
        return _whole(
            key, text.removesuffix("%").strip() if isinstance(value, str) else value, 0, 100
        )
    if not 0 <= fraction <= 1:
        raise InputError(
            f"layout has {key} = {_said(value)}, but it must be true, false or a fraction "
            "from 0 to 1",
            advice="write optimizer_offload=1.0, or offload=100 in percent.",
        )
    return round(fraction * 100)
