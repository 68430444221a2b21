"""What gated-delta-net and Mamba-2 layers save: estimates from the tensors of the layers.

No published figure isolates them.  Sources: Megatron-LM d98e8a64 ``core/ssm/gated_delta_net.py``,
``core/ssm/mamba_mixer.py``; flash-linear-attention ``chunk_gated_delta_rule``; mamba-ssm
``mamba_split_conv1d_scan_combined``, which keeps its inputs and recomputes the rest.
"""

from __future__ import annotations

from meshplan.constraints.memory.formats import input_bytes
from meshplan.constraints.problem import Problem

#: Tokens of the chunks in which gated delta net keeps its recurrent state.
_GDN_CHUNK = 64
#: Tokens of the chunks in which Mamba-2 keeps its state (``mamba_chunk_size``).
_MAMBA_CHUNK = 128


def gdn_saved(problem: Problem, tp: int, tokens: int) -> float:
    """Bytes of one gated-delta-net layer without its norm, for ``tokens`` tokens.

    Projections, convolution output, normalised q and k, core output, gated-norm output (the
    input of the output linear), chunk states.
    """
    card = problem.model
    keys = card.gdn_key_heads * card.gdn_key_dim
    values = card.gdn_value_heads * card.gdn_value_dim
    per_token = 2.0 * (2 * keys + 2 * values + 2 * card.gdn_value_heads)
    per_token += 2 * (2 * keys + values)  # after the convolution
    per_token += 2 * values + input_bytes(problem) * values  # core output, gated norm output
    states = 4 * values * card.gdn_key_dim / _GDN_CHUNK
    return tokens / tp * (per_token + states)


def mamba_saved(problem: Problem, tp: int, tokens: int) -> float:
    """Bytes of one Mamba-2 mixer without its norm, for ``tokens`` tokens.

    The fused scan keeps the projection ``zxBCdt`` and its output; the chunk states in fp32; the
    gated norm its input and the inputs of the output linear.
    """
    card = problem.model
    inner = card.mamba_heads * card.mamba_head_dim
    states = card.mamba_groups * card.mamba_state
    per_token = 2.0 * (2 * inner + 2 * states + card.mamba_heads)
    per_token += 2 * inner + input_bytes(problem) * inner
    chunk_states = 4 * inner * card.mamba_state / _MAMBA_CHUNK
    return tokens / tp * (per_token + chunk_states)
