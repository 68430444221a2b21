"""Model names as rows of measured runs write them, and the model cards they mean."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from benchmarks.memory_words import Unusable
from meshplan.scenarios.cards import card_names, load_card

DATA = Path(__file__).resolve().parent / "data" / "memory_models.yaml"
#: Runs that the memory model is not about, by words in the model's name.
_BEYOND = {
    r"lora": "LoRA: most weights are frozen",
    r"dpo": "DPO: a reference model takes memory, too",
    r"vl": "vision tower",
    r"t5": "encoder and decoder: T5",
    r"fsdp\d?": "FSDP",
}
#: What a name may say besides the model, and the figure that it changes.
_CHANGES = (
    (r"\+ ?mtp\b", {"mtp_layers": 1}),
    (r"\bno mtp\b", {"mtp_layers": 0}),
    (r"\bmtp ?(\d)\b", {"mtp_layers": 1}),
    (r"\b(\d) mtp\b", {"mtp_layers": 1}),
    (r"\bfirst (\d+) dense\b", {"dense_layers": 1}),
    (r"\b(\d+) layers\b", {"layers": 1}),
    (r"-(\d+)l\b", {"layers": 1}),
    (r"\bv=(\d+)\b", {"vocab": 1, "vocab_divisor": 0}),
    (r"\bh=(\d+)\b", {"hidden": 1}),
)
#: What is done with a model, which does not change its memory.
_TASKS = r"\b(sft|pretrain|rl|instruct|base|it)\b( \d+k\b)?|\([^)]*\)"


@dataclass(frozen=True)
class Model:
    """A model of a row.

    Attributes
    ----------
    reference
        ``model:`` of the scenario.
    training
        Settings of the runs that carry this name, where the row says nothing.
    moments
        Format of the Adam moments in the published recipes of the model, likewise.
    layouts
        Pipeline layouts of the runs that carry this name, by ``PPxVPP``.
    """

    reference: dict[str, Any]
    training: Mapping[str, Any] = field(default_factory=dict)
    moments: str = "fp32"
    layouts: Mapping[str, str] = field(default_factory=dict)

    def with_mtp(self, layers: int) -> Model:
        """The same model with this many MTP layers."""
        return replace(self, reference={**self.reference, "mtp_layers": layers})


@cache
def _entries() -> dict[str, dict[str, Any]]:
    """Entries of the data file by each of their names, letters and digits alone."""
    listed = yaml.safe_load(DATA.read_text("utf-8"))["models"]
    return {_squashed(name): entry for entry in listed for name in entry["names"]}


def _squashed(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def model_of(text: str, phase: str = "") -> Model:
    """The model that a row names; :class:`Unusable` if there is none."""
    plain = text.lower().replace("_", "-")
    for word, reason in _BEYOND.items():
        if re.search(rf"(?<![a-z0-9]){word}(?![a-z0-9])", plain) or word == phase.lower():
            raise Unusable(reason)
    changes: dict[str, int] = {}
    if _squashed(plain) not in _entries():
        plain, changes = _without_changes(plain)
    entry, name = _entry(plain)
    plain_name = re.sub(r"[^A-Za-z0-9._-]+", "-", name)
    reference = {"card": entry["card"]} if "card" in entry else {"name": plain_name}
    return Model(
        reference=reference | entry.get("figures", {}) | changes,
        training=entry.get("training", {}),
        moments=entry.get("recipe_moments", "fp32"),
        layouts=entry.get("layouts", {}),
    )


def _without_changes(plain: str) -> tuple[str, dict[str, int]]:
    """The bare name, and the figures that the rest of the text changes."""
    changes: dict[str, int] = {}
    for pattern, figures in _CHANGES:
        found = re.search(pattern, plain)
        if found is None:
            continue
        number = int(found[1]) if found.groups() else None
        for key, value in figures.items():
            changes[key] = value if number is None else number if value else 1
        plain = plain[: found.start()] + " " + plain[found.end() :]
    return re.sub(_TASKS, " ", plain), changes


def _entry(plain: str) -> tuple[dict[str, Any], str]:
    """Entry of the data file or a shipped card of its own, and its name."""
    known = {_squashed(card): card for card in card_names()}
    wanted = _squashed(plain)
    for name in (wanted, wanted.removeprefix("simumax")):
        if name in _entries():
            return _entries()[name], str(_entries()[name]["names"][0])
        if name in known:
            return {"card": known[name]}, known[name]
    raise Unusable(f"model {plain.strip() or 'not stated'} unknown")


def is_moe(model: Model) -> bool:
    """Whether the model has experts."""
    if "card" in model.reference:
        return load_card(model.reference["card"]).is_moe
    return bool(model.reference.get("experts"))
