"""Read a Hugging Face ``config.json`` as a model card; refuse what is not known, guess nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from meshplan.scenarios.checks import shown
from meshplan.scenarios.complaints import input_error
from meshplan.scenarios.errors import InputError
from meshplan.scenarios.importers.hf_config import Fields, parse_config
from meshplan.scenarios.importers.hf_families import (
    ARCHITECTURES_THAT_CANNOT,
    CANNOT,
    FAMILIES,
    Family,
)
from meshplan.scenarios.importers.text_file import STANDARD_INPUT, read_text
from meshplan.scenarios.model_card import ModelCard
from meshplan.scenarios.source_map import SourceMap


@dataclass(frozen=True)
class ImportedModel:
    """A model card from a ``config.json``.

    Attributes
    ----------
    card
        The card.
    family
        ``model_type`` of the architecture.
    notes
        Defaults that were taken, and small parts that are not counted, in sentences.
    approximations
        Parts of the decoder that the card cannot hold and that matter, in sentences.
    """

    card: ModelCard
    family: str
    notes: tuple[str, ...] = ()
    approximations: tuple[str, ...] = ()

    def figures(self) -> dict[str, Any]:
        """The card as plain data for ``model:`` in a scenario, without defaults."""
        data = self.card.model_dump(mode="json", exclude_defaults=True, exclude={"sources"})
        return {**data, "attention": self.card.attention}


def import_model(path: str | Path, name: str | None = None) -> ImportedModel:
    """Read the ``config.json`` at ``path``; ``-`` is standard input.

    Parameters
    ----------
    name
        Name of the card; None takes it from the file or its folder.

    Raises
    ------
    InputError
        If the file cannot be read, the architecture is unknown or has parts that a card cannot
        hold, or a field is missing or out of range.
    """
    text, file = read_text(path)
    folder = "" if file == STANDARD_INPUT else Path(path).absolute().parent.name
    return model_from_config(text, file, name, folder)


def model_from_config(
    text: str, file: str = "<string>", name: str | None = None, folder: str = ""
) -> ImportedModel:
    """Read a ``config.json`` from text; ``file`` stands for it in errors, ``folder`` may name it.

    Raises
    ------
    InputError
        As :func:`import_model` does.
    """
    data = parse_config(text, file)
    family = _family(data, file)
    wrapped = data.get("text_config")
    is_wrapped = isinstance(wrapped, dict) and "num_hidden_layers" not in data
    decoder = {**_outer(data), **wrapped} if is_wrapped and isinstance(wrapped, dict) else data
    fields = Fields(decoder, text, file, family.model_type)
    figures = family.read(fields)
    if is_wrapped or "vision_config" in data:
        fields.notes.append("only the language model is imported, not the vision part")
    if "quantization_config" in data:
        fields.notes.append("the stored weights are quantised; workload.precision decides here")
    fields.notes.append(
        "vocab_divisor is 128, the default of Megatron-LM: a config.json does not say"
    )
    figures["name"] = name if name is not None else _name(data, folder, family)
    figures = {key: value for key, value in figures.items() if value is not None}
    try:
        card = ModelCard.model_validate(figures)
    except ValidationError as error:
        raise input_error(error, ModelCard, SourceMap(file), whole="the model card") from None
    return ImportedModel(card, family.model_type, tuple(fields.notes), tuple(fields.approximations))


def _outer(data: Mapping[str, Any]) -> dict[str, Any]:
    """What a wrapper says about its decoder, unless the decoder says it itself."""
    return {key: data[key] for key in ("tie_word_embeddings",) if key in data}


def _family(data: Mapping[str, Any], file: str) -> Family:
    """The architecture, from ``model_type`` and ``architectures``, which must not contradict."""
    kinds = [data.get("model_type")]
    wrapped = data.get("text_config")
    if isinstance(wrapped, dict):
        kinds.append(wrapped.get("model_type"))
    listed = data.get("architectures")
    architectures = listed if isinstance(listed, list) else []
    named = [kind for kind in kinds if isinstance(kind, str)]
    for kind in (*named, *(ARCHITECTURES_THAT_CANNOT.get(str(one), "") for one in architectures)):
        if kind in CANNOT:
            raise InputError(
                f"the architecture {kind} cannot be held by a model card: {CANNOT[kind]}",
                advice="see `meshplan models` for the nearest card.",
                file=file,
            )
    # The wrapper's type and the decoder's must both be known, and be of one family.
    matches = {kind: _of_type(kind) for kind in named}
    by_type = {found.model_type: found for found in matches.values() if found is not None}
    by_class = {
        family.model_type: family
        for family in FAMILIES
        if any(one in family.architectures for one in architectures)
    }
    unknown = [kind for kind, found in matches.items() if found is None]
    if unknown or len(by_type) > 1:
        raise _unknown(f"model_type is {shown((unknown or named)[0])}", not unknown, file)
    if not named and len(by_class) != 1:
        said = (
            f"architectures is {shown(listed)}" if listed is not None else "model_type is missing"
        )
        raise _unknown(said, bool(by_class), file)
    family = next(iter((by_type or by_class).values()))
    if named and architectures and family.model_type not in by_class:
        raise InputError(
            f"model_type is {shown(named[0])}, but architectures is {shown(architectures)}",
            advice="one of them is a slip, or the model has its own code, which is not known here.",
            file=file,
        )
    return family


def _of_type(kind: str) -> Family | None:
    known = (one for one in FAMILIES if kind in (one.model_type, *one.others))
    return next(known, None)


def _unknown(said: str, several: bool, file: str) -> InputError:
    known = ", ".join(family.model_type.removesuffix("_text") for family in FAMILIES)
    why = "several architectures" if several else "no architecture that is known"
    return InputError(
        f"{said}: {why}",
        advice=f"give its figures under `model:` as a model card; known are {known}.",
        file=file,
    )


def _name(data: Mapping[str, Any], folder: str, family: Family) -> str:
    """A card name from the model's own name or the folder of the file."""
    own = data.get("_name_or_path")
    for text in (own.rstrip("/").rsplit("/", 1)[-1] if isinstance(own, str) else "", folder):
        words = re.findall(r"[a-z0-9.]+", text.lower())
        name = "-".join(words).strip(".-")[:80]
        if name and re.fullmatch(r"[a-z0-9][a-z0-9.-]*", name):
            return name
    return family.model_type.replace("_", "-")


__all__ = ["ImportedModel", "import_model", "model_from_config"]
