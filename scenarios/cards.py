"""The model cards that are shipped: one YAML file each in ``models/``, file stem = card name."""

from __future__ import annotations

from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path

import yaml

from meshplan.scenarios.errors import InputError
from meshplan.scenarios.model_card import ModelCard

_FOLDER = Path(__file__).parent / "models"
# The C reader is some ten times faster; it is absent where libyaml was at build time.
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@lru_cache(maxsize=1)
def card_names() -> tuple[str, ...]:
    """Names of all shipped cards, sorted."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.yaml")))


@lru_cache(maxsize=64)
def load_card(name: str) -> ModelCard:
    """Load the shipped card of that name.

    Raises
    ------
    InputError
        If there is no such card; the advice gives the nearest names.
    """
    if name not in card_names():
        raise InputError(f"model {name!r} is not a known model card", advice=_advice(name))
    text = (_FOLDER / f"{name}.yaml").read_text(encoding="utf-8")
    return ModelCard.model_validate(yaml.load(text, Loader=_Loader))


def card_file(name: str) -> Path | None:
    """The file of the shipped card of that name, or None if there is none."""
    return _FOLDER / f"{name}.yaml" if name in card_names() else None


def cards() -> tuple[ModelCard, ...]:
    """Return all shipped cards, sorted by name."""
    return tuple(load_card(name) for name in card_names())


def _advice(name: str) -> str:
    # People write DeepSeek_V3, or the organisation of a hub in front.
    spelt = name.rsplit("/", 1)[-1].lower().replace("_", "-").replace(" ", "-")
    near = get_close_matches(spelt, card_names(), n=3, cutoff=0.5)
    near = near or [known for known in card_names() if spelt and known.startswith(spelt[:4])][:3]
    if near:
        return f"you mean {' or '.join(near)}"
    return f"choose one of {', '.join(card_names())}"
