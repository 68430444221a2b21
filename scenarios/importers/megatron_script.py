"""Read the Megatron flags of the commands of a launch script."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from meshplan.scenarios.errors import InputError
from meshplan.scenarios.importers.megatron_flags import (
    CARD_FIELDS,
    FORMS,
    flag_of,
    near_flag,
    spelt,
)
from meshplan.scenarios.importers.megatron_settings import (
    Collected,
    MegatronArguments,
    Setting,
    UnknownFlag,
    nothing,
)
from meshplan.scenarios.importers.shell_script import Argument, read_script
from meshplan.scenarios.yaml_reader import shorten

#: Unknown flags that are compared with those that are read, to find misspellings.
_MOST_COMPARED = 1_000
#: How flags of Megatron-LM begin that take no value, and others that take none (``store_true`` in
#: Megatron-LM d98e8a64 ``megatron/training/arguments.py``).
_VALUELESS = (
    "use_", "no_", "disable_", "enable_", "overlap_", "untie_", "apply_", "add_", "log_params",
    "log_timers", "log_num_zeros", "log_throughput", "log_memory", "log_world", "log_validation",
    "log_batch", "tp_comm_overlap", "ckpt_fully", "ckpt_assume", "moe_use_", "moe_pad_",
)  # fmt: skip
_SWITCHES = frozenset(
    {
        "swiglu", "finetune", "qk_layernorm", "moe_grouped_gemm", "moe_permute_fusion",
        "moe_router_fusion", "moe_router_pre_softmax", "moe_per_layer_logging", "manual_gc",
        "auto_detect_ckpt_format", "data_parallel_random_init",
        "calculate_per_token_loss", "async_save", "mock_data", "squared_relu", 
        "decoupled_weight_decay", "override_opt_param_scheduler", "test_mode", "profile",
        "rotary_interleaved", "exit_signal_handler", "moe_shared_expert_overlap",
        "accumulate_allreduce_grads_in_fp32",
        "attention_softmax_in_fp32", "fp16_lm_cross_entropy", "init_model_with_meta_device",
        "delay_wgrad_compute", "defer_embedding_wgrad_compute",
    }
)  # fmt: skip


def from_script(text: str, name: str) -> MegatronArguments:
    """Read the flags of all commands of a launch script.

    Raises
    ------
    InputError
        If there are none, or they contradict each other; see ``read_arguments``.
    """
    script = read_script(text, name)
    collected = Collected(name)
    unknown: dict[str, UnknownFlag] = {}
    gaps: list[str] = []
    notes = list(script.notes)
    for command in script.commands:
        _take(command, collected, unknown, notes, gaps)
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
            _take(words, collected, unknown, notes, gaps)
    if not collected.settings:
        misspelt = next((one for one in unknown.values() if one.near), None)
        raise (
            nothing(name)
            if misspelt is None
            else InputError(
                f"{misspelt.name[:60]} is no flag that is read, and there is no other",
                advice=f"write {misspelt.near} in its place.",
                file=name,
                line=misspelt.line,
            )
        )
    conditional = [one for one in collected.settings.values() if one.conditional]
    notes += [
        f"line {one.line}: {spelt(one.name)} stands under a condition; taken as given"
        for one in conditional
    ]
    gaps = list(dict.fromkeys(gaps))
    notes += [f"{one}: not read; flags that are missing here may stand there" for one in gaps]
    return MegatronArguments(
        name,
        "script",
        tuple(collected.settings.values()),
        tuple(unknown.values()),
        tuple(dict.fromkeys(notes)),
        tuple(dict.fromkeys(gaps)),
    )


def _take(
    words: Sequence[Argument],
    collected: Collected,
    unknown: dict[str, UnknownFlag],
    notes: list[str],
    gaps: list[str],
) -> None:
    """Take the flags of one command with their values."""
    # Words before the program are the launcher's own.
    program = next((i for i, word in enumerate(words) if word.text.endswith(".py")), 0)
    # Words that a flag has as its values, and so hold no flags.
    taken: set[int] = set()
    guessed: list[str] = []
    for index, word in enumerate(words):
        if not word.text.startswith("--"):
            if not word.unread or index <= program or index in taken:
                continue
            if index - 1 in range(program + 1, index) and _may_take(words[index - 1], word):
                guessed.append(f"{word.unread.partition(',')[0]} on line {word.line}")
            else:
                gaps.append(f"line {word.line}: {word.unread}")
            continue
        written, equals, inline = word.text.partition("=")
        written = written.rstrip(":")
        flag = flag_of(written)
        if flag is None:
            if word.unread and index > program and not equals:
                gaps.append(f"line {word.line}: {word.unread}")
            elif len(written) > 2:
                near = near_flag(written) if len(unknown) < _MOST_COMPARED else None
                unknown.setdefault(written, UnknownFlag(written, word.line, near))
            continue
        behind = [] if equals else list(_behind(words, index + 1))
        values = [Argument(inline, word.line, word.unread)] if equals else behind
        if FORMS[flag.name] == "flag" and not equals:
            values = [one for one in behind[:1] if one.text.lower() in ("true", "false")]
        elif FORMS[flag.name] != "words":
            values = values[:1]
        if FORMS[flag.name] == "flag" and word.unread and not equals:
            gaps.append(f"line {word.line}: {word.unread}")
        if not equals:
            taken.update(range(index + 1, index + 1 + len(values)))
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
    if guessed:
        more = f" and {len(guessed) - 8} more" if len(guessed) > 8 else ""
        notes.append(
            f"not read, taken as values of the flags before them: {', '.join(guessed[:8])}{more}"
        )


def _behind(words: Sequence[Argument], start: int) -> Iterator[Argument]:
    """The words from ``start`` up to the next flag."""
    for index in range(start, len(words)):
        if re.match(r"--[A-Za-z]", words[index].text):
            return
        yield words[index]


def _may_take(flag: Argument, word: Argument) -> bool:
    """Whether a word that is not read can be the value of an unknown ``flag`` before it."""
    name = flag.text.lstrip("-").replace("-", "_")
    if not flag.text.startswith("--") or "=" in flag.text or flag_of(flag.text) is not None:
        return False
    if name.startswith(_VALUELESS) or name in _SWITCHES or "=" in name:
        return False
    reason = word.unread or ""
    return "--" not in reason and not re.match(r"\$[@*]|\$\{\w+\[[@*]", reason)


__all__ = ["from_script"]
