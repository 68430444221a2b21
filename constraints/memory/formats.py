"""Bytes per parameter and per saved activation element, by numeric format.

Source: Megatron-LM d98e8a64 ``dist_optimizer.md``, ``core/optimizer/distrib_optimizer.py``,
``core/optimizer/optimizer_config.py``, ``core/optimizer/cpu_offloading/hybrid_optimizer.py``;
Transformer Engine quantised tensors and ``FusedAdam``.
"""

from __future__ import annotations

from meshplan.constraints.problem import Problem

#: Bytes of one element kept in the compute precision, scales included (MXFP8: one byte of
#: scale for 32 elements; NVFP4: one for 16).
_INPUT_BYTES = {
    "bf16": 2.0,
    "fp8-tensor": 1.0,
    "fp8-current": 1.0,
    "fp8-block": 1.0 + 4 / 128,
    "mxfp8": 1.0 + 1 / 32,
    "nvfp4": 0.5 + 1 / 16,
}


def input_bytes(problem: Problem) -> float:
    """Bytes of one saved element of a linear layer's input."""
    return _INPUT_BYTES[problem.precision]


def weight_bytes(problem: Problem) -> float:
    """Bytes of one weight of a transformer layer, working copies included.

    bf16: 2.  Quantised primary weights: a row-wise and a column-wise copy.  Quantised compute
    over bf16 primary weights: 2 and both cached quantised copies.
    """
    if not problem.is_fp8:
        return 2.0
    copies = 2 * input_bytes(problem)
    return copies if problem.fp8_parameters else 2.0 + copies


def gradient_bytes(problem: Problem) -> int:
    """Bytes of one element of the gradient buffer."""
    return problem.training.gradient_bytes


def master_bytes(problem: Problem, offload: int) -> float:
    """Bytes of the master copy of one weight on the GPU, before sharding.

    4 in fp32; 2 where the precision-aware optimizer keeps only what the bf16 weight lacks.
    """
    aware = problem.precision_aware(offload)
    return 2.0 if aware and offload == 0 and problem.param_remainders else 4.0


def optimizer_bytes(problem: Problem, offload: int) -> float:
    """Bytes of optimizer state of one parameter that stay on the GPU, before sharding.

    Master weight and two moments.  ``offload`` percent of the state is on the host: all of it
    with the precision-aware optimizer, the moments only without (the fp32 master of
    ``HybridDeviceOptimizer`` stays on the GPU).
    """
    moments, master = 2.0 * problem.training.moment_bytes, master_bytes(problem, offload)
    if problem.precision_aware(offload):
        return (master + moments) * (100 - offload) / 100
    return master + moments * (100 - offload) / 100


def host_optimizer_bytes(problem: Problem, offload: int) -> float:
    """Bytes of host memory of one parameter whose state is offloaded, before sharding.

    ``HybridDeviceOptimizer`` keeps a pinned fp32 copy of the weight and of its gradient beside
    the two fp32 moments.
    """
    return 16.0 * offload / 100


def update_bytes(problem: Problem, offload: int) -> tuple[float, float]:
    """Bytes of one owned parameter that exist only during the optimizer step.

    Returns
    -------
    own, other
        For the parameters that are being updated, and for those of the other group (dense or
        routed experts: Megatron-Core updates one after the other).

    Notes
    -----
    ``FusedAdam`` casts moments below fp32 to fp32 for a whole group of parameters (Transformer
    Engine pull requests 1640 and 2551; arXiv 2603.07685).  Without the precision-aware optimizer a
    bf16 gradient shard is copied to fp32, for both groups before either is updated
    (``distrib_optimizer.py`` ``_copy_model_grads_to_main_grads``).
    """
    on_gpu = (100 - offload) / 100
    if problem.precision_aware(offload):
        casts = 8.0 * on_gpu if problem.training.moment_bytes < 4 else 0.0
        return casts, 0.0
    copies = 4.0 * on_gpu if problem.training.gradient_bytes < 4 else 0.0
    return copies, copies
