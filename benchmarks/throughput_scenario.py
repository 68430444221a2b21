"""From a row of a published run to a scenario and its layout, for the step-time model.

Degrees, model and settings are read as for memory (:class:`benchmarks.memory_scenario.Draft`).
What a row leaves open is filled in by these defaults, the same for every row:

=====================  ==========================================================================
what the row leaves    default
=====================  ==========================================================================
sequence length        4096 (the row is set apart)
recompute              none
CUDA graphs            none
dispatcher             where the recipe of the row is known: alltoall, Megatron's default; else
                       hybridep on an NVL72 rack, alltoall elsewhere
deepep up to 26.02     alltoall: those containers lack DeepEP (Megatron-Bridge, known issues)
TP overlap             on for dense models, off for MoE, as in the recipes that state it
expert overlap         as the notes say, else off
fused expert kernels   MXFP8 MoE from release 26.06 on with graphs of the full iteration, as in all
                       recipes that have these graphs (``te_op_fuser``)
cp_comm                the fastest legal one
micro-batches          256, so that what comes once a step hardly counts
pipeline               the row's or recipe's layout string, else a near-even split
FP8 of release 25.09   current scaling, as 25.11 labels it
releases up to 25.07   gradients in bf16, FP8 weights kept in FP8, as in NeMo's recipes
attention kernels      slower up to 24.03 on Hopper, 25.04 on Blackwell (``attention_kernels``)
FLOPs up to 25.04      counted with the whole attention matrix, where no tokens/s are stated
=====================  ==========================================================================

Rows whose settings these defaults guess are in doubt: no recipe of their release has the layout,
or the container lacked the dispatcher that recipes of the time name.  They are predicted, but never
fitted on, and have sums of their own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from benchmarks.memory_models import is_moe
from benchmarks.memory_scenario import Draft
from benchmarks.memory_words import Unusable
from benchmarks.throughput_rows import Measured
from meshplan.scenarios.errors import InputError

if TYPE_CHECKING:
    from meshplan.constraints.layout import Layout
    from meshplan.constraints.problem import Problem

SEQ_LEN = 4096
MICRO_BATCHES = 256
#: Models that the step-time model is not about, by what their names start with.
_BEYOND = {
    "wan": "video diffusion",
    "deepseek_v4": "sparse attention (DSA)",
    "glm5": "sparse attention (DSA)",
    "gemma": "vision tower",
}
#: Releases whose containers lack DeepEP (26.02: Megatron-Bridge's known issues; older: inferred).
_WITHOUT_DEEPEP = ("25.09", "25.11", "26.02")
#: Last release with older attention kernels, and their speed against those of 2026: 0.33 and 0.435
#: of the bf16 peak, by a trial fit of the two sweeps to 1M tokens in ``data/unseen_runs.csv``.
_OLD_ATTENTION = {"hopper": ((24, 3), 0.49), "blackwell": ((25, 4), 0.635)}
#: Last release of NeMo's own recipes (NVIDIA/NeMo scripts/performance/helpers.py
#: set_perf_optimization_configs: grad_reduce_in_fp32; recipes/precision: fp8_param_gather).
_NEMO = (25, 7)
#: Last release whose tables count the whole attention matrix (facts on FLOPs: NeMo 24.x to 25.04).
_WHOLE_MATRIX = (25, 4)
_EXPERT_OVERLAP = r"EP overlap (on|enabled)"
_FULL_ITERATION = r"full[ _]iteration"


@dataclass(frozen=True)
class Case:
    """A row as a problem and a layout, with the throughput that was measured.

    Attributes
    ----------
    tflops
        Measured model TFLOP/s of one GPU, counted as the model counts.
    apart
        Why the row is neither fitted nor counted, or nothing.
    flags
        Defaults and what else to know.
    key
        The same for rows that differ in release and figure alone.
    doubt
        Why the settings of the row are guesses, or nothing.
    """

    measured: Measured
    problem: Problem
    layout: Layout
    tflops: float
    apart: str
    flags: tuple[str, ...]
    key: str
    doubt: str

    @property
    def id(self) -> str:
        """Name of the row."""
        return self.measured.run.id

    @property
    def model(self) -> str:
        """Model as the row names it."""
        return self.measured.run.model

    @property
    def gpu(self) -> str:
        """GPU type as the row names it."""
        return self.measured.run.gpu

    @property
    def release(self) -> str:
        """Release, or what stands for none."""
        return self.measured.run.release or "none"

    @property
    def degrees(self) -> tuple[int, ...]:
        """Degrees and micro-batch: rows that share them share a layout."""
        one = self.layout
        return (one.tp, one.cp, one.pp, one.vpp, one.ep, one.etp, one.mbs)

    @property
    def place(self) -> tuple[object, ...]:
        """Model, GPUs and length."""
        return (self.model, self.gpu, self.problem.gpus, self.problem.seq_len)


def case_of(measured: Measured) -> Case:
    """A row as a problem and a layout.

    Raises
    ------
    Unusable
        If the row leaves open what its speed rests on, or asks for what is not modelled.
    """
    from meshplan.constraints.resolve import resolve
    from meshplan.scenarios import from_mapping
    from meshplan.scenarios.flops import flops_per_token
    from meshplan.solver.complete import MEANINGLESS, can_cost, complete, with_pins
    from meshplan.solver.layout_text import Stated
    from meshplan.solver.time.step import step_time

    for start, reason in _BEYOND.items():
        if measured.run.model.startswith(start):
            raise Unusable(reason)
    if measured.tflops is None and measured.tokens_per_s is None:
        raise Unusable("no throughput")
    draft = SpeedDraft(measured)
    try:
        scenario = draft.scenario()
        problem = draft.with_its_kernels(resolve(from_mapping(scenario)))
        layout, _ = complete(problem, with_pins(problem, Stated()))
        if not can_cost(problem, layout):
            raise Unusable(f"the pipeline layout does not hold the {problem.model.layers} layers")
        step_time(problem, layout)
    except InputError as error:
        raise Unusable(f"no scenario: {str(error).splitlines()[0]}") from None
    except MEANINGLESS as error:
        raise Unusable(f"the layout has no meaning: {error}") from None
    if measured.tflops is None or (measured.by_tokens and measured.tokens_per_s):
        assert measured.tokens_per_s is not None
        per_token = flops_per_token(problem.model, problem.seq_len).total
        tflops = measured.tokens_per_s * per_token / 1e12
        draft.flags.append("by tokens/s")
    else:
        tflops = draft.counted(problem, measured.tflops)
    apart = measured.apart or draft.apart
    if measured.approximate:
        apart = apart or "approximate figure"
    key = repr({k: v for k, v in scenario.items() if k != "framework"}) + layout.cp_comm
    return Case(
        measured, problem, layout, tflops, apart, tuple(draft.flags), key, draft.doubt
    )  # fmt: skip


class SpeedDraft(Draft):
    """A row on its way to a scenario whose step time is asked."""

    def __init__(self, measured: Measured) -> None:
        run = measured.run
        self.measured, self.apart, self.doubt = measured, "", ""
        graphs = run.graphs.lower()
        self.full_iteration = "impl=none" not in graphs and bool(re.search(_FULL_ITERATION, graphs))
        changes: dict[str, Any] = {"graphs": ""} if self.full_iteration else {}
        if run.precision == "fp8_unspecified":
            changes["precision"] = "fp8_cs"
        if "vision-language run" in run.notes:
            raise Unusable("vision tower")
        if re.search(_EXPERT_OVERLAP, run.notes):
            changes["expert_overlap"] = True
        super().__init__(replace(run, **changes))
        self.flags += measured.filled
        if self.open_recompute:
            self._fill("no recompute")
            self.recompute, self.open_recompute = ("none", {}), False
        if run.seq_len is None:
            self.apart = f"seq_len {SEQ_LEN} not stated"
            self.run = replace(self.run, seq_len=SEQ_LEN)
        if run.precision == "fp8_unspecified":
            self.flags.append("FP8 taken for current scaling")
        if measured.recipe_differs:
            self.doubt = "no recipe of the release has the layout"

    def scenario(self) -> dict[str, Any]:
        """The scenario, with all degrees pinned and ``cp_comm`` open."""
        found = super().scenario()
        pins, work = found["layout"], found["workload"]
        del pins["cp_comm"]
        if self._is_up_to(_NEMO):
            found["training"]["gradient_dtype"] = "bf16"
            if work["precision"].startswith("fp8"):
                found["training"]["fp8_parameters"] = True
        if self.run.gbs is None:
            pins["ga"] = MICRO_BATCHES
            work["global_batch_size"] = pins["mbs"] * pins["dp"] * MICRO_BATCHES
            self._fill(f"ga {MICRO_BATCHES}")
        return found

    def with_its_kernels(self, problem: Problem) -> Problem:
        """The problem with the attention kernels of the row's release."""
        last, speed = _OLD_ATTENTION[
            "blackwell" if problem.node_type.arch == "blackwell" else "hopper"
        ]
        if not self._is_up_to(last):
            return problem
        self.flags.append(f"attention kernels of {self.run.release}")
        slower = problem.calibration.with_parameters({"attention_kernels": speed})
        return replace(problem, calibration=slower)

    def counted(self, problem: Problem, tflops: float) -> float:
        """TFLOP/s of the row as the model counts them: half of the attention matrix."""
        from meshplan.scenarios.flops import flops_per_token, otherwise_counted

        if not self._is_up_to(_WHOLE_MATRIX):
            return tflops
        self.flags.append("whole attention matrix counted")
        whole = otherwise_counted(problem.model, problem.seq_len, "whole_matrix")
        return tflops * flops_per_token(problem.model, problem.seq_len).total / whole.total

    @property
    def _release(self) -> tuple[int, int]:
        named = re.match(r"(\d+)\.(\d+)", self.run.release)
        return (int(named[1]), int(named[2])) if named else (0, 0)

    def _is_up_to(self, last: tuple[int, int]) -> bool:
        """Whether the row names a release, and none after this one."""
        return (0, 0) < self._release <= last

    def _options(self) -> dict[str, Any]:
        options = super()._options()
        if self.full_iteration:
            options["cuda_graphs"] = "full_iteration"
        if options["dispatcher"] == "auto":
            rack = self.preset.endswith("nvl72") and not self.measured.in_recipes
            options["dispatcher"] = "hybridep" if rack else "alltoall"
        lacking = self.run.release in _WITHOUT_DEEPEP and not self.preset.endswith("nvl72")
        if lacking and is_moe(self.model) and self.dispatch.name not in ("alltoall", "hybridep"):
            options["dispatcher"] = "alltoall"
            self.doubt = self.doubt or "the container lacks DeepEP"
        return options

    def _training(self) -> dict[str, Any]:
        training, moe = super()._training(), is_moe(self.model)
        overlap = self.measured.tensor_overlap
        training["overlap_tensor_communication"] = not moe if overlap is None else overlap
        new = moe and self.full_iteration and self._release >= (26, 6)
        training["fused_grouped_mlp"] = new and self.run.precision.lower() == "mxfp8"
        return training
