"""What a text says about a run of Megatron-LM: settings with their lines, and what was not read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from meshplan.scenarios.errors import InputError
from meshplan.scenarios.importers.megatron_flags import Value, ValueFault, spelt, value_of
from meshplan.scenarios.importers.megatron_part import ScenarioPart, scenario_part
from meshplan.scenarios.yaml_reader import shorten


@dataclass(frozen=True)
class Setting:
    """One argument that is read.

    Attributes
    ----------
    name
        Its name in the printed dump: ``tensor_model_parallel_size``.
    value
        A number, a truth value, a word, or several words.
    line
        1-based line on which it was written.
    conditional
        Whether it stands under a condition of the script.
    """

    name: str
    value: Value
    line: int
    conditional: bool = False


@dataclass(frozen=True)
class UnknownFlag:
    """A flag that is not read.

    Attributes
    ----------
    name
        As written, with its dashes.
    line
        1-based line.
    near
        A flag that is read and of which this may be a misspelling, or None.
    """

    name: str
    line: int
    near: str | None = None


@dataclass(frozen=True)
class MegatronArguments:
    """What a text says about a run of Megatron-LM.

    Attributes
    ----------
    source
        Name of the file, for messages.
    form
        ``script``, ``dump`` (printed arguments) or ``short`` (``tp1_pp2``).
    settings
        The arguments that are read, in the order of the text.
    unknown
        Flags that are not read.
    notes
        What the reader decided or passed over, in sentences.
    gaps
        Words of the launch command that could not be read, each with its line.  While there is
        one, an absent argument may stand there.
    """

    source: str
    form: Literal["script", "dump", "short"]
    settings: tuple[Setting, ...]
    unknown: tuple[UnknownFlag, ...] = ()
    notes: tuple[str, ...] = ()
    gaps: tuple[str, ...] = ()

    def unsure(self, *names: str) -> bool:
        """Whether one of these arguments may be given although it was not read.

        So it is where a word was not read, and where a flag looks like a misspelling of it.
        """
        near = {one.near for one in self.unknown}
        return any(self.get(one) is None and (self.gaps or spelt(one) in near) for one in names)

    def get(self, name: str) -> Value | None:
        """The value of an argument by its name in the dump; None if it is not given."""
        found = self.setting(name)
        return None if found is None else found.value

    def setting(self, name: str) -> Setting | None:
        """An argument by its name in the dump, with its line."""
        return next((one for one in self.settings if one.name == name), None)

    def error(self, name: str, message: str, advice: str) -> InputError:
        """An error about one argument, at its line."""
        found = self.setting(name)
        return InputError(
            message, advice=advice, file=self.source, line=found.line if found else None
        )

    def to_scenario_part(self, layers: int | None = None) -> ScenarioPart:
        """What the arguments mean as ``layout``, ``options``, ``workload`` and ``training``.

        Parameters
        ----------
        layers
            Decoder layers of the model, if the arguments do not say (``--num-layers``).

        Raises
        ------
        InputError
            If arguments contradict each other, or name what Megatron-LM does not know.
        """
        return scenario_part(self, layers)


def nothing(name: str) -> InputError:
    """The error for a text without any argument that is read."""
    return InputError(
        "there are no Megatron arguments in it",
        advice="give a launch script with flags such as --tensor-model-parallel-size 4, the "
        "printed arguments, or a string such as tp4_pp2_ep8.",
        file=name,
    )


@dataclass
class Collected:
    """Settings while they are gathered: each once, or the same again."""

    name: str
    settings: dict[str, Setting] = field(default_factory=dict)

    def add(self, new: Setting, written: str) -> None:
        """Take one setting; an ``InputError`` if it has another value already."""
        old = self.settings.setdefault(new.name, new)
        if old.value != new.value:
            where = "the same line" if old.line == new.line else f"line {old.line}"
            either = " (under a condition)" if old.conditional or new.conditional else ""
            raise InputError(
                f"{written} is {said(new.value)} here, but {said(old.value)} on {where}{either}",
                advice="keep the one that the run has.",
                file=self.name,
                line=new.line,
            )

    def value(self, name: str, words: tuple[str, ...], written: str, line: int) -> Value:
        """The value of an argument; an ``InputError`` if its words are no such value."""
        try:
            return value_of(name, words)
        except ValueFault as fault:
            raise InputError(
                f"{written} {fault.message}", advice=fault.advice, file=self.name, line=line
            ) from None


def said(value: Value) -> str:
    if isinstance(value, tuple):
        return shorten(" ".join(value))
    return shorten(value) if isinstance(value, str) else str(value).lower()


__all__ = ["Collected", "MegatronArguments", "Setting", "UnknownFlag", "nothing"]
