"""From a row of a measured run to a scenario, its layout, and the memory of each pipeline rank.

What a row leaves open is filled in by one of two sets of defaults, which its source decides, and
said in the flags of the prediction:

========================  ==================================  ================================
what the row leaves open  recipes of Megatron-Bridge          everything else: Megatron-LM
========================  ==================================  ================================
gradients, moments        bf16; fp32, or as in the recipes    fp32; fp32
                          of the model
cross entropy             Transformer Engine                  unfused
weights kept in 8 bits    yes, but for blockwise scaling      no
dispatcher                the best that is legal              alltoall
etp                       1                                   tp, where that fits the GPUs
========================  ==================================  ================================

And everywhere: vpp, cp, mbs = 1; no offload and no graphs; the framework's even split; context
parallelism point to point; enough micro-batches to fill the pipeline; Transformer Engine 2.11, or
that of the NeMo release which the row names.
Where the router decides, the load imbalance is 1.3; unpacked data leaves a row out.
Recompute is off in rows with a figure; in rows with a verdict alone it stays open, so that
``fits`` means that some recompute fits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks import memory_words as words
from benchmarks.memory_models import Model, is_moe, model_of
from benchmarks.memory_rows import Run
from benchmarks.memory_words import Unusable
from meshplan.scenarios.errors import InputError

if TYPE_CHECKING:
    from meshplan.constraints.layout import Layout
    from meshplan.constraints.memory.stage import RankMemory
    from meshplan.constraints.problem import Problem

#: Presets by what a GPU's name starts with.  Some have no preset: then one of the same
#: architecture stands in, and the memory is what the row says.
PRESETS = {
    "H100": "h100-hgx", "H200": "h200-hgx", "H800": "h800-hgx", "A100": "a100-hgx",
    "B200": "b200-hgx", "B300": "b300-hgx", "GB200": "gb200-nvl72", "GB300": "gb300-nvl72",
}  # fmt: skip
STAND_INS = {"A800": "a100-hgx", "H20": "h100-hgx", "GH200": "h100-hgx"}
#: Share of the nominal memory (in GB, as sold) that is usable in GiB: H100 79.1 of 80, and so on.
USABLE = 0.99
TRANSFORMER_ENGINE = "2.11"
#: Load imbalance where the router is free (Megatron-Bridge 2610525f3: 1.1 to 1.5, an estimate).
NATURAL_IMBALANCE = 1.3
#: Transformer Engine of NeMo releases, newest first (Megatron-Bridge 067f987
#: ``docs/releases/software-versions.md``); a newer release has at least that.
ENGINES = {(26, 6): "2.16", (26, 4): "2.14", (26, 2): "2.12", (25, 11): "2.9", (25, 9): "2.7"}
#: Sources whose runs are recipes of Megatron-Bridge, or of NVIDIA's papers about them.
_RECIPES = r"Megatron-Bridge|MoE-ModelZoo|MLCommons|2603\.07685|^(skills|examples|docs)/"
#: Sources that launch Megatron-LM with its own defaults.
_MEGATRON_LM = r"Megatron-LM|arXiv"


@dataclass(frozen=True)
class Prediction:
    """What the memory model says of a run.

    Attributes
    ----------
    ranks
        Memory of each pipeline rank.
    rank
        The one that the row's figures are of; None for the largest.
    capacity_gib
        Memory of a GPU that a plan may use.
    flags
        What the row does not say, and how it was filled in.
    """

    run: Run
    model: Model
    problem: Problem
    layout: Layout
    ranks: tuple[RankMemory, ...]
    rank: int | None
    capacity_gib: float
    open_recompute: bool
    flags: tuple[str, ...]

    @property
    def peak_gib(self) -> float:
        """What the heaviest rank needs of its GPU."""
        from meshplan.constraints.problem import QUANTA_PER_GIB

        return max(one.peak for one in self.ranks) / QUANTA_PER_GIB

    @property
    def verdict(self) -> str:
        """``fits``, ``tight`` (close to what may be used) or ``overfull``; hosts are left aside."""
        from meshplan.constraints.memory.verdict import verdict_of

        return verdict_of(self.peak_gib, self.capacity_gib)

    def gib(self, kind: str) -> float:
        """The model's figure of a kind, on the row's rank."""
        from meshplan.constraints.problem import QUANTA_PER_GIB

        over_ranks = kind == words.RESERVED and words.notes(self.run.notes).reserved_over_ranks
        one = self.rank is not None and not over_ranks
        ranks = self.ranks[self.rank : self.rank + 1] if one else self.ranks  # type: ignore[operator]
        figure = _FIGURES.get(kind, _allocated)
        return max(figure(memory) for memory in ranks) / QUANTA_PER_GIB


def _allocated(memory: RankMemory) -> int:
    return memory.allocated


#: The model's figure by kind of measured figure, in quanta; the allocator's peak for all others.
_FIGURES: dict[str, Callable[[RankMemory], int]] = {
    words.RESIDENT: lambda memory: memory.resident,
    words.RESERVED: lambda memory: memory.reserved,
    words.DEVICE: lambda memory: memory.reserved + memory.outside,
}


def predict(run: Run) -> Prediction:
    """Memory of a run.

    Raises
    ------
    Unusable
        If the row leaves open what the memory rests on, or asks for what is not modelled.
    """
    from meshplan.constraints.memory.stage import rank_memory
    from meshplan.constraints.problem import QUANTA_PER_GIB
    from meshplan.constraints.resolve import resolve
    from meshplan.scenarios import from_mapping
    from meshplan.solver.complete import MEANINGLESS, can_cost, complete, with_pins
    from meshplan.solver.layout_text import Stated

    draft = Draft(run)
    try:
        problem = resolve(from_mapping(draft.scenario()))
        layout, _ = complete(problem, with_pins(problem, Stated()))
    except InputError as error:
        raise Unusable(f"no scenario: {str(error).splitlines()[0]}") from None
    if not can_cost(problem, layout):
        raise Unusable(f"the pipeline layout does not hold the {problem.model.layers} layers")
    try:
        ranks = tuple(rank_memory(problem, layout, rank) for rank in range(layout.pp))
    except MEANINGLESS as error:
        raise Unusable(f"the layout has no meaning: {error}") from None
    capacity = problem.capacity / QUANTA_PER_GIB
    if draft.usable_gib is not None:
        capacity *= draft.usable_gib / problem.node_type.hbm_gib
    return Prediction(
        run=run,
        model=draft.model,
        problem=problem,
        layout=layout,
        ranks=ranks,
        rank=words.rank_of(run.rank, layout.pp),
        capacity_gib=capacity,
        open_recompute=draft.open_recompute,
        flags=tuple(draft.flags),
    )


class Draft:
    """A row on its way to a scenario."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.notes = words.notes(run.notes)
        self.flags: list[str] = list(self.notes.flags)
        for figure in run.figures:
            words.figure_kind(figure.kind)
        if run.fsdp:
            raise Unusable(f"FSDP: {run.fsdp}")
        self.model = self._model()
        self.recipe = re.search(_RECIPES, run.source) is not None
        self.dispatch = words.dispatcher(run.dispatcher)
        self.preset, self.usable_gib = self._gpu()
        self.degrees = self._degrees()
        recompute = words.recompute(run.recompute)
        self.open_recompute = recompute is None and not run.figures
        if recompute is None and run.figures:
            self._fill("no recompute")
        self.recompute = recompute or (("auto" if self.open_recompute else "none"), {})
        if "unpacked" in self.notes.flags:
            raise Unusable(
                "unpacked data: sequences are shorter than seq_len by what is not stated"
            )

    def _fill(self, text: str) -> None:
        self.flags.append(f"{text} (not stated)")

    def _model(self) -> Model:
        run = self.run
        model = model_of(run.model, run.phase)
        layout = run.layout or self.notes.layout
        if layout:
            from meshplan.constraints.pipeline import LayoutStringError, expand

            try:
                return model.with_mtp(expand(layout).count("m"))
            except LayoutStringError as error:
                raise Unusable(f"the pipeline layout {layout!r} {error}") from None
        stated = run.mtp if run.mtp is not None else self.notes.mtp
        return model if stated is None else model.with_mtp(stated)

    def _gpu(self) -> tuple[str, float | None]:
        """Preset, and usable memory where a preset stands in."""
        name = re.split(r"[/?\s]", self.run.gpu.upper())[0]
        if name != self.run.gpu.upper():
            self.flags.append(f"GPU taken for {name} (stated: {self.run.gpu})")
        if name in PRESETS:
            return PRESETS[name], None
        if name not in STAND_INS or self.run.gpu_gb is None:
            raise Unusable(f"GPU {self.run.gpu or 'not stated'} unknown")
        return STAND_INS[name], USABLE * self.run.gpu_gb

    def _degrees(self) -> dict[str, int]:
        run, moe = self.run, is_moe(self.model)
        for name in ("tp", "ep") if moe else ("tp",):
            if getattr(run, name) is None:
                raise Unusable(f"{name} not stated")
        assert run.tp is not None
        degrees = {"tp": run.tp, "cp": run.cp or 1, "pp": run.pp or 1, "vpp": run.vpp or 1}
        split = degrees["tp"] * degrees["cp"] * degrees["pp"]
        gpus = run.num_gpus or (run.dp or 0) * split
        if not gpus:
            raise Unusable("number of GPUs not stated")
        if gpus % split:
            raise Unusable(f"tp*cp*pp = {split} does not divide {gpus} GPUs")
        degrees |= {"gpus": gpus, "dp": gpus // split}
        if run.dp not in (None, degrees["dp"]):
            self.flags.append(f"dp = {degrees['dp']} of {gpus} GPUs (stated: {run.dp})")
        degrees["ep"] = run.ep or 1
        degrees["etp"] = self._expert_tensor(degrees) if moe else degrees["tp"]
        grid = degrees["etp"] * degrees["ep"] * degrees["pp"]
        if moe and gpus % grid:
            raise Unusable(f"etp*ep*pp = {grid} does not divide {gpus} GPUs")
        return degrees

    def _expert_tensor(self, degrees: dict[str, int]) -> int:
        if self.run.etp is not None:
            return self.run.etp
        tp, grid = degrees["tp"], degrees["tp"] * degrees["ep"] * degrees["pp"]
        follows = re.search(_MEGATRON_LM, self.run.source) and not self.recipe
        etp = tp if follows and degrees["gpus"] % grid == 0 else 1
        if tp > 1:
            self._fill(f"etp {etp}")
        return etp

    def scenario(self) -> dict[str, Any]:
        """The scenario, with all degrees pinned."""
        run, d = self.run, self.degrees
        resident = {words.figure_kind(figure.kind) for figure in run.figures} == {words.RESIDENT}
        if run.seq_len is None and not resident:
            raise Unusable("seq_len not stated")
        mbs = run.mbs or 1
        ga = max(1, run.gbs // (mbs * d["dp"])) if run.gbs else 4 * d["pp"] * d["vpp"]
        if run.mbs is None:
            self._fill("mbs 1")
        precision, kept = words.precision(run.precision)
        if kept is None:
            # Megatron-Bridge 067f987 training/mixed_precision.py: all but the blockwise recipe.
            kept = self.recipe and precision != "fp8-block"
            self._fill(f"fp8_parameters {str(kept).lower()}")
        pins = {name: d[name] for name in ("tp", "cp", "pp", "vpp", "dp", "ep", "etp")}
        comm = "a2a" if "CP a2a" in run.attention else "p2p"
        return {
            "meshplan": 1,
            "name": "measured-run",
            "model": self.model.reference,
            "cluster": {"preset": self.preset, "gpus": d["gpus"]},
            "workload": {
                # Between iterations there are no activations: any length will do.
                "seq_len": run.seq_len or 4096,
                "global_batch_size": mbs * d["dp"] * ga,
                "precision": precision,
            },
            "layout": {**pins, "mbs": mbs, "ga": ga, "cp_comm": comm},
            "options": self._options(),
            "training": {**self._training(), "fp8_parameters": kept},
            "limits": {"tp_within_domain": False, "ep_within_domain": False},
            "framework": {"transformer_engine": self._engine()},
        }

    def _imbalance(self) -> float:
        """Tokens of the busiest expert rank over the mean.

        Balance is forced in speed measurements.  Where the router decides (the row says so, or
        it is a fine-tuning), early in training 1.1 to 1.5 was seen: the middle is taken.
        """
        tuned = re.search(r"\bsft\b", f"{self.run.phase} {self.run.model}", re.IGNORECASE)
        natural = self.run.routing == "natural" or (not self.run.routing and tuned)
        if not (natural and is_moe(self.model)) or self.dispatch.imbalance != 1.0:
            return self.dispatch.imbalance
        self.flags.append(f"load_imbalance {NATURAL_IMBALANCE} (natural routing)")
        return NATURAL_IMBALANCE

    def _engine(self) -> str:
        named = re.match(r"(\d+)\.(\d+)", self.run.release)
        if self.notes.transformer_engine or named is None:
            return self.notes.transformer_engine or TRANSFORMER_ENGINE
        release = (int(named[1]), int(named[2]))
        return next((te for of, te in ENGINES.items() if release >= of), TRANSFORMER_ENGINE)

    def _options(self) -> dict[str, Any]:
        run = self.run
        name = self.dispatch.name
        if name == "flex":
            name = "hybridep" if self.preset.endswith("nvl72") else "deepep"
        elif not name and is_moe(self.model):
            name = "auto" if self.recipe else "alltoall"
            self._fill(f"dispatcher {name}")
        scopes, flag = words.graphs(run.graphs)
        if flag:
            self.flags.append(flag)
        stages = f"{self.degrees['pp']}x{self.degrees['vpp']}"
        layout = run.layout or self.notes.layout or self.model.layouts.get(stages)
        return {
            "recompute": self.recompute[0],
            "optimizer_offload": words.optimizer_offload(run.offload),
            "activation_offload": words.activation_offload(run.activation_offload),
            "dispatcher": name or "alltoall",
            "cuda_graphs": scopes,
            "pipeline_layout": layout or "auto",
        }

    def _training(self) -> dict[str, Any]:
        run = self.run
        stated: dict[str, Any] = {
            **self.model.training,
            **self.recompute[1],
            **words.optimizer(run.optimizer),
            **self.notes.settings,
        }
        if not run.sequence_parallel:
            stated["sequence_parallel"] = False
        if run.attention:
            stated["attention_backend"] = "unfused" if "unfused" in run.attention else "fused"
        if loss := words.cross_entropy(run.cross_entropy):
            stated["cross_entropy"] = loss
        stated["distributed_optimizer"] = run.distributed_optimizer
        stated["load_imbalance"] = self._imbalance()
        stated["overlap_expert_communication"] = self.dispatch.overlap or run.expert_overlap
        return {**dict(self._defaults(stated)), **stated}

    def _defaults(self, stated: dict[str, Any]) -> Iterator[tuple[str, Any]]:
        """Settings that neither the row nor the model's name states."""
        ours = {
            "gradient_dtype": "bf16" if self.recipe else "fp32",
            "moment_dtype": self.model.moments if self.recipe else "fp32",
            "cross_entropy": "te" if self.recipe else "unfused",
        }
        for name, value in ours.items():
            if name not in stated:
                self._fill(f"{name} {value}")
                yield name, value


def effects(prediction: Prediction) -> tuple[str, ...]:
    """What a run is an example of, for sums by effect."""
    problem, layout = prediction.problem, prediction.layout
    card, training = problem.model, problem.training
    found = {
        "mixture of experts": card.is_moe,
        "dense": not card.is_moe,
        "latent attention": card.attention == "mla",
        "hybrid": any(kind.attention in ("gdn", "mamba") for kind in problem.kinds),
        f"precision {problem.precision}": True,
        "tensor parallel": layout.tp > 1,
        "context parallel": layout.cp > 1,
        "expert parallel": layout.ep > 1,
        "pipeline": layout.pp > 1,
        "virtual pipeline": layout.vpp > 1,
        "last of several stages": layout.pp > 1 and prediction.rank == layout.pp - 1,
        "long context (32K or more)": problem.seq_len >= 1 << 15,
        "MTP": card.mtp_layers > 0,
        "full recompute": layout.recompute_full,
        "selective recompute": bool(layout.recompute),
        "optimizer offload": layout.offload > 0,
        "activation offload": bool(training.activation_offload),
        "CUDA graphs": bool(layout.cuda_graphs),
        "overlapped expert communication": training.overlap_expert_communication,
        "unfused attention": not training.fused_attention,
        "bf16 moments": training.moment_bytes == 2,
        f"cross entropy {training.cross_entropy}": True,
        f"dispatcher {layout.dispatcher}": card.is_moe,
        "settings not stated": any("not stated" in flag for flag in prediction.flags),
    }
    return tuple(name for name, holds in found.items() if holds)


__all__ = ["Prediction", "effects", "predict"]
