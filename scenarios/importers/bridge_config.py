"""The configuration that Megatron-Bridge prints at the start of a training, as arguments.

``ConfigContainer.print_yaml`` of Megatron-Bridge 067f987d ``training/config.py``::

    ------- Task Configuration -------
    model:
      num_layers: 16
      recompute_modules:
      - core_attn
    train:
      global_batch_size: 512

Fields of ``model`` are those of megatron-core's ``TransformerConfig``, which Megatron-LM has as
arguments of the same names, but for the few that are translated here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from meshplan.scenarios.importers.megatron_flags import FORMS

_START = re.compile(r"-{4,} Task Configuration -{4,}")
_SECTION = re.compile(r"(\w{1,40}):\s*$")
_FIELD = re.compile(r"  (\w{1,80}):(?: (.{0,400}))?$")
_ITEM = re.compile(r"  - (\w{1,80})$")
_MOST_LINES = 3_000
#: Fields that are read, by section, and the argument of that meaning; of ``model`` all others that
#: have an argument of their own name, too.
_READ = {
    "model": {"num_moe_experts": "num_experts"},
    "dataset": {"sequence_length": "seq_length", "seq_length": "seq_length"},
    "train": {"global_batch_size": "global_batch_size", "micro_batch_size": "micro_batch_size"},
    "optimizer": {
        "optimizer_cpu_offload": "optimizer_cpu_offload",
        "optimizer_offload_fraction": "optimizer_offload_fraction",
    },
}
_WORDS = {"true": "True", "false": "False"}


def configuration_dump(lines: Sequence[str]) -> list[str]:
    """The configuration in the form of Megatron-LM's printed arguments; empty if there is none.

    Parameters
    ----------
    lines
        Lines of a log.

    Returns
    -------
    list of str
        A line for each line of the log, empty where nothing is read, so that line numbers hold.
    """
    starts = [index for index, line in enumerate(lines) if _START.search(line)]
    if not starts:
        return []
    dump = [""] * len(lines)
    written: dict[str, int] = {}
    for index, name, value in _fields(lines, starts[-1]):
        if name in written:  # the sequence length of the data, not that of the model
            dump[written[name]] = ""
        written[name] = index
        dump[index] = f"  {name} ...... {value}"
    return dump if written else []


def _fields(lines: Sequence[str], start: int) -> Iterator[tuple[int, str, str]]:
    """Line, argument and value of each field that is read; the data's length comes last."""
    match = _START.search(lines[start])
    prefix = lines[start][: match.start()] if match else ""
    found: list[tuple[int, str, str, str]] = []
    section = listed = ""
    items: list[str] = []
    for index in range(start + 1, min(len(lines), start + _MOST_LINES)):
        line = lines[index].rstrip("\r")
        if not line.startswith(prefix):
            continue
        line = line[len(prefix) :]
        if line.startswith("----"):
            break
        if item := _ITEM.match(line):
            if listed:
                items.append(item[1])
                found[-1] = (*found[-1][:3], f"[{', '.join(items)}]")
            continue
        listed = ""
        if head := _SECTION.match(line):
            section = head[1]
        elif (field := _FIELD.match(line)) and (name := _argument(section, field[1])):
            value = field[2] or ""
            if not value:
                listed, items = name, []
            found.append((index, section, name, _WORDS.get(value, value)))
    ordered = sorted(found, key=lambda one: one[2] == "seq_length" and one[1] == "dataset")
    for index, _, name, value in ordered:
        if value not in ("", "null", "''"):
            yield index, name, value


def _argument(section: str, field: str) -> str | None:
    """The argument that a field of a section stands for."""
    known = _READ.get(section, {})
    if field in known:
        return known[field]
    return field if section == "model" and field in FORMS else None


__all__ = ["configuration_dump"]
