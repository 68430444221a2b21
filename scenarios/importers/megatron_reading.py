"""Values of launch arguments as a translation asks for them, and what it tells and leaves open."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshplan.scenarios.checks import MAX_DEGREE, listed
from meshplan.scenarios.importers.megatron_flags import spelt
from meshplan.scenarios.yaml_reader import shorten

if TYPE_CHECKING:
    from meshplan.scenarios.importers.megatron_args import MegatronArguments


class Reading:
    """Arguments with the notes that are made on them.

    Attributes
    ----------
    given
        The arguments.
    layers
        Decoder layers of the model, if known.
    short
        Whether they are a string of degrees, which says nothing about a framework.
    notes
        Defaults that were taken, and what a scenario cannot hold, in sentences.
    left
        What stays open, as words of the command were not read.
    """

    def __init__(self, arguments: MegatronArguments, layers: int | None) -> None:
        self.given = arguments
        self.layers = arguments.get("num_layers") or layers
        self.short = arguments.form == "short"
        self.notes: list[str] = []
        self.left: list[str] = []

    def open(self, what: str, *names: str) -> bool:
        """Whether ``what`` stays open, as one of its arguments may stand where nothing was read."""
        if self.short or not self.given.unsure(*names):
            return False
        self.left.append(what)
        return True

    def tell_open(self) -> None:
        """Note what stays open for words that were not read, or misspelt."""
        if self.left:
            self.notes.append(
                f"left open, as the command was not wholly read: {', '.join(self.left)}"
            )

    def count(self, name: str) -> int | None:
        """A positive number, or None if it is not given."""
        value = self.given.get(name)
        if isinstance(value, int) and not 1 <= value <= MAX_DEGREE:
            raise self.given.error(
                name,
                f"{spelt(name)} is {value}, but must be from 1 to {MAX_DEGREE}",
                "write a positive number.",
            )
        return value if isinstance(value, int) else None

    def on(self, name: str) -> bool:
        """Whether a flag is given."""
        return self.given.get(name) is True

    def word(self, name: str, choices: tuple[str, ...], default: str | None = None) -> str | None:
        """A word that must be one of ``choices``; ``default`` if it is not given."""
        value = self.given.get(name)
        if value is None:
            return default
        if value not in choices:
            raise self.given.error(
                name,
                f"{spelt(name)} is {shorten(str(value))}, but must be {listed(choices)}",
                f"write {choices[0]}.",
            )
        return str(value)

    def words(self, name: str) -> tuple[str, ...]:
        """The words of a list; none if it is not given."""
        value = self.given.get(name)
        return value if isinstance(value, tuple) else ()


__all__ = ["Reading"]
