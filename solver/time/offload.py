"""What offload of activations adds to the time of a layer, in us.

Source: Megatron-LM d98e8a64 ``core/pipeline_parallel/fine_grained_activation_offload.py`` (copies
run on streams of their own beside the layers); 1.6 to 2 % of the step for 10 to 18 % of the memory
(Megatron-Bridge, fine-grained activation offload of DeepSeek-V3).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from meshplan.constraints.problem import QUANTUM_BYTES, Problem
from meshplan.solver.time.device import elementwise_bytes_per_us

#: A layer's forward pass takes one part in so many of its time, the backward pass the others.
_FORWARD_PART = 3


def transfers_us(problem: Problem, offloaded: Any) -> tuple[Any, Any]:
    """Time of the copies of ``offloaded`` quanta (an integer or an array) for one micro-batch.

    Returns
    -------
    copies
        What both copies take of the GPU's own memory bandwidth, at the rate of elementwise work:
        that makes about the 1.6 to 2 % that were measured where the link hides behind the layers.
    way
        One way over the link to the host.
    """
    bytes_ = offloaded * QUANTUM_BYTES
    memory, link = elementwise_bytes_per_us(problem), problem.node_type.host_link_gbps * 1e3
    # Whole bytes a microsecond keep this exact for integers and arrays alike.
    return -(-2 * bytes_ // max(1, round(memory))), -(-bytes_ // max(1, round(link)))


def with_transfers_us(
    layer: Any, copies: Any, way: Any, largest: Callable[[Any, Any], Any] = max
) -> Any:
    """Time of a layer whose activations go to the host in forward, and come back in backward.

    Copies slow the layer down by what they take of the memory bandwidth; what the link takes
    beyond the forward or the backward pass is waited for.  ``largest`` joins two such values,
    integers or arrays.
    """
    slowed = layer + copies
    forward = -(-slowed // _FORWARD_PART)
    return largest(forward, way) + largest(slowed - forward, way)
