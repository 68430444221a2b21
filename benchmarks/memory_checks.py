"""Rows of measured runs that cannot be true, or say a word that nobody knows: refused, not guessed.

A row that leaves something open, or is about what the model does not cover, is left out with its
reason (:class:`benchmarks.memory_words.Unusable`).  Here is what must be mended in the file first:
figures of one row that exclude each other, and texts without a single word of their column.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from benchmarks import memory_words as words
from benchmarks.memory_models import is_moe, model_of
from benchmarks.memory_rows import Run
from benchmarks.memory_words import Unusable
from meshplan.scenarios.errors import InputError
from meshplan.scenarios.yaml_reader import shorten

#: By column in the words of :class:`Run`: what any text in it has a word of, and words to offer.
_VOCABULARY = {
    "precision": (r"bf16|fp16|fp32|tf32|fp8|fp4|int8|mixed", "bf16, fp8-block, mxfp8 or nvfp4"),
    "optimizer": (
        r"fp32|bf16|fp16|fp8|float|precision|adam|sgd|muon|main|grads|moments|m/v",
        "'fp32' or 'precision-aware, bf16 m/v'",
    ),
    "offload": (r"\d|yes|no|none|true|false|offload|fgo|cpu", "a share such as 0.5"),
    "recompute": (r"none|no\b|full|selective|modules", "none, full, or selective with its modules"),
    "activation_offload": (
        r"none|no\b|offload|fine.grained|modules=|" + "|".join(words.OFFLOAD_MODULES),
        ", ".join(words.OFFLOAD_MODULES),
    ),
    "attention": (
        r"\bte\b|fused|flash|cudnn|sdpa|eager|local|a2a|p2p|allgather",
        "TE fused/flash, TE unfused, or CP a2a beside them",
    ),
    "dispatcher": (
        r"all.?to.?all|a2a|deep.?ep|hybrid.?ep|flex|nccl|all.?gather|capacity|drop|overlap|none",
        "alltoall, DeepEP, HybridEP or flex",
    ),
    "routing": (r"natural|force|balance|random|uniform|aux|free|drop", "natural or force_balance"),
    "graphs": (
        r"no\b|none|yes|disabled|te\b|transformer.?engine|local|full|scope|modules|impl|attn|mlp"
        r"|moe|mamba|router|preprocess",
        "no, or the scopes: attn, mlp, moe, router, preprocess, mamba",
    ),
    "cross_entropy": (r"\bte\b|native|fused|parallel|linear", "TE fused, native fused or unfused"),
    "rank": (r"rank|stage|\bs?\d+\b|first|last|max|all|logg", "rank 0, last, or max over ranks"),
}  # fmt: skip
_KINDS = (
    r"alloc|reserved|peak|device|nvidia|mem|gpu|stated|report|analytic|approx|real|script"
    r"|unspecified|between iterations|observed|measured|log"
)
#: Reserved memory below allocated memory by more than what rounding makes.
_ROUNDING = 0.02


def refused(runs: Sequence[Run]) -> tuple[list[Run], list[InputError]]:
    """The rows that can be judged, and what the others must mend."""
    faults = {id(run): list(faults_of(run)) for run in runs}
    sound = [run for run in runs if not faults[id(run)]]
    return sound, [fault for run in runs for fault in faults[id(run)]]


def faults_of(run: Run) -> Iterator[InputError]:
    """All that one row must mend."""
    for message, advice in (*_unknown_words(run), *_contradictions(run)):
        yield InputError(f"row {run.id}: {message}", advice=advice, file=run.file, line=run.line)


def _unknown_words(run: Run) -> Iterator[tuple[str, str]]:
    for column, (known, offered) in _VOCABULARY.items():
        text = getattr(run, column)
        if text and not re.search(known, text, re.IGNORECASE):
            label = column.replace("_", " ")
            yield f"{label} {shorten(text)} is not known", f"write {offered}; or leave it empty."
    for figure in run.figures:
        if not re.search(_KINDS, figure.kind, re.IGNORECASE):
            yield (
                f"kind of figure {shorten(figure.kind)} is not known",
                "write allocated, reserved, between iterations or nvidia-smi; or leave it empty.",
            )
    share = re.fullmatch(r"(\d+(?:\.\d+)?) ?(%?)", run.offload)
    if share and (share[2] or float(share[1]) > 1):
        yield f"offload is {run.offload}", "write the share of the state, from 0 to 1."


def _contradictions(run: Run) -> Iterator[tuple[str, str]]:
    yield from _mesh(run)
    if (run.vpp or 1) > 1 and run.pp == 1:
        yield f"vpp is {run.vpp} with pp 1", "virtual stages need a pipeline: vpp is 1 then."
    number = re.search(r"\b(?:rank |stage |s)(\d+)\b", run.rank)
    if run.pp and number and int(number[1]) >= run.pp:
        yield f"the figure is of {run.rank}, but pp is {run.pp}", "ranks count from 0."
    yield from _figures(run)
    try:
        dense = not is_moe(model_of(run.model, run.phase))
    except Unusable:
        return
    if dense and (run.ep or 1) > 1:
        yield f"ep is {run.ep}, but {run.model} has no experts", "leave ep empty for dense models."


def _mesh(run: Run) -> Iterator[tuple[str, str]]:
    """GPUs against degrees, and degrees against the batch; what is not stated is 1."""
    if run.tp is None:
        return
    cp, pp, gpus = run.cp or 1, run.pp or 1, run.num_gpus
    split = run.tp * cp * pp
    shown = f"tp {run.tp} * cp {cp} * pp {pp}"
    if gpus and gpus % split:
        yield f"{shown} = {split} does not divide {gpus} GPUs", "mend the degrees or num_gpus."
        return
    dp = gpus // split if gpus else run.dp
    if run.dp not in (None, dp):
        yield (
            f"dp is {run.dp}, but {gpus} GPUs / ({shown}) = {dp}",
            "mend num_gpus or a degree, or leave dp empty: it follows from the others.",
        )
        return
    experts = (run.etp or 1) * (run.ep or 1) * pp
    if gpus and (run.ep or 1) > 1 and gpus % experts:
        yield (
            f"etp {run.etp or 1} * ep {run.ep} * pp {pp} = {experts} does not divide {gpus} GPUs",
            "mend ep, etp or num_gpus.",
        )
    if run.gbs and dp and run.gbs % (dp * (run.mbs or 1)):
        yield (
            f"gbs {run.gbs} is not a multiple of dp {dp} * mbs {run.mbs or 1}",
            "mend gbs or mbs, or leave gbs empty.",
        )


def _figures(run: Run) -> Iterator[tuple[str, str]]:
    found: dict[str, float] = {}
    for figure in run.figures:
        try:
            found[words.figure_kind(figure.kind)] = figure.gib
        except Unusable:
            return
    peak, reserved = found.get(words.ALLOCATED), found.get(words.RESERVED)
    if peak and reserved and reserved < peak * (1 - _ROUNDING):
        yield (
            f"{reserved:g} GiB reserved is less than {peak:g} GiB allocated",
            "the allocator reserves what it hands out: the columns may be swapped, or the units.",
        )


__all__ = ["faults_of", "refused"]
