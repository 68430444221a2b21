"""The step time of a run from its log: without warm-up and interruptions, the median."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median, median_low

from meshplan.scenarios.errors import InputError
from meshplan.scenarios.importers.megatron_log import LogStep, TrainingLog

#: Steps at the start that are left out, and the most of them as a share of a short log.
WARM_UP = 5
_MOST_WARM_UP = 1 / 3
#: A step this much slower or faster than the median is an interruption: in units of the spread, and
#: at least this share.
_OUTLIER, _LEAST_OUTLIER = 5.0, 0.05
#: Spread and drift from which on a measurement is doubtful.
_WIDE, _DRIFT = 0.03, 0.03
#: Median absolute deviation of a normal distribution, in standard deviations.
_MEDIAN_SHARE = 0.6745


@dataclass(frozen=True)
class SteadyStep:
    """A measured step time.

    Attributes
    ----------
    step_s
        Median seconds per step.
    spread
        Relative standard deviation of the steps, from their median deviation.
    kept, warm_up, outliers, faulty
        Lines of the log that were taken, and that were left out: at the start, as interruptions,
        for steps without an update or of another batch.
    skipped, nan
        Iterations without an update, and with a NaN, in the whole log.
    tflops
        Median TFLOP/s of a GPU as the log has it, or None.
    batch
        Global batch size as the log has it, or None.
    notes
        What makes the figure doubtful, in sentences.
    """

    step_s: float
    spread: float
    kept: int
    warm_up: int
    outliers: int
    faulty: int
    skipped: int
    nan: int
    tflops: float | None
    batch: int | None
    notes: tuple[str, ...]


def steady_step(log: TrainingLog, skip: int | None = None) -> SteadyStep:
    """The step time of a run.

    Parameters
    ----------
    log
        What was logged.
    skip
        Steps at each start of the training that are left out; by default 5, or a third of a short
        log.

    Raises
    ------
    InputError
        If nothing is left.
    """
    notes = []
    warm, cold = _warm(log.steps, skip)
    if not warm and skip is None:
        warm, cold = [log.steps[-1]], cold[:-1]
        notes.append("the only line left has the warm-up in it: log more often or run longer")
    if not warm:
        raise InputError(
            f"nothing is left after the first {skip} steps: the log has {len(log.steps)} lines on "
            f"steps up to {max(step.iteration for step in log.steps)}",
            advice="skip fewer, or log more often.",
            file=log.source,
        )
    sound = [step for step in warm if not step.faulty]
    if warm and not sound:
        notes.append(
            "each line has iterations without an update or with a NaN: the step time is theirs, "
            "not that of the training"
        )
        sound = warm
    batch = next((step.batch for step in reversed(sound) if step.batch is not None), None)
    of_batch = [step for step in sound if step.batch in (batch, None)]
    if len(of_batch) < len(sound):
        notes.append(f"the global batch grew in this log; only steps with {batch} count")
    kept = _without_outliers(of_batch)
    times = [step.step_s for step in kept]
    middle = median(times)
    spread = median(abs(time - middle) for time in times) / _MEDIAN_SHARE / middle
    rates = [step.tflops for step in kept if step.tflops is not None]
    notes += _doubts(times, middle, spread, len(of_batch))
    return SteadyStep(
        step_s=middle,
        spread=spread,
        kept=len(kept),
        warm_up=len(cold),
        outliers=len(of_batch) - len(kept),
        faulty=len(warm) - len(of_batch),
        skipped=sum(step.skipped for step in log.steps),
        nan=sum(step.nan for step in log.steps),
        tflops=median(rates) if rates else None,
        batch=batch,
        notes=tuple(notes),
    )


def _warm(steps: Sequence[LogStep], skip: int | None) -> tuple[list[LogStep], list[LogStep]]:
    """Lines whose steps all come after the warm-up of their start of the training; the others."""
    warm: list[LogStep] = []
    cold: list[LogStep] = []
    for part in sorted({step.part for step in steps}):
        own = [step for step in steps if step.part == part]
        gaps = [after.iteration - before.iteration for before, after in pairwise(own)]
        if not gaps and skip != 0:  # how many steps it counts, and which, is not known
            cold += own
            continue
        # A line counts the steps since the line before; the first, those since the start.
        first = max(0, own[0].iteration - (median_low(gaps) if gaps else 1))
        total = own[-1].iteration - first
        left_out = min(WARM_UP, int(total * _MOST_WARM_UP)) if skip is None else skip
        before = first
        for step in own:
            (warm if before >= first + left_out else cold).append(step)
            before = step.iteration
    return warm, cold


def _without_outliers(steps: Sequence[LogStep]) -> list[LogStep]:
    """Steps without those that an evaluation, a checkpoint or a stall made slow."""
    times = [step.step_s for step in steps]
    middle = median(times)
    spread = median(abs(time - middle) for time in times) / _MEDIAN_SHARE
    most = max(_OUTLIER * spread, _LEAST_OUTLIER * middle)
    return [step for step in steps if abs(step.step_s - middle) <= most]


def _doubts(times: Sequence[float], middle: float, spread: float, before: int) -> list[str]:
    notes = []
    if len(times) < 5:
        said = "1 line is" if len(times) == 1 else f"{len(times)} lines are"
        notes.append(f"only {said} left to measure by")
    if spread > _WIDE:
        notes.append(f"the steps spread by {spread:.1%}: something disturbs the run")
    if before - len(times) > before / 5:
        notes.append(f"{before - len(times)} of {before} lines are far from the median")
    half = len(times) // 2
    if half >= 3:
        drift = median(times[half:]) / median(times[:half]) - 1
        if abs(drift) > _DRIFT:
            notes.append(f"the second half is {drift:+.1%} slower than the first: the run drifts")
    if middle < 0.02:
        notes.append(f"a step of {middle * 1e3:.1f} ms is too short for this model of step times")
    return notes


__all__ = ["WARM_UP", "SteadyStep", "steady_step"]
