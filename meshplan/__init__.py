"""meshplan: the best parallel layout for a large-model training run, with its proof.

==========================  ==========================================================
:func:`load`                read a scenario file
:func:`solve`               the best plan, or the proof that there is none
:func:`check`               judge one layout, with no solver
:class:`Plan`               a layout with its memory, step time and proof
:class:`Infeasible`         why nothing fits
:class:`Unknown`            a limit stopped the search before any plan
:class:`CheckReport`        what :func:`check` found
:func:`why`                 a layout against the optimum, term by term
:class:`WhyReport`          what :func:`why` found
:func:`diagnose`            why nothing fits, and what would help
:class:`Diagnosis`          what :func:`diagnose` found
:func:`limits`              how far each field can go before nothing fits
:class:`LimitsReport`       what :func:`limits` found
:func:`diff`                two results side by side
:class:`DiffReport`         what :func:`diff` found
:func:`memory`              the memory of one layout, rank by rank and item by item
:class:`MemoryReport`       what :func:`memory` found
:func:`place`               where the ranks of a plan lie: nodes, GPUs, files for launchers
:class:`PlacementReport`    what :func:`place` found
:func:`flops`               the training FLOPs of a model, part by part
:class:`FlopsReport`        what :func:`flops` found
:func:`calibrate`           the step-time model fitted to measured runs
:class:`CalibrationReport`  what :func:`calibrate` found
:func:`sweep`               a scenario over a grid of values
:class:`Sweep`              what :func:`sweep` found
:class:`InputError`         bad input, in words for people
==========================  ==========================================================

Importing the package imports none of it: each name comes from its home when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from meshplan.api import (
        calibrate,
        check,
        diagnose,
        diff,
        flops,
        limits,
        load,
        memory,
        place,
        solve,
        why,
    )
    from meshplan.scenarios import InputError, Scenario
    from meshplan.solver.calibrate.result import CalibrationReport
    from meshplan.solver.compare.diff import DiffReport
    from meshplan.solver.compare.why import WhyReport
    from meshplan.solver.diagnosis.result import Diagnosis
    from meshplan.solver.limits.results import LimitsReport
    from meshplan.solver.memory import MemoryReport
    from meshplan.solver.placement.report import PlacementReport
    from meshplan.solver.progress import Progress
    from meshplan.solver.report.flops import FlopsReport
    from meshplan.solver.results import CheckReport, Infeasible, Plan, Unknown
    from meshplan.sweeps.api import sweep
    from meshplan.sweeps.result import Sweep

__version__ = "0.1.0"

_HOMES = {
    "CalibrationReport": "meshplan.solver.calibrate.result",
    "CheckReport": "meshplan.solver.results",
    "Diagnosis": "meshplan.solver.diagnosis.result",
    "DiffReport": "meshplan.solver.compare.diff",
    "FlopsReport": "meshplan.solver.report.flops",
    "Infeasible": "meshplan.solver.results",
    "LimitsReport": "meshplan.solver.limits.results",
    "MemoryReport": "meshplan.solver.memory",
    "InputError": "meshplan.scenarios.errors",
    "PlacementReport": "meshplan.solver.placement.report",
    "Plan": "meshplan.solver.results",
    "Progress": "meshplan.solver.progress",
    "Scenario": "meshplan.scenarios",
    "Sweep": "meshplan.sweeps.result",
    "Unknown": "meshplan.solver.results",
    "WhyReport": "meshplan.solver.compare.why",
    "calibrate": "meshplan.api",
    "check": "meshplan.api",
    "diagnose": "meshplan.api",
    "diff": "meshplan.api",
    "flops": "meshplan.api",
    "limits": "meshplan.api",
    "load": "meshplan.api",
    "memory": "meshplan.api",
    "place": "meshplan.api",
    "solve": "meshplan.api",
    "why": "meshplan.api",
    "sweep": "meshplan.sweeps.api",
}


def __getattr__(name: str) -> Any:
    """Import a public name from its home when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module 'meshplan' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})


__all__ = [
    "CalibrationReport",
    "CheckReport",
    "Diagnosis",
    "DiffReport",
    "FlopsReport",
    "Infeasible",
    "InputError",
    "LimitsReport",
    "MemoryReport",
    "PlacementReport",
    "Plan",
    "Progress",
    "Scenario",
    "Sweep",
    "Unknown",
    "WhyReport",
    "__version__",
    "calibrate",
    "check",
    "diagnose",
    "diff",
    "flops",
    "limits",
    "load",
    "memory",
    "place",
    "solve",
    "sweep",
    "why",
]
