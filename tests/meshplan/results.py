"""A small scenario file, and answers made by hand, for tests of the command line."""

from __future__ import annotations

from pathlib import Path

import meshplan
from meshplan.solver.diagnosis.arithmetic import Finding
from meshplan.solver.diagnosis.result import Diagnosis
from meshplan.solver.repairs import Change, NoHelp, Repair
from meshplan.solver.results import CheckReport, Conflict, Infeasible, Plan, Proof, Unknown

ROOT = Path(__file__).resolve().parent.parent.parent
SMALL = """\
meshplan: 1
name: small
model: toy-moe
cluster: {preset: h100-hgx, gpus: 8}
workload: {seq_len: 4096, global_batch_size: 32}
"""


def small_file(folder: Path, extra: str = "", name: str = "small.yaml") -> str:
    """Path of a scenario file of 8 GPUs, with ``extra`` lines of YAML at its end."""
    path = folder / name
    path.write_text(SMALL + extra, "utf-8")
    return str(path)


def report(file: str, layout: str = "tp=2,ep=2") -> CheckReport:
    """What ``check`` says of a layout."""
    return meshplan.check(file, layout)


def plan(file: str, status: str = "optimal", layout: str = "tp=2,ep=2") -> Plan:
    """A plan with this layout, as if the search had found it."""
    judged = report(file, layout)
    assert judged.cost is not None
    step_s = judged.cost.time.step_us / 1e6
    proof = Proof(step_s, step_s, 0.0, 1.0)
    return Plan(judged.problem, status, judged.layout, judged.cost, proof)  # type: ignore[arg-type]


def infeasible(file: str) -> Infeasible:
    """A proof that nothing fits, for one reason."""
    conflict = Conflict(("heads-tp", "memory-capacity"), (), "it is too large", minimal=True)
    return Infeasible(report(file).problem, (conflict,), 0.25)


def diagnosis(file: str) -> Diagnosis:
    """Why nothing fits, with a repair that was tried, one that was not, and a lever without use."""
    found = plan(file)
    change = Change("cluster.gpus", 4, 8, "8 GPUs instead of 4")
    other = Change("workload.seq_len", 8192, 4096, "half the sequence")
    return Diagnosis(
        found.problem,
        "infeasible",
        "it is too large",
        1.0,
        findings=(Finding("memory-capacity", 128.0, 72.8, "GiB", "spread evenly"),),
        conflicts=(Conflict(("memory-capacity",), (), "it is too large", minimal=True),),
        repairs=(Repair("gpus", (change,), True, found), Repair("seq", (other,), False, None)),
        no_help=(NoHelp("offload", "it is on"),),
        cut_short=("repairs",),
    )


def unknown(file: str) -> Unknown:
    """No plan before the limit."""
    return Unknown(report(file).problem, bound=0.01, wall_s=1.0)
