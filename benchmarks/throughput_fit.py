"""Fit the identifiable parameters of the step-time model, on some rows, and judge others by them.

Ten parameters are identifiable from published runs; the others stay as they ship.  The fit
minimises the log error of the step time with a robust loss, so that a few odd rows do not decide
it, and with a weak pull to values that were known before, for what the rows of a split say nothing
about.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from benchmarks.throughput_scenario import Case

if TYPE_CHECKING:
    from meshplan.constraints.problem import Problem
    from meshplan.scenarios.calibration import Calibration


@dataclass(frozen=True)
class Fitted:
    """A fitted parameter: the bounds of the search, and what is believed without the rows.

    Attributes
    ----------
    prior
        Value that the fit is pulled to: never the shipped one, which these rows have made.
    spread
        Standard deviation of the pull, as a logarithm.
    """

    low: float
    high: float
    prior: float
    spread: float = 0.3


#: The first eight are pulled to the fit of other formulas that the model began with; the others to
#: 9.4 ms seen for a layer with TP 4 on H100 where 6 ms are the host's time of one, which leaves 680
#: us for each of its five collectives, and to the start of a kernel.
FITTED = {
    "gemm_bf16": Fitted(0.2, 0.95, 0.59),
    "gemm_fp8": Fitted(0.2, 0.95, 0.65),
    "attention_hopper": Fitted(0.2, 0.95, 0.57),
    "attention_blackwell": Fitted(0.2, 0.95, 0.69),
    "memory": Fitted(0.1, 0.9, 0.31),
    "expert_overlap": Fitted(0.0, 1.0, 0.66),
    "ultra_factor": Fitted(0.8, 1.8, 1.31),
    "fused_mlp": Fitted(0.1, 1.0, 0.46),
    "host_collective_us": Fitted(10.0, 2000.0, 680.0),
    "expert_gemm_us": Fitted(0.5, 40.0, 5.0, 1.0),
}
#: Log errors beyond this count less and less.
ROBUST_BEYOND = 0.1
SEEDS = 10


class MissingExtra(Exception):
    """What the fit needs is not installed."""


@dataclass(frozen=True)
class Split:
    """Rows to fit on and rows to judge, by their index; ``family`` is the kind of split."""

    family: str
    name: str
    train: tuple[int, ...]
    test: tuple[int, ...]


@dataclass(frozen=True)
class Outcome:
    """Fitted parameters of a split, and the predictions of its held-out rows in TFLOP/s."""

    split: Split
    parameters: dict[str, float] = field(default_factory=dict)
    predicted: dict[int, float] = field(default_factory=dict)


def splits(cases: Sequence[Case]) -> list[Split]:
    """Random halves of the layouts, one model left out, one GPU type left out.

    Rows in doubt are held out, never fitted on.
    """
    found = []
    sure = [case for case in cases if not case.doubt]
    layouts = sorted({(case.place, case.degrees) for case in sure}, key=repr)
    for seed in range(SEEDS):
        half = set(random.Random(seed).sample(layouts, len(layouts) // 2))
        found.append(_split("layouts", f"seed {seed}", cases, lambda i, h=half: (  # type: ignore[misc]
            cases[i].place, cases[i].degrees) not in h))  # fmt: skip
    for family, attribute in (("model", "model"), ("GPU type", "gpu")):
        for value in sorted({getattr(case, attribute) for case in sure}):
            found.append(_split(family, value, cases, lambda i, a=attribute, v=value: (  # type: ignore[misc]
                getattr(cases[i], a) == v)))  # fmt: skip
    return [one for one in found if one.train and one.test]


def _split(family: str, name: str, cases: Sequence[Case], held: Callable[[int], bool]) -> Split:
    test = tuple(i for i in range(len(cases)) if held(i))
    seen = set(test)
    train = (i for i, case in enumerate(cases) if not case.doubt and i not in seen)
    return Split(family, name, tuple(train), test)


class Clock:
    """Step times of cases under other parameters; equal cases are computed once."""

    def __init__(self, cases: Sequence[Case]) -> None:
        self.cases = cases
        self._known: dict[tuple[str, tuple[float, ...]], float] = {}
        self._read: dict[str, tuple[int, ...]] = {}

    def seconds(self, index: int, values: Sequence[float]) -> float:
        """Step time of a case, with these values of the fitted parameters."""
        case = self.cases[index]
        if case.key not in self._read:
            self._read[case.key] = self._parameters_of(case)
        key = (case.key, tuple(values[place] for place in self._read[case.key]))
        if key not in self._known:
            self._known[key] = self._step(case, values)
        return self._known[key]

    def _parameters_of(self, case: Case) -> tuple[int, ...]:
        """Which parameters a step time depends on: those whose two bounds change it."""
        found, shipped = [], defaults()
        for place, one in enumerate(FITTED.values()):
            before, after = shipped[:place], shipped[place + 1 :]
            if len({self._step(case, [*before, end, *after]) for end in (one.low, one.high)}) > 1:
                found.append(place)
        return tuple(found)

    @staticmethod
    def _step(case: Case, values: Sequence[float]) -> float:
        from meshplan.solver.time.step import step_time

        problem = replace(case.problem, calibration=calibration(case.problem, values))
        return step_time(problem, case.layout).step_us / 1e6

    def tflops(self, index: int, values: Sequence[float]) -> float:
        """Model TFLOP/s of a case under these values."""
        from meshplan.solver.judge import model_tflops_per_gpu

        case = self.cases[index]
        step_us = round(self.seconds(index, values) * 1e6)
        return model_tflops_per_gpu(case.problem, case.layout, step_us)

    def forget(self) -> None:
        """Drop the times, and what the terms of the model cache, which holds their problems."""
        self._known.clear()
        for name, module in list(sys.modules.items()):
            if name.startswith(("meshplan.solver.time", "meshplan.constraints")):
                for value in list(vars(module).values()):
                    clear = getattr(value, "cache_clear", None)
                    if clear is not None and getattr(value, "__module__", "") == name:
                        clear()


def defaults() -> list[float]:
    """The shipped values of the fitted parameters."""
    from meshplan.scenarios.calibration import default_calibration

    return [getattr(default_calibration().parameters, name) for name in FITTED]


def calibration(problem: Problem, values: Sequence[float]) -> Calibration:
    """The problem's calibration with these values of the fitted parameters."""
    return problem.calibration.with_parameters(dict(zip(FITTED, values, strict=True)))


def fit(clock: Clock, rows: Sequence[int]) -> list[float]:
    """Values of the fitted parameters that suit these rows.

    Raises
    ------
    MissingExtra
        If scipy is not installed.
    """
    try:
        import numpy as np
        from scipy.optimize import least_squares
    except ImportError:
        raise MissingExtra(
            "the fit needs scipy: pip install meshplan[calibrate], or run with --no-fit"
        ) from None
    measured = [np.log(clock.cases[i].tflops) for i in rows]

    priors = np.array([one.prior for one in FITTED.values()])
    spreads = np.array([one.spread for one in FITTED.values()])

    def residuals(values: Any) -> Any:
        shown = [float(value) for value in values]
        pull = np.log(np.maximum(values, 1e-3) / priors) * (ROBUST_BEYOND / spreads)
        times = [np.log(clock.tflops(i, shown)) for i in rows]
        return np.concatenate([np.array(times) - measured, pull])

    low, high = zip(*((one.low, one.high) for one in FITTED.values()), strict=True)
    found = least_squares(
        residuals, np.clip(priors, np.array(low) * 1.01, high), bounds=(low, high),
        loss="soft_l1", f_scale=ROBUST_BEYOND, diff_step=1e-2, x_scale=priors,
        xtol=1e-4, ftol=1e-4, max_nfev=25,
    )  # fmt: skip
    return [float(value) for value in found.x]


_CLOCK: Clock | None = None


def _start(cases: Sequence[Case]) -> None:
    global _CLOCK
    _CLOCK = Clock(cases)


def _outcome(split: Split) -> Outcome:
    assert _CLOCK is not None
    values = fit(_CLOCK, split.train)
    predicted = {i: _CLOCK.tflops(i, values) for i in split.test}
    _CLOCK.forget()
    return Outcome(split, dict(zip(FITTED, values, strict=True)), predicted)


def cross_validate(cases: Sequence[Case], workers: int = 2) -> list[Outcome]:
    """Fit on each split's training rows and predict its held-out ones; all rows first."""
    everything = tuple(range(len(cases)))
    sure = tuple(i for i in everything if not cases[i].doubt)
    wanted = [Split("all rows", "in sample", sure, everything), *splits(cases)]
    if workers <= 1:
        _start(cases)
        return [_outcome(one) for one in wanted]
    from concurrent.futures import ProcessPoolExecutor

    with ProcessPoolExecutor(workers, initializer=_start, initargs=(cases,)) as pool:
        return list(pool.map(_outcome, wanted))
