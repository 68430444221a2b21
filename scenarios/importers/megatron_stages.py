"""How Megatron arguments split layers over pipeline stages: virtual stages and uneven ends.

Source: Megatron-LM d98e8a64 ``megatron/training/arguments.py`` (``validate_args``) and
``megatron/core/transformer/transformer_block.py`` (``get_num_layers_to_build``).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from meshplan.scenarios.checks import MAX_DEGREE
from meshplan.scenarios.importers.megatron_flags import spelt
from meshplan.scenarios.yaml_reader import shorten

if TYPE_CHECKING:
    from meshplan.scenarios.importers.megatron_args import MegatronArguments

_COUNT = "num_virtual_stages_per_pipeline_rank"
_PER_STAGE = "num_layers_per_virtual_pipeline_stage"
_LAYOUT = "pipeline_model_parallel_layout"
_ENDS = ("decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers")
_ACCOUNTS = ("account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split")
#: Arguments that can say how many virtual stages there are, and which layers each has.
VIRTUAL_SOURCES = (_COUNT, _PER_STAGE, _LAYOUT)
SPLIT_SOURCES = (_LAYOUT, *_ENDS, *_ACCOUNTS)
#: Most stages that are written out as a layout string.
_MOST_STAGES = 1024


def virtual_stages(
    given: MegatronArguments, pp: int | None, layers: int | None
) -> tuple[int | None, str | None]:
    """Virtual stages on each pipeline rank, and a note where they cannot be told.

    Raises
    ------
    InputError
        If two of the three ways to say it are used, or layers or stages do not divide.
    """
    sources = [name for name in VIRTUAL_SOURCES if given.get(name)]
    # A dump of the checked arguments shows what was derived; it agrees with its source.
    if len(sources) > 1:
        raise given.error(
            sources[1],
            f"{spelt(sources[1])} is given next to {spelt(sources[0])}; Megatron-LM takes one",
            "keep one of them.",
        )
    derived = given.get("virtual_pipeline_model_parallel_size")
    if given.form == "dump" and not sources:
        return (derived if isinstance(derived, int) and derived > 0 else None), None
    if not sources or pp is None:
        count = given.get(_COUNT)
        return (count if isinstance(count, int) and count > 0 else None), None
    value = given.get(sources[0])
    if sources[0] == _LAYOUT:
        return _from_layout(given, str(value), pp), None
    if not isinstance(value, int) or not 1 <= value <= MAX_DEGREE:
        raise given.error(
            sources[0],
            f"{spelt(sources[0])} is {value}, but must be from 1 to {MAX_DEGREE}",
            "write a positive number.",
        )
    return (value, None) if sources[0] == _COUNT else _from_layers(given, value, pp, layers)


def _from_layout(given: MegatronArguments, text: str, pp: int) -> int:
    stages = _stage_count(given, text)
    if stages % pp:
        raise given.error(
            _LAYOUT,
            f"{spelt(_LAYOUT)} has {stages} stages, which pp = {pp} does not divide",
            "change the layout, or the pipeline degree.",
        )
    return stages // pp


def _stage_count(given: MegatronArguments, text: str) -> int:
    """Stages of a layout string: one more than its bars, repeats counted."""
    plain = text.replace(",", "")
    bars = 0
    for match in re.finditer(r"\(([^()]*)\)\*([0-9]{1,6})(?![0-9])", plain):
        bars += _bars(match[1]) * int(match[2])
    bars += _bars(re.sub(r"\([^()]*\)\*[0-9]{1,6}(?![0-9])", "", plain))
    if re.search(r"[^EtmL|()*0-9]", plain) or bars > MAX_DEGREE or len(plain) > 4096:
        raise given.error(
            _LAYOUT,
            f"{spelt(_LAYOUT)} is {shorten(text)}, which is no layout string",
            'write stages of E, t, m and L split by "|", such as Et*3|(tt|)*29m|L.',
        )
    return bars + 1


def _bars(text: str) -> int:
    repeated = re.findall(r"\|\*([0-9]{1,6})", text)
    return text.count("|") - len(repeated) + sum(int(number) for number in repeated)


def _from_layers(
    given: MegatronArguments, per_stage: int, pp: int, layers: int | None
) -> tuple[int | None, str | None]:
    if layers is None:
        return None, (
            f"{spelt(_PER_STAGE)} is {per_stage}, but --num-layers is not given: vpp is left open"
        )
    ends = [name for name in _ENDS if given.get(name) is not None]
    if ends:
        raise given.error(
            _PER_STAGE,
            f"{spelt(_PER_STAGE)} is given next to {spelt(ends[0])}; Megatron-LM refuses that",
            f"use {spelt(_COUNT)}.",
        )
    total = layers + sum(given.get(name) is True for name in _ACCOUNTS)
    if total % pp or (total // pp) % per_stage:
        raise given.error(
            _PER_STAGE,
            f"{spelt(_PER_STAGE)} is {per_stage}, which does not divide the {total} layers on "
            f"pp = {pp} ranks ({total / pp:g} each)",
            f"use {spelt(_COUNT)}, or a pipeline layout string.",
        )
    return total // pp // per_stage, None


def pipeline_layout(given: MegatronArguments, layers: int | None) -> tuple[str | None, str | None]:
    """The layout string, ``even``, or None if it is open; and a note.

    Uneven ends are written out as a layout string, as a scenario has no other way to say them.
    """
    text = given.get(_LAYOUT)
    if isinstance(text, str):
        return text, None
    if given.get("hybrid_layer_pattern"):
        return None, "--hybrid-layer-pattern is not read; the pipeline layout is left open"
    first, last = (given.get(name) for name in _ENDS)
    embedding, loss = (given.get(name) is True for name in _ACCOUNTS)
    if first is None and last is None and not (embedding or loss):
        return "even", None
    said = next(
        spelt(name) for name in (*_ENDS, *_ACCOUNTS) if given.get(name) not in (None, False)
    )
    if given.unsure("pipeline_model_parallel_size", *SPLIT_SOURCES, *VIRTUAL_SOURCES):
        return (
            None,
            f"{said}, but the command was not wholly read: the pipeline layout is left open",
        )
    pp = _whole(given.get("pipeline_model_parallel_size"), 1)
    if layers is None:
        return None, f"{said}, but --num-layers is not given: the pipeline layout is left open"
    vpp = virtual_stages(given, pp, layers)[0] or 1
    mtp = _whole(given.get("mtp_num_layers"), 0)
    ranks = _layers_by_rank(pp, layers + embedding + loss, first, last)
    if ranks is None or pp * vpp > _MOST_STAGES or any(count % vpp for count in ranks):
        return None, (
            f"{said}: {layers} layers do not split that way over pp = {pp}, vpp = {vpp}; "
            "the pipeline layout is left open"
        )
    slots = [ranks[index % pp] // vpp for index in range(pp * vpp)]
    slots[0] -= int(embedding)
    slots[-1] -= int(loss)
    if min(slots) < 0 or mtp > 16:
        return None, f"{said}: a stage would have fewer than no layers; the layout is left open"
    stages = ["t" * count if count < 2 else f"t*{count}" for count in slots]
    stages[0] = "E" + stages[0]
    stages[-1] += "m" * mtp + "L"
    return "|".join(stages), f"{said}: written as a pipeline layout string"


def _layers_by_rank(pp: int, layers: int, first: object, last: object) -> list[int] | None:
    ends = {0: first, pp - 1: last}
    fixed = {rank: count for rank, count in ends.items() if isinstance(count, int)}
    free = pp - len(fixed)
    rest = layers - sum(fixed.values())
    if pp > _MOST_STAGES or rest < 0 or (rest % free if free else rest):
        return None
    return [fixed.get(rank, rest // free if free else 0) for rank in range(pp)]


def _whole(value: object, default: int) -> int:
    return value if isinstance(value, int) else default


__all__ = ["SPLIT_SOURCES", "VIRTUAL_SOURCES", "pipeline_layout", "virtual_stages"]
