"""Read Megatron launch arguments: a launch script, the printed argument dump, or a short string.

``read_arguments`` finds out which of the three a text is.  Nothing is executed; what is not
understood is listed in ``unknown`` and ``notes``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from meshplan.scenarios.importers.megatron_flags import FORMS, flag_of
from meshplan.scenarios.importers.megatron_script import from_script
from meshplan.scenarios.importers.megatron_settings import (
    Collected,
    MegatronArguments,
    Setting,
    UnknownFlag,
    nothing,
)
from meshplan.scenarios.importers.text_file import checked_text, read_text

_DUMP_LINE = re.compile(r"(?:^|[\s:\]])([a-z][a-z0-9_]{1,80}) (\.{2,})(?: (.{0,20000}))?$")
_MOST_LINE = 100_000
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
        raise nothing(name)
    return from_script(text, name)


# -- printed arguments -------------------------------------------------------------------------


def _dump_lines(text: str) -> Iterator[tuple[int, str, str]]:
    """Line, name and value of each line ``  name ........ value``."""
    for number, line in enumerate(text.split("\n"), start=1):
        if ".." in line and len(line) <= _MOST_LINE and (match := _DUMP_LINE.search(line)):
            yield number, match[1], (match[3] or "").strip()


def _from_dump(lines: Sequence[tuple[int, str, str]], name: str) -> MegatronArguments:
    collected = Collected(name)
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
        raise nothing(name)
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
    collected = Collected(name)
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
