"""How far a predicted step time can be trusted."""

from __future__ import annotations

from meshplan.constraints.problem import Problem

#: Attention that no fit covers.  On published runs of Qwen3-Next on GB200 the model is off
#: by a factor of 1.7 at 8K tokens to 6 at 64K (Megatron-Bridge, long-context card).
LINEAR_ATTENTION = frozenset(("gdn", "mamba"))


def error_band(problem: Problem) -> float | None:
    """Relative error of the predicted step time; None where nothing is known about it.

    That is so for models with linear attention (gated delta net, Mamba): their layers are a guess,
    and the band of the calibration says nothing about them.
    """
    if any(kind.attention in LINEAR_ATTENTION for kind in problem.kinds):
        return None
    return problem.calibration.error_band
