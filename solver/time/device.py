"""Rates that one GPU sustains, and the times of the basic operations on it.

All times are microseconds, sizes are elements, bytes or tokens of one GPU.  Sources: formulas and
fits in the calibration (``scenarios/calibrations``); kernel figures of DeepSeek DeepEP, cuDNN and
FlashAttention.
"""

from __future__ import annotations

from meshplan.constraints.problem import Problem
from meshplan.scenarios.calibration import Efficiencies

#: Bytes of one GEMM operand.
_OPERAND_BYTES = {"bf16": 2.0, "nvfp4": 0.56}
#: Cost of quantising one element of a GEMM input, relative to MXFP8.
_QUANTISE = {"bf16": 0.0, "fp8-tensor": 0.9, "fp8-current": 0.9, "fp8-block": 1.2}


def efficiencies(problem: Problem) -> Efficiencies:
    """Efficiencies in use: those of the problem's calibration."""
    return problem.calibration.parameters


def launch_slowdown(problem: Problem) -> float:
    """Host time over that of x86 cores: Grace cores launch more slowly."""
    return 1.2 if problem.node_type.multi_node_nvlink else 1.0


def _is_ultra(problem: Problem) -> bool:
    """B300 and GB300 sustain more than the data sheet's ratio to B200 and GB200."""
    return "300" in problem.node_type.gpu


def gemm_flops_per_us(problem: Problem, *, bf16: bool = False) -> float:
    """FLOPs per microsecond of large GEMMs in the compute precision (or forced to bf16)."""
    node, eff = problem.node_type, efficiencies(problem)
    ultra = eff.ultra_factor if _is_ultra(problem) else 1.0
    precision = "bf16" if bf16 else problem.precision
    if precision == "bf16":
        factor = eff.gemm_hopper_bf16_factor if node.arch == "hopper" else 1.0
        return node.bf16_tflops * 1e6 * min(0.95, eff.gemm_bf16 * factor * ultra)
    if precision == "nvfp4":
        peak = node.fp4_tflops or node.fp8_tflops or node.bf16_tflops
        return peak * 1e6 * min(0.95, eff.gemm_fp8 * eff.gemm_nvfp4_factor * ultra)
    factor = eff.gemm_blockwise_factor if precision == "fp8-block" else 1.0
    peak = node.fp8_tflops or node.bf16_tflops
    return peak * 1e6 * min(0.95, eff.gemm_fp8 * factor * ultra)


def stream_bytes_per_us(problem: Problem) -> float:
    """HBM bytes per microsecond that GEMM operands reach."""
    return problem.node_type.hbm_tbps * 1e6 * efficiencies(problem).memory_stream


def elementwise_bytes_per_us(problem: Problem) -> float:
    """HBM bytes per microsecond, of the bytes that the elementwise formulas count."""
    node, eff = problem.node_type, efficiencies(problem)
    factor = eff.memory_hopper_factor if node.arch != "blackwell" else 1.0
    return node.hbm_tbps * 1e6 * eff.memory * factor


def gemm_forward_us(
    problem: Problem, m: float, k: float, n: float, *, count: float = 1, bf16: bool = False
) -> float:
    """Forward time of ``count`` GEMMs (m x k) @ (k x n), quantisation of the input included."""
    width = 2.0 if bf16 else _OPERAND_BYTES.get(problem.precision, 1.0)
    compute = 2 * m * k * n / gemm_flops_per_us(problem, bf16=bf16)
    traffic = (k * n * width + m * k * width + 2 * m * n) / stream_bytes_per_us(problem)
    return count * (compute + traffic + _quantise_us(problem, m * k, bf16=bf16))


def gemm_backward_us(
    problem: Problem, m: float, k: float, n: float, *, count: float = 1, bf16: bool = False
) -> float:
    """Backward time (both gradients): the gradient buffer is read and written as well."""
    width = 2.0 if bf16 else _OPERAND_BYTES.get(problem.precision, 1.0)
    compute = 4 * m * k * n / gemm_flops_per_us(problem, bf16=bf16)
    elements = k * n * width + 2 * m * n * width + 2 * m * k + m * k * width + 4 * k * n
    traffic = elements / stream_bytes_per_us(problem)
    return count * (compute + traffic + _quantise_us(problem, m * n, bf16=bf16))


def _quantise_us(problem: Problem, elements: float, *, bf16: bool) -> float:
    if bf16 or not problem.is_fp8:
        return 0.0
    factor = _QUANTISE.get(problem.precision, 1.0) * _fused(problem)
    return factor * 4 * elements / elementwise_bytes_per_us(problem)


def _fused(problem: Problem) -> float:
    """Share of elementwise and quantisation traffic that fused expert kernels leave."""
    return efficiencies(problem).fused_mlp if problem.training.fused_grouped_mlp else 1.0


def elementwise_us(problem: Problem, bytes_: float) -> float:
    """Time of elementwise work that moves ``bytes_`` bytes."""
    return bytes_ * _fused(problem) / elementwise_bytes_per_us(problem)


def attention_flops_per_us(problem: Problem, head_dim: int, context: float, *, mla: bool) -> float:
    """FLOPs per microsecond of fused attention over a context of ``context`` tokens."""
    node, eff = problem.node_type, efficiencies(problem)
    blackwell = node.arch == "blackwell"
    rate = eff.attention_blackwell if blackwell else eff.attention_hopper
    if mla:
        rate *= eff.attention_mla_blackwell if blackwell else eff.attention_mla_hopper
    elif head_dim <= 64:
        rate *= 0.70
    elif head_dim >= 256:
        rate *= 0.85
    if problem.model.attention_sinks:
        rate *= 0.80
    rate *= eff.attention_kernels
    if _is_ultra(problem):
        rate *= eff.ultra_factor
    half_rate_context = 600 if blackwell else 400
    return node.bf16_tflops * 1e6 * min(0.95, rate) / (1 + half_rate_context / max(context, 1.0))
