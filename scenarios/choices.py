"""Types of the scenario's choices: names, flags, versions, and ``auto`` beside fixed values."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Literal, TypeAlias, get_args

from pydantic import BeforeValidator, Field, PlainSerializer, PlainValidator, WithJsonSchema

from meshplan.scenarios.checks import MAX_DEGREE, Within, choose, complaint, nearest

Precision: TypeAlias = Literal["bf16", "fp8-tensor", "fp8-current", "fp8-block", "mxfp8", "nvfp4"]
RecomputeModule: TypeAlias = Literal[
    "core_attn", "moe_act", "layernorm", "mla_up_proj", "mlp", "moe", "shared_experts"
]
GraphScope: TypeAlias = Literal["attn", "mlp", "moe", "moe_router", "moe_preprocess", "mamba"]
Dispatcher: TypeAlias = Literal["alltoall", "deepep", "hybridep"]
#: Modules whose saved inputs fine-grained offload keeps on the host (Megatron-Core
#: ``offload_modules``).
OffloadModule: TypeAlias = Literal[
    "attn_norm", "qkv_linear", "core_attn", "attn_proj", "mlp_norm", "expert_fc1", "moe_act"
]
#: Implementation of the loss (Megatron-Core ``cross_entropy_loss_fusion``, ``..._fusion_impl``).
CrossEntropy: TypeAlias = Literal["native", "te", "unfused"]

_KEBAB = r"[a-z0-9]+(?:-[a-z0-9]+)*"
_PIPELINE_LAYOUT = r"[EtmL|()*0-9,]+"


def _flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    truth = value == 1 or (isinstance(value, str) and value.lower() in ("yes", "on", "y", "true"))
    raise complaint(value, "true or false", f"write {'true' if truth else 'false'}.")


def _auto_or_flag(value: object) -> object:
    if value == "auto" or isinstance(value, bool):
        return value
    raise complaint(value, "auto, true or false", "write auto.")


def _offload(value: object) -> object:
    if value == "auto":
        return value
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, int | float) and 0 <= value <= 1:
        return float(value)
    raise complaint(
        value, "auto, true, false or a fraction from 0 to 1", "write 0.5 for half of the state."
    )


def _tolerance(value: object) -> object:
    if value == "auto":
        return value
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 0.5:
        return float(value)
    raise complaint(value, "auto or a fraction from 0 to 0.5", "write 0.02 for two percent.")


def _names_or(words: tuple[str, ...], names: tuple[str, ...]) -> Callable[[object], object]:
    """Check for one of ``words`` or a list of ``names``, which is put into their order.

    An empty list is ``none``.
    """

    def check(value: object) -> object:
        if isinstance(value, list | tuple):
            chosen = {choose(item, names, (index,)) for index, item in enumerate(value)}
            return tuple(name for name in names if name in chosen) or "none"
        if isinstance(value, str) and value in words:
            return value
        near = nearest(value, (*words, *names))
        if near is None:
            advice = f"write a list of {', '.join(names)}: [{names[0]}]."
        else:
            advice = f"write {near if near in words else f'[{near}]'}."
        raise complaint(value, f"{', '.join(words)} or a list of names", advice)

    return check


def _names_json(words: tuple[str, ...], names: tuple[str, ...]) -> WithJsonSchema:
    """JSON Schema of what :func:`_names_or` takes."""
    listing = {"type": "array", "items": {"enum": list(names)}}
    return WithJsonSchema({"anyOf": [{"enum": list(words)}, listing]})


def _as_written(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def _pipeline(value: object) -> str:
    if isinstance(value, str) and (
        value in ("auto", "even") or (len(value) <= 4096 and re.fullmatch(_PIPELINE_LAYOUT, value))
    ):
        return value
    near = nearest(value, ("auto", "even")) if isinstance(value, str) else None
    raise complaint(
        value,
        "auto, even or stages of E, t, m and L split by '|'",
        f"you meant {near}." if near else 'write a string such as "Et*3|(tt|)*29m|L", in quotes.',
    )


def _kebab(value: object) -> str:
    if isinstance(value, str) and len(value) <= 100 and re.fullmatch(_KEBAB, value):
        return value
    words = re.findall(r"[a-z0-9]+", value.lower()) if isinstance(value, str) else []
    tidy = "-".join(words)[:60].strip("-")
    raise complaint(
        value,
        "words of small letters and digits joined by '-'",
        f"write {tidy}." if tidy else "write a name such as my-run.",
    )


def _version(value: object, example: str = "0.19") -> str:
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,4}(?:\.[0-9]{1,4}){1,3}", value):
        return value
    quoted = f'it in quotes, "{value}"' if isinstance(value, float) else f'"{example}"'
    raise complaint(value, "a version in quotes", f"write {quoted}.")


def _engine_version(value: object) -> str:
    if isinstance(value, float | str) and str(value).startswith("0."):
        raise complaint(
            value,
            "a version of Transformer Engine from 1.0 on, in quotes",
            'write one such as "2.16", or leave it out; 0.19 is a version of Megatron-Core.',
        )
    return _version(value, "2.16")


_MODULES: tuple[str, ...] = get_args(RecomputeModule)
_SCOPES: tuple[str, ...] = get_args(GraphScope)
OFFLOAD_MODULES: tuple[str, ...] = get_args(OffloadModule)
CROSS_ENTROPIES: tuple[str, ...] = get_args(CrossEntropy)

#: A parallel degree or a count of GPUs.
Degree = Annotated[int, Within(1, MAX_DEGREE)]
#: ``true`` or ``false``, not ``yes``, ``1`` or ``"true"``.
Flag = Annotated[bool, BeforeValidator(_flag)]
AutoFlag = Annotated[
    Literal["auto"] | bool,
    PlainValidator(_auto_or_flag),
    WithJsonSchema({"enum": ["auto", True, False]}),
]
#: Kebab-case: scenario names and rule ids.
KebabName = Annotated[str, BeforeValidator(_kebab), Field(pattern=f"^{_KEBAB}$", max_length=100)]
Label = Annotated[str, Field(min_length=1, max_length=200)]
PathText = Annotated[str, Field(min_length=1, max_length=4096)]
FrameworkVersion = Annotated[str, BeforeValidator(_version)]
#: Of Transformer Engine, which has numbers of its own: 2.16, where Megatron-Core has 0.19.
EngineVersion = Annotated[str, BeforeValidator(_engine_version)]
Recompute = Annotated[
    Literal["auto", "none", "full"] | tuple[RecomputeModule, ...],
    PlainValidator(_names_or(("auto", "none", "full"), _MODULES)),
    PlainSerializer(_as_written),
    _names_json(("auto", "none", "full"), _MODULES),
]
#: Recompute as a plan has it: nothing is left open.
DecidedRecompute = Annotated[
    Literal["none", "full"] | tuple[RecomputeModule, ...],
    PlainValidator(_names_or(("none", "full"), _MODULES)),
    PlainSerializer(_as_written),
    _names_json(("none", "full"), _MODULES),
]
CudaGraphs = Annotated[
    Literal["none", "auto", "full_iteration"] | tuple[GraphScope, ...],
    PlainValidator(_names_or(("none", "auto", "full_iteration"), _SCOPES)),
    PlainSerializer(_as_written),
    _names_json(("none", "auto", "full_iteration"), _SCOPES),
]
ActivationOffload = Annotated[
    Literal["none"] | tuple[OffloadModule, ...],
    PlainValidator(_names_or(("none",), OFFLOAD_MODULES)),
    PlainSerializer(_as_written),
    _names_json(("none",), OFFLOAD_MODULES),
]
#: ``auto`` or a fraction of the throughput.
Tolerance = Annotated[
    Literal["auto"] | float,
    PlainValidator(_tolerance),
    WithJsonSchema(
        {"anyOf": [{"enum": ["auto"]}, {"type": "number", "minimum": 0, "maximum": 0.5}]}
    ),
]
#: ``auto`` or the fraction of the optimizer state on the host: false is 0.0, true is 1.0.
OptimizerOffload = Annotated[
    Literal["auto"] | float,
    PlainValidator(_offload),
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": ["auto", True, False]},
                {"type": "number", "minimum": 0, "maximum": 1},
            ]
        }
    ),
]
#: ``auto``, ``even``, or Megatron's ``pipeline_model_parallel_layout`` string.
PipelineLayout = Annotated[
    str,
    PlainValidator(_pipeline),
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": ["auto", "even"]},
                {"type": "string", "pattern": f"^{_PIPELINE_LAYOUT}$", "maxLength": 4096},
            ]
        }
    ),
]
