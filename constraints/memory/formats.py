"""Bytes per parameter and per saved activation element, by numeric format.

Source: Megatron-LM d98e8a64 ``dist_optimizer.md``, ``core/optimizer/distrib_optimizer.py``,
``core/optimizer/optimizer_config.py``; Transformer Engine quantised tensors.
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


def optimizer_bytes(problem: Problem, offload: int) -> float:
    """Bytes of optimizer state of one parameter that stay on the GPU, before sharding.

    Master weight and two moments.  ``offload`` percent of the state is on the host: all of it
    with the precision-aware optimizer, the moments only without (the fp32 master of
    ``HybridDeviceOptimizer`` stays on the GPU).
    """
    moments = 2.0 * problem.training.moment_bytes
    if problem.precision_aware(offload):
        return (4.0 + moments) * (100 - offload) / 100
    return 4.0 + moments * (100 - offload) / 100
