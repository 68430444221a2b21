"""What the texts in rows of measured runs mean, in the words of a scenario.

Each function reads one column, with a small vocabulary of its own; a text outside it raises
:class:`Unusable` with the reason, so that no row is predicted from what was misread.  Of the notes
only these fixed words are read: ``layout <string>``, ``SP off``, ``no grad-accum fusion``,
``dropout 0.1``, ``TE 2.11``, ``MTP 1``, ``reserved is the max over ranks``, and without effect on
the prediction ``natural routing`` and ``unpacked``.  ``vision-language run`` leaves a row out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from meshplan.constraints.decisions import RECOMPUTE_MODULES

#: Figures of the allocator at its peak, the headline of the comparison.
ALLOCATED = "allocated"
#: Weights, gradients and optimizer state, after an iteration.
RESIDENT = "between iterations"
RESERVED = "reserved"
#: What the GPU reports: the allocator's reserve and all that lies outside it.
DEVICE = "device"
#: Figures whose kind is not stated, or neither peak nor reserve.
UNSTATED = "kind not stated"
KINDS = (ALLOCATED, RESIDENT, RESERVED, DEVICE, UNSTATED)

#: Notes that are shown next to a prediction, and do not change it.
FLAGS = ("natural routing", "unpacked")
OFFLOAD_MODULES = ("attn_norm", "qkv_linear", "core_attn", "attn_proj", "mlp_norm", "expert_fc1",
                   "moe_act")  # fmt: skip
#: By the words of the precision column, in the order in which they are looked for.
_PRECISIONS = {
    r"nvfp4|fp4": "nvfp4",
    r"mxfp8|fp8[ _]mx": "mxfp8",
    r"fp8[ _-]?block\w*": "fp8-block",
    r"fp8[ _-]?(cs|current)( scaling)?": "fp8-current",
    r"fp8([ _-](tensorwise|tensor|hybrid|delayed))*": "fp8-tensor",
    r"bf16": "bf16",
}
_GRAPHS = {
    "attn": "attn", "mlp": "mlp", "moe": "moe", "mamba": "mamba", "router": "moe_router",
    "moe_router": "moe_router", "preprocess": "moe_preprocess", "moe_preprocess": "moe_preprocess",
}  # fmt: skip


#: Short names of recompute modules, and words around them.
_MODULES = {"up_proj": "mla_up_proj", "norm": "layernorm"}
_FILL = {"selective", "granularity", "modules", "recipe", "head", "none"}


class Unusable(Exception):
    """A row that cannot be put as a scenario; the text is the reason."""


def figure_kind(text: str) -> str:
    """Which of :data:`KINDS` a measured figure is."""
    kind = text.lower()
    if "analytic" in kind:
        raise Unusable("the figure is analytic, not measured")
    if "reserved" in kind:
        return RESERVED
    if "between iterations" in kind:
        return RESIDENT
    if "nvidia-smi" in kind or "device" in kind:
        return DEVICE
    if kind.startswith("allocated after"):
        return UNSTATED  # at some moment, which need not be the peak
    return ALLOCATED if "alloc" in kind else UNSTATED


def precision(text: str) -> tuple[str, bool | str | None]:
    """Precision, and whether the weights are kept in it (``training.fp8_parameters``).

    That is None if the row does not say, and ``auto`` where the formats' own default is clear.
    """
    plain = text.lower().replace("+ param gather", "").strip()
    found = next((ours for words, ours in _PRECISIONS.items() if re.fullmatch(words, plain)), None)
    if found is None:
        raise Unusable(f"precision {text or 'not stated'}")
    if "param gather" in text.lower():
        return found, True
    return found, "auto" if found in ("bf16", "mxfp8", "nvfp4") else None


def optimizer(text: str) -> dict[str, Any]:
    """Training settings that the optimizer column states; what it leaves open is absent."""
    said = text.lower()
    if "muon" in said:
        raise Unusable(f"optimizer {text}")
    settings: dict[str, Any] = {}
    if re.search(r"not precision-aware|precision_aware=false", said):
        settings["precision_aware_optimizer"] = False
    elif re.search(r"precision-aware|precision_aware=true", said):
        settings["precision_aware_optimizer"] = True
    if re.search(r"bf16 m/v|\b(m|exp_avg)=bfloat16", said):
        settings["moment_dtype"] = "bf16"
    elif re.search(r"^fp32|main/m/v|\b(m|exp_avg)=float32", said):
        settings["moment_dtype"] = "fp32"
    # In a recipe, grads=float32 is the format of the optimizer's copy, not of the buffer.
    if re.search(r"bf16 grads|grads=bfloat16", said):
        settings["gradient_dtype"] = "bf16"
    elif re.search(r"^fp32|fp32 (main )?grads", said):
        settings["gradient_dtype"] = "fp32"
    return settings


def optimizer_offload(text: str) -> float:
    """Share of the optimizer state on the host."""
    said = text.lower()
    if not said:
        return 0.0
    if re.fullmatch(r"\d+(\.\d+)?", said) and float(said) <= 1:
        return float(said)
    if said.startswith("yes") or said == "optimizer cpu offload":
        return 1.0
    raise Unusable(f"optimizer offload: {text}")


def activation_offload(text: str) -> list[str] | str:
    """Modules whose inputs are kept on the host, or ``none``."""
    said = text.lower()
    if not said or said == "none" or "modules=[]" in said:
        return "none"
    named = re.findall("|".join(OFFLOAD_MODULES), said)
    if not named:
        raise Unusable(f"activation offload without its modules: {text}")
    return named


def recompute(text: str) -> tuple[str | list[str], dict[str, Any]] | None:
    """Recompute and the settings of full recompute; None if the row says nothing of it."""
    said = text.lower()
    if not said:
        return None
    if re.match(r"none\b|modules=\[\]", said):
        return "none", {}
    if re.search(r"\bfull\b", said):
        unit = re.search(r"(uniform|block)\D{0,15}(\d+)", said)
        if unit is None:
            return "full", {}
        return "full", {"recompute_method": unit[1], "recompute_num_layers": int(unit[2])}
    if "selective" not in said:
        raise Unusable(f"recompute {text}")
    found = [_MODULES.get(word, word) for word in re.findall(r"\w+", said) if word not in _FILL]
    if unknown := [module for module in found if module not in RECOMPUTE_MODULES]:
        raise Unusable(f"recompute of {', '.join(unknown)}")
    if not found and "[]" not in said:
        found = ["core_attn"]  # Megatron-Core's default for the granularity alone
    return [module for module in RECOMPUTE_MODULES if module in found] or "none", {}


def graphs(text: str) -> tuple[list[str] | str, str]:
    """Scopes of CUDA graphs, and a flag where the row does not state them."""
    said = text.lower()
    if re.match(r"(no|none|disabled|scope=\[\])?(\s|\(|$)", said) or "impl=none" in said:
        return "none", ""
    if re.search(r"\bfull\b|full[ _]iteration", said):
        raise Unusable("CUDA graphs of the full iteration")
    scopes = [_GRAPHS[word] for word in re.findall(r"[a-z_]+", said) if word in _GRAPHS]
    if scopes:
        return list(dict.fromkeys(scopes)), ""
    return ["attn"], "graphs of attn (scopes not stated)"


@dataclass(frozen=True)
class Dispatch:
    """Token dispatcher of a row: ``name`` is empty if it is open, ``flex`` for either backend."""

    name: str
    overlap: bool
    imbalance: float


def dispatcher(text: str) -> Dispatch:
    """What the dispatcher column says."""
    said = text.lower()
    if "nccl ep" in said:
        raise Unusable("dispatcher NCCL EP")
    if "allgather" in said:
        raise Unusable("dispatcher allgather")
    named = [name for name in ("alltoall", "deepep", "hybridep") if name in said]
    either = "flex" in said and len(named) != 1
    name = "flex" if either else named[0] if named else ""
    factor = re.search(r"capacity factor (\d+(?:\.\d+)?)", said)
    if factor and not name:
        name = "alltoall"
    return Dispatch(name, "ep overlap" in said, max(1.0, float(factor[1]) if factor else 1.0))


def cross_entropy(text: str) -> str:
    """Implementation of the loss, or nothing if the row is silent."""
    said = text.lower()
    if not said:
        return ""
    if "unfused" in said:
        return "unfused"
    if re.match(r"te\b", said):
        return "te"
    if "native" in said:
        return "native"
    raise Unusable(f"cross entropy {text}")


def rank_of(text: str, pp: int) -> int | None:
    """Pipeline rank that a figure is of; None for the largest over all."""
    said = text.lower()
    if "last" in said:
        return pp - 1
    if "max" in said or said in ("", "all"):
        return None
    number = re.search(r"\d+", said)
    if number is None or int(number[0]) >= pp:
        raise Unusable(f"rank {text!r} of {pp} pipeline ranks")
    return int(number[0])


@dataclass(frozen=True)
class Notes:
    """What the fixed words in the notes say."""

    layout: str
    mtp: int | None
    settings: dict[str, Any]
    transformer_engine: str
    reserved_over_ranks: bool
    flags: tuple[str, ...]


def notes(text: str) -> Notes:
    """Read the fixed words."""
    layout = re.search(r"\blayout (E[EtmL|()*\d,]*L)", text)
    mtp = re.search(r"\bMTP ?(\d)\b", text)
    dropout = re.search(r"\bdropout (0?\.\d+)", text)
    engine = re.search(r"\bTE (\d+\.\d+)\b", text)
    settings: dict[str, Any] = {}
    if "SP off" in text:
        settings["sequence_parallel"] = False
    if "no grad-accum fusion" in text:
        settings["gradient_accumulation_fusion"] = False
    if dropout:
        settings["hidden_dropout"] = float(dropout[1])
    if "vision-language run" in text:
        raise Unusable("vision tower")
    return Notes(
        layout=layout[1] if layout else "",
        mtp=int(mtp[1]) if mtp else None,
        settings=settings,
        transformer_engine=engine[1] if engine else "",
        reserved_over_ranks="reserved is the max over ranks" in text,
        flags=tuple(flag for flag in FLAGS if re.search(rf"\b{flag}\b", text)),
    )
