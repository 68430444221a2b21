"""The training recipe of Megatron arguments: number formats, and settings that decide memory.

Where an argument is not given, the command line's own default holds, which is not that of the
recipes that a scenario's defaults follow: Megatron-LM d98e8a64 ``megatron/training/arguments.py``
and the fields of ``TransformerConfig`` and ``ModelParallelConfig`` that it turns into flags.
``store_param_remainders`` of ``OptimizerConfig`` has no flag: it stays automatic.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from meshplan.scenarios.importers.megatron_flags import spelt
from meshplan.scenarios.importers.megatron_reading import Reading
from meshplan.scenarios.yaml_reader import shorten

_Entry: TypeAlias = tuple[str, Any]

#: ``hidden_dropout`` of ``TransformerConfig``.
_HIDDEN_DROPOUT = 0.1
#: Other ways to share the optimizer state; what they cost is not modelled.
_FSDP = ("use_megatron_fsdp", "use_torch_fsdp2")


def training_recipe(reading: Reading) -> dict[str, Any]:
    """The section ``training`` of a scenario.

    What a scenario takes by default anyway stands in it only where the arguments give it.

    Raises
    ------
    InputError
        If an argument has a value that Megatron-LM does not know.
    """
    if reading.short:
        return {}
    parts = (
        _dtypes,
        _switches,
        _distributed_optimizer,
        _cross_entropy,
        _attention_backend,
        _sequence_parallel,
        _hidden_dropout,
        _fused_gradients,
        _full_recompute,
    )
    return {key: value for part in parts for key, value in part(reading)}


def _dtypes(reading: Reading) -> Iterator[_Entry]:
    names = ("main_grads_dtype", "exp_avg_dtype", "exp_avg_sq_dtype")
    given = {name: _dtype(reading, name) for name in names}
    reducing = () if reading.on("grad_reduce_in_bf16") else ("grad_reduce_in_bf16", names[0])
    unsure = {
        "gradient_dtype": reading.open("gradient_dtype", *reducing),
        "moment_dtype": reading.open("moment_dtype", *names[1:]),
    }
    if not any(unsure.values()) and all(
        reading.given.get(name) is None for name in (*names, "grad_reduce_in_bf16")
    ):
        reading.notes.append("formats of gradients and moments not given: Megatron-LM takes fp32")
    # validate_args accumulates gradients in fp32 unless one of the two says bf16.
    reduced = "bf16" if reading.on("grad_reduce_in_bf16") else given["main_grads_dtype"]
    moments = {given["exp_avg_dtype"], given["exp_avg_sq_dtype"]}
    for key, values in (("gradient_dtype", {reduced}), ("moment_dtype", moments)):
        if unsure[key]:
            continue
        if values in ({"bf16"}, {"fp32"}):
            yield key, values.pop()
        else:
            said = " and ".join(shorten(name) for name in sorted(values))
            reading.notes.append(f"{key} of {said} is not modelled; left open")


def _dtype(reading: Reading, name: str) -> str:
    # A dump of the checked arguments writes torch.bfloat16.
    value = str(reading.given.get(name) or "fp32").removeprefix("torch.")
    return {"bfloat16": "bf16", "float32": "fp32"}.get(value, value)


def _switches(reading: Reading) -> Iterator[_Entry]:
    for key, name in (
        ("precision_aware_optimizer", "use_precision_aware_optimizer"),
        ("fp8_parameters", "fp8_param_gather"),
        ("overlap_expert_communication", "overlap_moe_expert_parallel_comm"),
    ):
        if reading.on(name):
            yield key, True


def _distributed_optimizer(reading: Reading) -> Iterator[_Entry]:
    name = "use_distributed_optimizer"
    sharded = next((other for other in _FSDP if reading.on(other)), None)
    if reading.on(name):
        yield "distributed_optimizer", True
    elif sharded is not None:
        reading.notes.append(
            f"{spelt(sharded)} is not modelled: memory is counted with the distributed optimizer"
        )
    elif not reading.open("distributed_optimizer", name):
        reading.notes.append(
            f"{spelt(name)} not given: every data-parallel rank keeps the whole optimizer state"
        )
        yield "distributed_optimizer", False


def _cross_entropy(reading: Reading) -> Iterator[_Entry]:
    fusion, implementation = "cross_entropy_loss_fusion", "cross_entropy_fusion_impl"
    if not reading.on(fusion):
        if reading.open("cross_entropy", fusion):
            return
        reading.notes.append(f"{spelt(fusion)} not given: the cross entropy is unfused")
        yield "cross_entropy", "unfused"
    elif not reading.open("cross_entropy", implementation):
        yield "cross_entropy", reading.word(implementation, ("native", "te"), "native")


def _attention_backend(reading: Reading) -> Iterator[_Entry]:
    name = "attention_backend"
    if reading.open(name, name):
        return
    backend = reading.word(name, ("auto", "flash", "fused", "unfused", "local"))
    if backend in ("unfused", "local"):
        reading.notes.append(f"{spelt(name)} {backend}: attention keeps its scores")
        yield name, "unfused"
    elif backend is not None:
        yield name, "fused"


def _sequence_parallel(reading: Reading) -> Iterator[_Entry]:
    """Only where ``tp`` is known and above 1: Megatron-LM turns it off with one TP rank."""
    name, degree = "sequence_parallel", "tensor_model_parallel_size"
    tp = reading.count(degree) or 1
    if tp == 1 or reading.given.unsure(degree):
        return
    if reading.on(name):
        yield name, True
    elif not reading.open(name, name):
        experts = reading.count("num_experts") or reading.count("expert_model_parallel_size")
        refused = ", which Megatron-LM refuses in a mixture of experts" if experts else ""
        reading.notes.append(
            f"{spelt(name)} not given with tp = {tp}: TP ranks do not share the sequence{refused}"
        )
        yield name, False


def _hidden_dropout(reading: Reading) -> Iterator[_Entry]:
    name = "hidden_dropout"
    value = reading.given.get(name)
    if value is not None:
        yield name, value
    elif not reading.open(name, name):
        reading.notes.append(
            f"{spelt(name)} not given: Megatron-LM takes {_HIDDEN_DROPOUT}, and keeps its masks"
        )
        yield name, _HIDDEN_DROPOUT


def _fused_gradients(reading: Reading) -> Iterator[_Entry]:
    name = "gradient_accumulation_fusion"
    value = reading.given.get(name)
    if not reading.open(name, name) and value is not None:
        yield name, value


def _full_recompute(reading: Reading) -> Iterator[_Entry]:
    """How many layers a checkpoint has: of the granularity ``full`` alone."""
    names = ("recompute_method", "recompute_num_layers")
    if reading.given.get("recompute_granularity") != "full" or reading.open(names[0], *names):
        return
    method = reading.word(names[0], ("uniform", "block"))
    layers = reading.count(names[1])
    if method is not None:
        yield names[0], method
    if layers is not None:
        yield names[1], layers
    if method == "block" or (layers or 1) > 1:
        reading.notes.append(
            f"full recompute is {method or 'uniform'} of {layers or 1} layers: check and memory "
            "take that, solve chooses uniform of one layer only"
        )


__all__ = ["training_recipe"]
