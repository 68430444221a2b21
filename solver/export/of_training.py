"""The training recipe behind a plan, as settings of the two frameworks."""

from __future__ import annotations

from collections.abc import Iterator

from meshplan.constraints.layout import Layout
from meshplan.constraints.problem import Problem
from meshplan.solver.export.setting import Setting, flag, setting

#: ``fp8_recipe`` of each 8-bit precision.
FP8_RECIPES = {
    "fp8-tensor": "delayed",
    "fp8-current": "tensorwise",
    "fp8-block": "blockwise",
    "mxfp8": "mxfp8",
}
_DTYPES = {2: "bf16", 4: "fp32"}


def gathers_parameters(problem: Problem, layout: Layout) -> bool:
    """Whether weights are kept in the low precision; ``auto`` does so where it is allowed.

    Optimizer offload takes that beside delayed scaling alone (Megatron-LM ``validate_args``).
    """
    if problem.training.fp8_parameters is None and layout.offload:
        return problem.precision == "fp8-tensor"
    return problem.fp8_parameters


def precision(problem: Problem, layout: Layout) -> Iterator[Setting]:
    """Number format of the matrix products and of the weights."""
    gathers = gathers_parameters(problem, layout)
    recipe = FP8_RECIPES.get(problem.precision)
    fp4 = problem.precision == "nvfp4"
    words = flag("bf16")
    if recipe is not None:
        words = (*words, *flag("fp8-format", "hybrid"), *flag("fp8-recipe", recipe))
    elif fp4:
        words = (*words, *flag("fp4-format", "e2m1"))
    if gathers:
        words = (*words, *flag("fp4-param-gather" if fp4 else "fp8-param-gather"))
    reuses = gathers and recipe == "mxfp8"
    if reuses:
        words = (*words, *flag("reuse-grad-buf-for-mxfp8-param-ag"))
    yield setting(
        words,
        mixed_precision__bf16=True,
        mixed_precision__fp8="hybrid" if recipe else None,
        mixed_precision__fp8_recipe=recipe or "tensorwise",
        mixed_precision__fp8_param_gather=gathers and not fp4,
        mixed_precision__fp4="e2m1" if fp4 else None,
        mixed_precision__fp4_param_gather=gathers and fp4,
        mixed_precision__reuse_grad_buf_for_mxfp8_param_ag=reuses,
    )


def optimizer(problem: Problem, layout: Layout) -> Iterator[Setting]:
    """How the optimizer shares and stores its state, and in which format gradients are reduced."""
    training = problem.training
    shared = training.distributed_optimizer
    yield setting(
        flag("use-distributed-optimizer") if shared else (),
        ddp__use_distributed_optimizer=shared,
        optimizer__use_distributed_optimizer=shared,
    )
    yield setting(
        (*flag("overlap-grad-reduce"), *(flag("overlap-param-gather") if shared else ())),
        ddp__overlap_grad_reduce=True,
        ddp__overlap_param_gather=shared,
        optimizer__overlap_param_gather=shared,
    )
    yield from formats(problem, layout)


def formats(problem: Problem, layout: Layout) -> Iterator[Setting]:
    """Formats of gradients and moments."""
    training = problem.training
    aware = problem.precision_aware(layout.offload)
    gradient, moment = _DTYPES[training.gradient_bytes], _DTYPES[training.moment_bytes]
    yield setting(
        flag("use-precision-aware-optimizer") if aware else (),
        optimizer__use_precision_aware_optimizer=aware,
    )
    yield setting(
        (*flag("exp-avg-dtype", moment), *flag("exp-avg-sq-dtype", moment))
        if moment == "bf16"
        else (),
        optimizer__exp_avg_dtype=moment,
        optimizer__exp_avg_sq_dtype=moment,
    )
    words: tuple[str, ...] = ()
    if gradient == "bf16":
        words = flag("main-grads-dtype", "bf16") if aware else flag("grad-reduce-in-bf16")
    yield setting(
        words,
        optimizer__main_grads_dtype=gradient if aware else "fp32",
        ddp__grad_reduce_in_fp32=gradient == "fp32",
        mixed_precision__grad_reduce_in_fp32=gradient == "fp32",
    )


def recipe(problem: Problem, _: Layout) -> Iterator[Setting]:
    """Loss, dropout and the like: what costs memory or time."""
    training = problem.training
    fused = training.cross_entropy != "unfused"
    implementation = training.cross_entropy if fused else "native"
    words: tuple[str, ...] = ()
    if fused:
        words = flag("cross-entropy-loss-fusion")
        words += flag("cross-entropy-fusion-impl", "te") if implementation == "te" else ()
    yield setting(
        words,
        model__cross_entropy_loss_fusion=fused,
        model__cross_entropy_fusion_impl=implementation,
    )
    dropout = training.hidden_dropout
    yield setting(flag("hidden-dropout", dropout), model__hidden_dropout=dropout)
    fuses = training.fused_gradients
    yield setting(
        () if fuses else flag("no-gradient-accumulation-fusion"),
        model__gradient_accumulation_fusion=fuses,
    )
    if not training.fused_attention:
        yield setting(flag("attention-backend", "unfused"))
    if training.overlap_tensor_communication:
        yield setting(flag("tp-comm-overlap"), model__tp_comm_overlap=True)


__all__ = ["FP8_RECIPES", "formats", "gathers_parameters", "optimizer", "precision", "recipe"]
