"""Which model a scenario names: a card, a changed card, a file, or the figures themselves."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pydantic.json_schema import JsonSchemaValue

from meshplan.scenarios.checks import complaint
from meshplan.scenarios.pins import WrittenForm

#: JSON Schema of a card's figures, until the card's own schema takes its place.
ANY_CARD: JsonSchemaValue = {"type": "object", "minProperties": 1}


@dataclass(frozen=True)
class ModelRef(WrittenForm):
    """Which model the scenario trains, before it is looked up.

    Attributes
    ----------
    card
        Name of a model card, or None.
    huggingface
        Path of a Hugging Face ``config.json``, or None.
    fields
        With ``card``, the card fields that differ; else the fields of a whole card.
    """

    card: str | None = None
    huggingface: str | None = None
    fields: dict[str, Any] = field(default_factory=dict, hash=False)

    @classmethod
    def parse(cls, value: object) -> ModelRef:
        """Build the reference from a card name or a mapping.

        Raises
        ------
        PydanticCustomError
            If it is neither, or empty, or mixes ``huggingface`` with other keys.
        """
        if isinstance(value, ModelRef):
            return value
        if isinstance(value, str) and value:
            return cls(card=value)
        if not isinstance(value, dict) or not value:
            raise complaint(
                value, "the name of a model card, or a mapping", "see `meshplan models`."
            )
        rest = {key: part for key, part in value.items() if key not in ("card", "huggingface")}
        for key in ("card", "huggingface"):
            if key in value and not (isinstance(value[key], str) and value[key]):
                raise complaint(value[key], "a string", "put the name or path here.", (key,))
        if "huggingface" in value and len(value) > 1:
            raise complaint(
                value["huggingface"],
                "the only key of model",
                "remove the others.",
                ("huggingface",),
            )
        return cls(value.get("card"), value.get("huggingface"), rest)

    def written(self) -> Any:
        """A card name or a mapping, as in the file."""
        if self.huggingface is not None:
            return {"huggingface": self.huggingface}
        if self.card is None:
            return dict(self.fields)
        return {"card": self.card, **self.fields} if self.fields else self.card

    @classmethod
    def json_form(cls) -> JsonSchemaValue:
        """JSON Schema of the four forms; a card's own fields are checked when it is looked up."""
        name = {"type": "string", "minLength": 1}
        return {
            "anyOf": [
                name,
                {
                    "type": "object",
                    "properties": {"huggingface": name},
                    "required": ["huggingface"],
                    "additionalProperties": False,
                },
                {"type": "object", "properties": {"card": name}, "required": ["card"]},
                dict(ANY_CARD),
            ]
        }
