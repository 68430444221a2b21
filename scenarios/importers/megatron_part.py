"""What Megatron arguments mean in a scenario: degrees, options, workload, and what was decided.

Where an argument is not given, Megatron-LM's own default holds (Megatron-LM d98e8a64
``megatron/training/arguments.py`` and megatron-core 0.19 ``TransformerConfig``); each default that
matters is told.  A short string says nothing about a framework: what it leaves out stays open.  So
does what may stand in a word of the command that was not read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

from meshplan.scenarios.checks import listed
from meshplan.scenarios.choices import GraphScope, OffloadModule, RecomputeModule
from meshplan.scenarios.importers.megatron_flags import spelt
from meshplan.scenarios.importers.megatron_reading import Reading
from meshplan.scenarios.importers.megatron_sections import ScenarioPart
from meshplan.scenarios.importers.megatron_stages import (
    SPLIT_SOURCES,
    VIRTUAL_SOURCES,
    pipeline_layout,
    virtual_stages,
)
from meshplan.scenarios.importers.megatron_training import training_recipe
from meshplan.scenarios.pins import CP_COMM_CHOICES
from meshplan.scenarios.yaml_reader import shorten

if TYPE_CHECKING:
    from meshplan.scenarios.importers.megatron_args import MegatronArguments

_DEGREES = {
    "tp": "tensor_model_parallel_size",
    "cp": "context_parallel_size",
    "pp": "pipeline_model_parallel_size",
    "ep": "expert_model_parallel_size",
}
_FP8 = {
    "delayed": "fp8-tensor",
    "tensorwise": "fp8-current",
    "blockwise": "fp8-block",
    "mxfp8": "mxfp8",
}
_MODULES = get_args(RecomputeModule)
_SCOPES = get_args(GraphScope)
_OFFLOADED = get_args(OffloadModule)


def scenario_part(arguments: MegatronArguments, layers: int | None = None) -> ScenarioPart:
    """Translate arguments; ``layers`` stands in for an absent ``--num-layers``.

    Raises
    ------
    InputError
        If a degree is 0, a name is unknown to Megatron-LM, or stages contradict each other.
    """
    translation = _Translation(arguments, layers)
    layout = translation.layout()
    options = translation.options()
    workload = translation.workload()
    training = training_recipe(translation)
    translation.tell_open()
    return ScenarioPart(layout, options, workload, training, tuple(translation.notes))


class _Translation(Reading):
    # -- layout ------------------------------------------------------------------------------

    def layout(self) -> dict[str, Any]:
        degrees = {key: self.count(name) for key, name in _DEGREES.items()}
        absent = [key for key, value in degrees.items() if value is None]
        if not self.short:
            absent = [key for key in absent if not self.open(key, _DEGREES[key])]
            degrees |= dict.fromkeys(absent, 1)
            if absent:
                self.notes.append(f"{', '.join(absent).upper()} not given: Megatron-LM takes 1")
        layout: dict[str, Any] = dict(degrees)
        layout["etp"] = self._expert_tensor(degrees["tp"])
        layout["vpp"] = self._virtual(degrees["pp"])
        layout["mbs"] = self.count("micro_batch_size")
        if self.short:
            layout["dp"] = self.count("data_parallel_size")
        elif (world := self.count("world_size")) is not None:
            dp = self.count("data_parallel_size")
            self.notes.append(f"the run had {world} GPUs" + (f" and dp = {dp}" if dp else ""))
        layout["cp_comm"] = self._exchange(degrees["cp"])
        return {key: value for key, value in layout.items() if value is not None}

    def _expert_tensor(self, tp: int | None) -> int | None:
        etp = self.count("expert_tensor_parallel_size")
        if self.open("etp", "expert_tensor_parallel_size"):
            return None
        if etp is None and not self.short:
            if tp is None:  # open, and etp with it
                return None
            etp = tp
            if (tp or 1) > 1 or self.count("expert_model_parallel_size"):
                self.notes.append(f"ETP not given: Megatron-LM takes etp = tp = {tp}")
        elif etp is None and self.count("expert_model_parallel_size"):
            self.notes.append(
                "ETP not given: open, as Megatron-LM takes tp and Megatron-Bridge takes 1"
            )
        return etp

    def _virtual(self, pp: int | None) -> int | None:
        layers = self.layers if isinstance(self.layers, int) else None
        vpp, note = virtual_stages(self.given, pp, layers)
        if note:
            self.notes.append(note)
        elif vpp is None and self.open("vpp", *VIRTUAL_SOURCES):
            return None
        return vpp if vpp is not None or self.short or note else 1

    def _exchange(self, cp: int | None) -> str | None:
        names = self.words("cp_comm_type")
        if not names and self.open("cp_comm", "cp_comm_type"):
            return None
        for name in names:
            if name not in CP_COMM_CHOICES:
                raise self.given.error(
                    "cp_comm_type",
                    f"--cp-comm-type is {shorten(name)}, but must be {listed(CP_COMM_CHOICES)}",
                    "write p2p.",
                )
        if len(set(names)) > 1:
            self.notes.append("--cp-comm-type differs by layer; a scenario has one, so it is open")
            return None
        if names:
            return names[0] if (cp or 1) > 1 else None
        return "p2p" if (cp or 1) > 1 and not self.short else None

    # -- options -----------------------------------------------------------------------------

    def options(self) -> dict[str, Any]:
        if self.short:
            return {}
        options: dict[str, Any] = {"recompute": self._recompute()}
        options["optimizer_offload"] = self._offload()
        options["activation_offload"] = self._activation_offload()
        options["dispatcher"] = self._dispatcher()
        options["cuda_graphs"] = self._graphs()
        layers = self.layers if isinstance(self.layers, int) else None
        text, note = pipeline_layout(self.given, layers)
        if text == "even" and self.open("pipeline_layout", *SPLIT_SOURCES):
            text = None
        self.notes += [note] if note else []
        options["pipeline_layout"] = text
        return {key: value for key, value in options.items() if value is not None}

    def _recompute(self) -> Any:
        granularity = self.word("recompute_granularity", ("selective", "full"))
        modules = self.words("recompute_modules") or ("core_attn",)
        if self.on("recompute_activations"):
            granularity = "selective"
        if self.on("moe_layer_recompute"):
            granularity = granularity or "selective"
            modules = (*(self.words("recompute_modules")), "moe")
        sources = ["recompute_granularity"]
        if granularity is None:
            sources += ["recompute_activations", "moe_layer_recompute"]
        elif granularity == "selective":
            sources = ["recompute_modules"]
        if (granularity is None or granularity == "selective") and self.open("recompute", *sources):
            return None
        if granularity is None:
            return "none"
        if granularity == "full":
            return "full"
        if not self.words("recompute_modules") and not self.on("moe_layer_recompute"):
            self.notes.append("recompute modules not given: Megatron-LM takes core_attn")
        unknown = [name for name in modules if name not in _MODULES]
        if unknown:
            self.notes.append(
                f"recompute of {', '.join(shorten(name) for name in unknown[:8])} is not modelled; "
                "left out"
            )
        return [name for name in _MODULES if name in modules] or "none"

    def _offload(self) -> float | None:
        on = self.on("optimizer_cpu_offload")
        source = "optimizer_offload_fraction" if on else "optimizer_cpu_offload"
        if self.open("optimizer_offload", source):
            return None
        if not on:
            return 0.0
        fraction = self.given.get("optimizer_offload_fraction")
        return float(fraction) if isinstance(fraction, int | float) else 1.0

    def _activation_offload(self) -> Any:
        on, modules = self.on("fine_grained_activation_offloading"), self.words("offload_modules")
        source = "offload_modules" if on else "fine_grained_activation_offloading"
        if self.open("activation_offload", source):
            return None
        if not on:
            if modules:
                self.notes.append(
                    "--offload-modules without --fine-grained-activation-offloading does nothing"
                )
            return "none"
        if not modules:
            raise self.given.error(
                "fine_grained_activation_offloading",
                "--fine-grained-activation-offloading is given without --offload-modules",
                f"name what is offloaded: {listed(_OFFLOADED)}.",
            )
        if "attn_proj" in modules and "core_attn" not in modules:
            raise self.given.error(
                "offload_modules",
                "--offload-modules has attn_proj without core_attn; Megatron-LM refuses that",
                "add core_attn.",
            )
        unknown = [name for name in modules if name not in _OFFLOADED]
        if unknown:
            self.notes.append(
                f"offload of the inputs of {', '.join(shorten(name) for name in unknown[:8])} is "
                "not modelled; left out"
            )
        fraction = self.given.get("activation_offload_fraction")
        if isinstance(fraction, float) and fraction < 1:
            self.notes.append(
                f"--activation-offload-fraction {fraction:g} is not modelled: counted as 1"
            )
        return [name for name in _OFFLOADED if name in modules] or "none"

    def _dispatcher(self) -> str | None:
        if not (self.count("num_experts") or (self.count("expert_model_parallel_size") or 1) > 1):
            return None
        backend = self.word("moe_flex_dispatcher_backend", ("deepep", "hybridep", "ncclep"))
        kind = self.word("moe_token_dispatcher_type", ("alltoall", "flex", "allgather"))
        if self.on("moe_enable_deepep"):
            kind, backend = "flex", backend or "deepep"
        if kind == "alltoall":
            return "alltoall"
        sources = (
            ["moe_flex_dispatcher_backend"] if kind == "flex" else ["moe_token_dispatcher_type"]
        )
        if kind != "allgather" and backend is None and self.open("dispatcher", *sources):
            return None
        if kind == "flex" and backend != "ncclep":
            if backend is None:
                self.notes.append("flex backend not given: Megatron-LM takes deepep")
            return backend or "deepep"
        said = "--moe-flex-dispatcher-backend ncclep" if kind else "dispatcher not given: allgather"
        said = "--moe-token-dispatcher-type allgather" if kind == "allgather" else said
        self.notes.append(f"{said}, which is not modelled; the dispatcher is left open")
        return None

    def _graphs(self) -> Any:
        kinds = ("none", "local", "transformer_engine", "full_iteration")
        kind = self.word("cuda_graph_impl", kinds, "none")
        if kind == "none" and (self.on("enable_cuda_graph") or self.on("external_cuda_graph")):
            kind = "local" if self.on("enable_cuda_graph") else "transformer_engine"
        if kind == "none" and self.open(
            "cuda_graphs", "cuda_graph_impl", "enable_cuda_graph", "external_cuda_graph"
        ):
            return None
        if kind == "none":
            return "none"
        if kind != "full_iteration" and self.open("cuda_graphs", "cuda_graph_modules"):
            return None
        scopes = [name for name in self.words("cuda_graph_modules") if name != "full"]
        known = [name for name in _SCOPES if name in scopes]
        if kind == "full_iteration" or not scopes or len(known) < len(set(scopes)):
            what = (
                ", ".join(shorten(one) for one in scopes[:8] if one not in known) or "whole layers"
            )
            what = "a full iteration" if kind == "full_iteration" else what
            self.notes.append(f"CUDA graphs of {what} are not modelled; left out")
        return known or "none"

    # -- workload ----------------------------------------------------------------------------

    def workload(self) -> dict[str, Any]:
        workload: dict[str, Any] = {
            "seq_len": self.count("seq_length"),
            "global_batch_size": self.count("global_batch_size"),
            "precision": None if self.short else self._precision(),
        }
        if self.open("global_batch_size", "global_batch_size"):
            pass
        elif workload["global_batch_size"] is None and not self.short and not self._schedule():
            self.notes.append("global batch not given: Megatron-LM takes mbs * dp, so ga = 1")
        return {key: value for key, value in workload.items() if value is not None}

    def _schedule(self) -> bool:
        names = [n for n in ("rampup_batch_size", "step_batch_size_schedule") if self.given.get(n)]
        if names:
            self.notes.append(f"{spelt(names[0])}: only the final batch is judged")
        return bool(names)

    def _precision(self) -> str | None:
        if self.given.get("fp4"):
            self.word("fp4_recipe", ("nvfp4", "custom"), "nvfp4")
            return "nvfp4"
        if self.given.get("fp8"):
            if self.open("precision", "fp8_recipe"):
                return None
            recipe = self.word("fp8_recipe", (*_FP8, "custom"), "delayed")
            if recipe == "custom":
                self.notes.append("--fp8-recipe custom is not modelled; the precision is left open")
            return _FP8.get(recipe or "")
        if self.open("precision", "fp8", "fp4"):
            return None
        if self.on("bf16"):
            return "bf16"
        self.notes.append(
            ("--fp16" if self.on("fp16") else "fp32 (neither --bf16 nor --fp8-format)")
            + " is not modelled; the precision is left open"
        )
        return None


__all__ = ["ScenarioPart", "scenario_part"]
