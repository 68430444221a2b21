"""Read Megatron launch arguments: a launch script, the printed argument dump, or a short string.

``read_arguments`` finds out which of the three a text is.  Nothing is executed; what is not
understood is listed in ``unknown`` and ``notes``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from meshplan.scenarios.errors import InputError
from meshplan.scenarios.importers.megatron_flags import (
    CARD_FIELDS,
    FORMS,
    Value,
    ValueFault,
    flag_of,
    near_flag,
    spelt,
    value_of,
)
from meshplan.scenarios.importers.megatron_part import ScenarioPart, scenario_part
from meshplan.scenarios.importers.shell_script import Argument, read_script
from meshplan.scenarios.importers.text_file import checked_text, read_text
from meshplan.scenarios.yaml_reader import shorten

_DUMP_LINE = re.compile(r"(?:^|[\s:\]])([a-z][a-z0-9_]{1,80}) (\.{2,})(?: (.{0,20000}))?$")
_MOST_LINE = 100_000
#: Unknown flags that are compared with those that are read, to find misspellings.
_MOST_COMPARED = 1_000
#: Names in strings such as ``tp1_pp2_cp1_vp24_ep2``, and the arguments that they stand for.
_SHORT_NAMES = {
    "tp": "tensor_model_parallel_size",
    "pp": "pipeline_model_parallel_size",
    "cp": "context_parallel_size",
    "vp": "num_virtual_stages_per_pipeline_rank",
    "vpp": "num_virtual_stages_per_pipeline_rank",
    "ep": "expert_model_parallel_size",
    "etp": "expert_tensor_parallel_size",
    "dp": "data_parallel_size",
    "mbs": "micro_batch_size",
    "gbs": "global_batch_size",
    "seq": "seq_length",
}
_SHORT = re.compile(r"([A-Za-z]{1,20})[=:]?([0-9]{1,12})")


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
    """

    source: str
    form: Literal["script", "dump", "short"]
    settings: tuple[Setting, ...]
    unknown: tuple[UnknownFlag, ...] = ()
    notes: tuple[str, ...] = ()

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


def read_arguments_file(path: str | Path) -> MegatronArguments:
    """Read the file at ``path``; ``-`` is standard input, and ``tp4_pp2`` without a file is text.

    Raises
    ------
    InputError
        If it cannot be read, or :func:`read_arguments` refuses it.
    """
    plain = str(path)
    if len(plain) <= 200 and not os.path.exists(plain):
        short = _from_short(plain, plain)
        if short is not None and not short.unknown:
            return short
    text, name = read_text(path)
    return read_arguments(text, name)


def read_arguments(text: str, name: str = "<string>") -> MegatronArguments:
    """Read launch arguments from text; ``name`` stands for the file in errors.

    Raises
    ------
    InputError
        If the text holds no argument that is read, gives one twice with different values, is cut
        off within a quote, or needs a value that only running it would give.
    """
    text = checked_text(text, name)
    dump = list(_dump_lines(text))
    if len(dump) >= 3 or (dump and "--" not in text):
        return _from_dump(dump, name)
    if "--" not in text and (short := _from_short(text, name)) is not None:
        return short
    if "--" not in text:
        raise _nothing(name)
    return _from_script(text, name)


def _nothing(name: str) -> InputError:
    return InputError(
        "there are no Megatron arguments in it",
        advice="give a launch script with flags such as --tensor-model-parallel-size 4, the "
        "printed arguments, or a string such as tp4_pp2_ep8.",
        file=name,
    )


@dataclass
class _Collected:
    """Settings while they are gathered: each once, or the same again."""

    name: str
    settings: dict[str, Setting] = field(default_factory=dict)

    def add(self, new: Setting, written: str) -> None:
        old = self.settings.setdefault(new.name, new)
        if old.value != new.value:
            where = "the same line" if old.line == new.line else f"line {old.line}"
            either = " (under a condition)" if old.conditional or new.conditional else ""
            raise InputError(
                f"{written} is {_said(new.value)} here, but {_said(old.value)} on {where}{either}",
                advice="keep the one that the run has.",
                file=self.name,
                line=new.line,
            )

    def value(self, name: str, words: tuple[str, ...], written: str, line: int) -> Value:
        try:
            return value_of(name, words)
        except ValueFault as fault:
            raise InputError(
                f"{written} {fault.message}", advice=fault.advice, file=self.name, line=line
            ) from None


def _said(value: Value) -> str:
    if isinstance(value, tuple):
        return shorten(" ".join(value))
    return shorten(value) if isinstance(value, str) else str(value).lower()


# -- launch scripts ----------------------------------------------------------------------------


def _from_script(text: str, name: str) -> MegatronArguments:
    script = read_script(text, name)
    collected = _Collected(name)
    unknown: dict[str, UnknownFlag] = {}
    notes = list(script.notes)
    for command in script.commands:
        _take(command, collected, unknown, notes)
    for variable, line, words in script.unused:
        flags = [one.text for one in words if flag_of(one.text.partition("=")[0])]
        flags = [one for one in flags if one.startswith("--")]
        if flags and collected.settings:
            notes.append(
                f"line {line}: no command uses ${variable}; its flags ({shorten(flags[0])} and "
                f"{len(flags) - 1} more that matter) are not read"
            )
    if not collected.settings:  # a piece of a script: arrays without their command
        for _, _, words in script.unused:
            _take(words, collected, unknown, notes)
    if not collected.settings:
        raise _nothing(name)
    conditional = [one for one in collected.settings.values() if one.conditional]
    notes += [
        f"line {one.line}: {spelt(one.name)} stands under a condition; taken as given"
        for one in conditional
    ]
    return MegatronArguments(
        name,
        "script",
        tuple(collected.settings.values()),
        tuple(unknown.values()),
        tuple(dict.fromkeys(notes)),
    )


def _take(
    words: Sequence[Argument],
    collected: _Collected,
    unknown: dict[str, UnknownFlag],
    notes: list[str],
) -> None:
    """Take the flags of one command with their values."""
    for index, word in enumerate(words):
        if not word.text.startswith("--"):
            if word.unread and _is_alone(words, index):
                notes.append(f"line {word.line}: {word.unread}; flags in it are not read")
            continue
        written, equals, inline = word.text.partition("=")
        written = written.rstrip(":")
        flag = flag_of(written)
        if flag is None:
            if len(written) > 2:
                near = near_flag(written) if len(unknown) < _MOST_COMPARED else None
                unknown.setdefault(written, UnknownFlag(written, word.line, near))
            continue
        behind = [] if equals else list(_behind(words, index + 1))
        values = [Argument(inline, word.line, word.unread)] if equals else behind
        if FORMS[flag.name] == "flag" and not equals:
            values = [one for one in behind[:1] if one.text.lower() in ("true", "false")]
        elif FORMS[flag.name] != "words":
            values = values[:1]
        if reason := next((one.unread for one in values if one.unread), None):
            if flag.name in CARD_FIELDS:  # the scenario's model decides anyway
                notes.append(f"line {word.line}: {written} is {reason}; not read")
                continue
            raise InputError(
                f"{written} is {reason}",
                advice="write the value in its place; nothing in a script is run.",
                file=collected.name,
                line=word.line,
            )
        value = collected.value(flag.name, tuple(v.text for v in values), written, word.line)
        value = not value if flag.off else value
        conditional = word.conditional or any(one.conditional for one in values)
        collected.add(Setting(flag.name, value, word.line, conditional), written)


def _behind(words: Sequence[Argument], start: int) -> Iterator[Argument]:
    """The words from ``start`` up to the next flag."""
    for index in range(start, len(words)):
        if re.match(r"--[A-Za-z]", words[index].text):
            return
        yield words[index]


def _is_alone(words: Sequence[Argument], index: int) -> bool:
    """Whether an unread word stands where flags could: not behind a flag, as its value."""
    return not words[index].text and index > 0 and not words[index - 1].text.startswith("--")


# -- printed arguments -------------------------------------------------------------------------


def _dump_lines(text: str) -> Iterator[tuple[int, str, str]]:
    """Line, name and value of each line ``  name ........ value``."""
    for number, line in enumerate(text.split("\n"), start=1):
        if ".." in line and len(line) <= _MOST_LINE and (match := _DUMP_LINE.search(line)):
            yield number, match[1], (match[3] or "").strip()


def _from_dump(lines: Sequence[tuple[int, str, str]], name: str) -> MegatronArguments:
    collected = _Collected(name)
    skipped = set()
    for number, written, shown in lines:
        flag = flag_of(written)
        if flag is None or flag.off:
            skipped.add(written)
            continue
        if shown in ("None", "", "[]"):
            continue
        words = tuple(_dump_words(shown)) if FORMS[flag.name] == "words" else (shown.strip("'\""),)
        value = collected.value(flag.name, words, written, number)
        collected.add(Setting(flag.name, value, number), written)
    if not collected.settings:
        raise _nothing(name)
    notes = (f"{len(skipped)} arguments of the dump do not matter here",) if skipped else ()
    return MegatronArguments(name, "dump", tuple(collected.settings.values()), (), notes)


def _dump_words(shown: str) -> Iterator[str]:
    """``['moe', 'mlp']`` or ``[<CudaGraphModule.attn: 2>]`` as words."""
    for piece in shown.strip("[]()").split(","):
        member = re.search(r"<\w{1,80}\.(\w{1,80}):", piece)
        word = member[1] if member else piece.strip().strip("'\"")
        if word:
            yield word


# -- short strings -----------------------------------------------------------------------------


def _from_short(text: str, name: str) -> MegatronArguments | None:
    """``tp1_pp2_cp1_vp24_ep2``; None if the text is nothing like it."""
    plain = text.strip()
    if not 0 < len(plain) <= 1_000 or "\n" in plain:
        return None
    collected = _Collected(name)
    unknown: dict[str, UnknownFlag] = {}
    for piece in re.split(r"[\s_,;/+.-]+", plain.strip("_,;/+.-")):
        pairs = list(_SHORT.finditer(piece))
        if "".join(pair[0] for pair in pairs) != piece:
            unknown.setdefault(piece, UnknownFlag(piece, 1))
            continue
        for pair in pairs:
            argument = _SHORT_NAMES.get(pair[1].lower())
            if argument is None:
                unknown.setdefault(pair[0], UnknownFlag(pair[0], 1))
                continue
            value = collected.value(argument, (pair[2],), pair[1], 1)
            collected.add(Setting(argument, value, 1), pair[1])
    if not collected.settings:
        return None
    settings = tuple(collected.settings.values())
    return MegatronArguments(name, "short", settings, tuple(unknown.values()))


__all__ = [
    "MegatronArguments",
    "Setting",
    "UnknownFlag",
    "read_arguments",
    "read_arguments_file",
]
