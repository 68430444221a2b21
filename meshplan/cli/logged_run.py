"""Whether a training log can be a run of a scenario: peak, prediction, the TFLOP/s it prints."""

from __future__ import annotations

from meshplan.scenarios import Scenario
from meshplan.scenarios.errors import InputError
from meshplan.scenarios.importers.megatron_log import TrainingLog
from meshplan.scenarios.importers.steady_steps import SteadyStep
from meshplan.solver.calibrate.plausible import (
    achieved_tflops,
    beyond_peak,
    far_from_predicted,
    logged_rate,
)
from meshplan.solver.check import check
from meshplan.solver.judge import peak_tflops
from meshplan.solver.results import CheckReport


def objections(
    scenario: Scenario, layout: str, log: TrainingLog, step: SteadyStep
) -> tuple[str, ...]:
    """What speaks against a row of measured runs, in sentences.

    Raises
    ------
    InputError
        If the log cannot be of the scenario: faster than the GPU's peak, far from anything
        predicted, or with TFLOP/s that are those of another model.
    """
    report = check(scenario, layout or None)
    problem, whole = report.problem, report.layout
    said = (
        f"a step of {step.step_s:.4g} s for {whole.gbs} sequences of {problem.seq_len} tokens of "
        f"{problem.model.name} on {problem.gpus} GPUs"
    )
    advice = "give the scenario of this run: its model, sequence length, batch and GPUs."
    peak = beyond_peak(problem, whole, step.step_s)
    if peak is not None:
        rate = achieved_tflops(problem, whole, step.step_s)
        raise InputError(
            f"{said} is {rate:,.0f} model TFLOP/s of one GPU, more than {peak}",
            advice=advice,
            file=log.source,
        )
    if report.cost is not None:
        far = far_from_predicted(step.step_s, report.cost.time.step_us / 1e6)
        if far is not None:
            raise InputError(f"{said} is {far} than predicted", advice=advice, file=log.source)
    illegal = (
        f"the layout is illegal, and calibrate will refuse it: {one.rule}: {one.text}"
        for one in report.violations[:3]
    )
    return (*_other_rate(report, step, log.source), *illegal)


def _other_rate(report: CheckReport, step: SteadyStep, source: str) -> list[str]:
    """Whether the TFLOP/s that the log prints are those of its steps."""
    if step.tflops is None:
        return []
    problem, batch = report.problem, step.batch or report.layout.gbs
    name = problem.model.name
    label, peak = peak_tflops(problem)
    if step.tflops > peak:
        return [
            f"the log says {step.tflops:,.1f} TFLOP/s per GPU, more than the {label} peak of "
            f"{peak:g}: whatever it counts, it is not compared with the scenario's model"
        ]
    rate = logged_rate(problem, report.layout, step.step_s, batch, step.tflops)
    if not rate.doubtful:
        return []
    counted = f"{rate.least:,.0f}"
    if f"{rate.most:,.0f}" != counted:
        counted += f" to {rate.most:,.0f}, by the way of counting"
    text = (
        f"the log says {rate.logged:,.1f} TFLOP/s per GPU, but its steps of {step.step_s:.4g} s "
        f"are {counted}, for {batch} sequences of {problem.seq_len} tokens of {name} on "
        f"{problem.gpus} GPUs: {rate.factor:.1f} times off"
    )
    if rate.another:
        raise InputError(
            f"{text}; the log is of another model, sequence length or number of GPUs",
            advice="give the scenario of this run.",
            file=source,
        )
    return [f"{text}; look whether model, sequence length and GPUs are those of this run"]


__all__ = ["objections"]
