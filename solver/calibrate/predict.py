"""Step times of measured runs under other efficiencies, and which run depends on which of them.

A parameter vector holds natural logarithms: first of a common factor on all efficiencies, then of
a multiplier of each candidate beside it.  0 is the base.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from meshplan.scenarios.calibration import Calibration, Efficiencies
from meshplan.solver.calibrate.runs import Run
from meshplan.solver.time import attention, dispatch, ends, host, launches, links, mlp, update
from meshplan.solver.time.step import step_time

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Efficiencies that a user's runs may tell.  The others multiply one of these, or are a matter of
#: kernels and framework rather than of a cluster.
CANDIDATES = (
    "gemm_bf16", "gemm_fp8", "attention_hopper", "attention_blackwell", "memory",
    "host_moe_layer_ms", "nvlink", "nic_dispatch", "nic_hybridep", "expert_overlap",
    "tensor_overlap", "ultra_factor", "fused_mlp",
)  # fmt: skip
#: Name of the common factor, the first of a parameter vector.
OVERALL = "overall"
#: What the common factor scales: shares of a peak rise with it, times of the host and of starts
#: fall.  Factors on one of these and shares that overlap hides stay.
SHARED = {
    "gemm_bf16": 1, "gemm_fp8": 1, "attention_hopper": 1, "attention_blackwell": 1, "memory": 1,
    "memory_stream": 1, "nvlink": 1, "nic_dispatch": 1, "nic_hybridep": 1,
    "host_moe_layer_ms": -1, "host_collective_us": -1, "expert_gemm_us": -1,
}  # fmt: skip
#: Step of a slope.  Terms are whole microseconds, so that a small step would see their rounding.
_STEP = 0.04
#: Multipliers, as logarithms, at which a run is asked whether it depends on a parameter at all.
_PROBES = (-0.3, 0.3)
#: No efficiency is further from its base than this factor, as a logarithm.
_FURTHEST = 3.0
#: Predictions that are remembered: a solver asks for the same ones again.
_MOST_KNOWN = 20_000
#: The time functions remember their results, for each of the problems that a fit makes.
_REMEMBERING = (attention, dispatch, ends, host, launches, links, mlp, update)


class Predictor:
    """Predictions for a set of runs.

    Attributes
    ----------
    runs
        The runs.
    base
        Calibration that multipliers start from.
    names
        ``overall``, and the candidates that at least one run depends on.
    idle
        Candidates that none depends on.
    touched
        For each run and name, whether the run depends on it.
    lower, upper
        Limits of each logarithm.
    log_measured
        Logarithm of the measured seconds per step.
    """

    def __init__(self, runs: Sequence[Run], base: Calibration) -> None:
        import numpy as np

        self.runs = tuple(runs)
        self.base = base
        self._known: dict[tuple[int, Efficiencies], float] = {}
        self.log_measured = np.log([run.step_s for run in runs])
        possible = [name for name in CANDIDATES if getattr(base.parameters, name) > 0]
        self._take([OVERALL, *possible])
        zero = np.zeros(len(self.names))
        rows = range(len(self.runs))
        start = self.log_seconds(zero, rows)
        columns = []
        for place in range(len(self.names)):
            changed = np.zeros(len(self.runs), dtype=bool)
            for probe in _PROBES:
                theta = zero.copy()
                theta[place] = min(max(probe, self.lower[place]), self.upper[place])
                changed |= np.abs(self.log_seconds(theta, rows) - start) > 1e-5
            columns.append(changed)
        kept = [place for place, column in enumerate(columns) if place == 0 or column.any()]
        self.touched: NDArray[np.bool_] = np.array([columns[place] for place in kept]).T
        self._take([self.names[place] for place in kept])
        self.idle = tuple(name for name in CANDIDATES if name not in self.names)

    def _take(self, names: Sequence[str]) -> None:
        import numpy as np

        self.names: tuple[str, ...] = tuple(names)
        single = [_log_bounds(self.base.parameters, name) for name in names[1:]]
        both = [(-_FURTHEST, _FURTHEST), *single]
        self.lower: NDArray[np.float64] = np.array([low for low, _ in both])
        self.upper: NDArray[np.float64] = np.array([high for _, high in both])

    def parameters(self, theta: NDArray[np.float64]) -> Efficiencies:
        """The efficiencies that a parameter vector stands for, each within its limits."""
        base = self.base.parameters
        logs = {name: sign * float(theta[0]) for name, sign in SHARED.items()}
        for name, log in zip(self.names[1:], theta[1:], strict=True):
            logs[name] = logs.get(name, 0.0) + float(log)
        changes: dict[str, Any] = {}
        for name, log in logs.items():
            value = getattr(base, name)
            if log != 0.0 and value > 0:
                low, high = _log_bounds(base, name)
                changes[name] = value * math.exp(min(max(log, low), high))
        return base.model_copy(update=changes)

    def groups(self, rows: Sequence[int] | range) -> list[list[int]]:
        """Some runs by model, cluster and layout: places in ``rows``."""
        found: dict[object, list[int]] = {}
        for place, row in enumerate(rows):
            found.setdefault(self.runs[row].group, []).append(place)
        return list(found.values())

    def log_seconds(
        self, theta: NDArray[np.float64], rows: Sequence[int] | range
    ) -> NDArray[np.float64]:
        """Logarithm of the predicted seconds per step of some runs."""
        import numpy as np

        calibration = self.base.model_copy(update={"parameters": self.parameters(theta)})
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        result = np.zeros(len(rows))
        for index, row in enumerate(rows):
            key = (row, calibration.parameters)
            if key not in self._known:
                self._known[key] = _log_seconds(self.runs[row], calibration)
            result[index] = self._known[key]
        return result

    def slopes(
        self,
        theta: NDArray[np.float64],
        rows: Sequence[int] | range,
        columns: Sequence[int],
        at: NDArray[np.float64] | None = None,
    ) -> NDArray[np.float64]:
        """Derivatives of :meth:`log_seconds`; ``at`` is its value, if it is known."""
        import numpy as np

        start = self.log_seconds(theta, rows) if at is None else at
        result = np.zeros((len(rows), len(columns)))
        for column, place in enumerate(columns):
            step = _STEP if theta[place] + _STEP <= self.upper[place] else -_STEP
            moved = theta.copy()
            moved[place] += step
            known = [index for index, row in enumerate(rows) if self.touched[row, place]]
            there = self.log_seconds(moved, [rows[index] for index in known])
            result[known, column] = (there - start[known]) / step
        _forget()
        return result


def _log_seconds(run: Run, calibration: Calibration) -> float:
    problem = dataclasses.replace(run.problem, calibration=calibration)
    return math.log(step_time(problem, run.layout).step_us / 1e6)


@lru_cache(maxsize=256)
def _log_bounds(parameters: Efficiencies, name: str) -> tuple[float, float]:
    """Least and largest logarithm of a multiplier that keep an efficiency allowed."""
    base, low, high = getattr(parameters, name), 0.0, math.inf
    for limit in Efficiencies.model_fields[name].metadata:
        low = max(low, float(getattr(limit, "gt", None) or getattr(limit, "ge", None) or 0.0))
        most = getattr(limit, "le", None) or getattr(limit, "lt", None)
        high = min(high, float(most)) if most is not None else high
    least = math.log(low / base) if low > 0 else -_FURTHEST
    most = math.log(high / base) if math.isfinite(high) else _FURTHEST
    return max(least, -_FURTHEST), min(most, _FURTHEST)


def _forget() -> None:
    """Empty what the time functions remember: a fit asks for thousands of problems, once each."""
    for module in _REMEMBERING:
        for value in vars(module).values():
            if hasattr(value, "cache_clear"):
                value.cache_clear()


__all__ = ["CANDIDATES", "OVERALL", "SHARED", "Predictor"]
