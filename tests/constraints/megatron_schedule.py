"""Megatron-Core's pipeline schedules, pass by pass, written apart from the project's own replay.

Source: Megatron-LM d98e8a64 ``core/pipeline_parallel/schedules.py``: plain 1F1B without virtual
stages, else interleaved 1F1B with groups of ``pp`` micro-batches.
"""

from __future__ import annotations

#: Forward (F) or backward (B), chunk of the rank, micro-batch.
Pass = tuple[str, int, int]


def passes(pp: int, vpp: int, ga: int, rank: int, extra: int = 0) -> list[Pass]:
    """What a rank runs, in order: warm-up, steady state, drain."""
    groups = [range(start, min(start + pp, ga)) for start in range(0, ga, pp)]
    forward = [("F", chunk, mb) for group in groups for chunk in range(vpp) for mb in group]
    backward = [
        ("B", chunk, mb) for group in groups for chunk in reversed(range(vpp)) for mb in group
    ]
    ahead = 2 * (pp - rank - 1) + (vpp - 1) * pp + extra if vpp > 1 else pp - rank - 1
    ahead = min(ahead, len(forward))
    events = forward[:ahead]
    for f, b in zip(forward[ahead:], backward, strict=False):
        events += [f, b]
    return events + backward[len(forward) - ahead :]


def awaited(stage: int, stages: int, kind: str, micro_batch: int) -> list[Pass]:
    """Passes, by stage instead of chunk, that a pass of a stage needs the result of."""
    if kind == "F":
        return [("F", stage - 1, micro_batch)] if stage else []
    after = [("B", stage + 1, micro_batch)] if stage + 1 < stages else []
    return [("F", stage, micro_batch), *after]
