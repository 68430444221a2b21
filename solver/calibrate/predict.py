"""Step times of measured runs under other efficiencies, and which run depends on which of them.

A parameter vector holds the natural logarithm of each candidate's multiplier: 0 is the base.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from meshplan.scenarios.calibration import Calibration, Efficiencies
from meshplan.solver.calibrate.runs import Run
from meshplan.solver.time import attention, dispatch, ends, host, links, mlp, update
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
#: Step of a slope.  Terms are whole microseconds, so that a small step would see their rounding.
_STEP = 0.04
#: Multipliers, as logarithms, at which a run is asked whether it depends on a parameter at all.
_PROBES = (-0.3, 0.3)
#: No efficiency is further from its base than this factor, as a logarithm.
_FURTHEST = 3.0
#: The time functions remember their results, for each of the problems that a fit makes.
_REMEMBERING = (attention, dispatch, ends, host, links, mlp, update)


class Predictor:
    """Predictions for a set of runs.

    Attributes
    ----------
    runs
        The runs.
    base
        Calibration that multipliers start from.
    names
        Candidates that at least one run depends on.
    idle
        Candidates that none depends on.
    touched
        For each run and name, whether the run depends on it.
    log_measured
        Logarithm of the measured seconds per step.
    """

    def __init__(self, runs: Sequence[Run], base: Calibration) -> None:
        import numpy as np

        self.runs = tuple(runs)
        self.base = base
        self.log_measured = np.log([run.step_s for run in runs])
        possible = [name for name in CANDIDATES if getattr(base.parameters, name) > 0]
        zero = np.zeros(len(possible))
        self.names: tuple[str, ...] = tuple(possible)
        self._bounds(possible)
        rows = range(len(self.runs))
        start = self.log_seconds(zero, rows)
        columns = []
        for place in range(len(possible)):
            changed = np.zeros(len(self.runs), dtype=bool)
            for probe in _PROBES:
                theta = zero.copy()
                theta[place] = min(max(probe, self.lower[place]), self.upper[place])
                changed |= np.abs(self.log_seconds(theta, rows) - start) > 1e-5
            columns.append(changed)
        kept = [place for place, column in enumerate(columns) if column.any()]
        self.names = tuple(possible[place] for place in kept)
        self.idle = tuple(name for name in CANDIDATES if name not in self.names)
        self.touched: NDArray[np.bool_] = (
            np.array([columns[place] for place in kept]).T
            if kept
            else np.zeros((len(self.runs), 0), dtype=bool)
        )
        self._bounds(self.names)

    def _bounds(self, names: Sequence[str]) -> None:
        import numpy as np

        both = [_log_bounds(self.base.parameters, name) for name in names]
        self.lower: NDArray[np.float64] = np.array([low for low, _ in both])
        self.upper: NDArray[np.float64] = np.array([high for _, high in both])

    def parameters(self, theta: NDArray[np.float64]) -> Efficiencies:
        """The efficiencies that a parameter vector stands for."""
        base = self.base.parameters
        changes: dict[str, Any] = {}
        for name, log, low, high in zip(self.names, theta, self.lower, self.upper, strict=True):
            if log != 0.0:
                changes[name] = getattr(base, name) * math.exp(min(max(float(log), low), high))
        return base.model_copy(update=changes)

    def log_seconds(
        self, theta: NDArray[np.float64], rows: Sequence[int] | range
    ) -> NDArray[np.float64]:
        """Logarithm of the predicted seconds per step of some runs."""
        import numpy as np

        calibration = self.base.model_copy(update={"parameters": self.parameters(theta)})
        return np.array([_log_seconds(self.runs[row], calibration) for row in rows])

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


__all__ = ["CANDIDATES", "Predictor"]
