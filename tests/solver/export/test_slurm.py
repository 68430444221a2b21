"""The batch script: what it asks Slurm for, and what a rank sees."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from meshplan.solver.export.plan_file import StoredPlan
from meshplan.solver.export.slurm import slurm
from meshplan.solver.placement.slurm import node_sizes
from meshplan.topologies import Cluster, build_cluster
from tests.solver.export.plans import plan

#: A rack of which the layout leaves out what fills no group of 32.
PART = {"gpus": None, "domains": [72], "use": "best"}


def _requests(text: str) -> list[str]:
    return [
        line.removeprefix("#SBATCH ") for line in text.splitlines() if line.startswith("#SBATCH")
    ]


def _on(exported: StoredPlan, cluster: Cluster) -> StoredPlan:
    return replace(exported, problem=replace(exported.problem, cluster=cluster))


def test_nodes_of_eight(tmp_path: Path) -> None:
    """Tests 256 GPUs in nodes of 8: every node is an NVLink domain, so there is no segment."""
    assert _requests(slurm(plan(tmp_path, "published"), "test")) == [
        "--job-name=deepseek",
        "--nodes=32",
        "--ntasks-per-node=8",
        "--gpus-per-node=8",
        "--exclusive",
    ]


def test_racks_become_segments(tmp_path: Path) -> None:
    """Tests 64 GPUs of an NVL72 rack: 16 nodes of 4 that must share it."""
    text = slurm(plan(tmp_path, "hybridep and graphs"), "test")
    assert _requests(text)[1:] == [
        "--nodes=16",
        "--ntasks-per-node=4",
        "--gpus-per-node=4",
        "--exclusive",
        "--segment=16",
    ]
    assert "#   ranks 0 to 63: 64 GPUs on 16 nodes" in text.splitlines()


@pytest.mark.parametrize(
    ("preset", "domains", "sizes"),
    [
        ("h100-hgx", [8, 6], [8, 6]),
        ("gb200-nvl72", [72, 68], [4] * 35),
        ("gb200-nvl72", [10, 10], [4, 4, 2, 4, 4, 2]),
    ],
)
def test_sizes_of_nodes(preset: str, domains: list[int], sizes: list[int]) -> None:
    """Tests domains that end within a node."""
    assert node_sizes(build_cluster(preset, domains=domains)) == sizes


def test_unequal_domains_are_told(tmp_path: Path) -> None:
    """Tests that a script for unequal racks says what its ranks count on."""
    cluster = build_cluster("gb200-nvl72", domains=[36, 24, 4])
    text = slurm(_on(plan(tmp_path, "hybridep and graphs"), cluster), "test")
    assert not any("--segment" in one for one in _requests(text)), "they share no more than a node"
    lines = text.splitlines()
    assert "#   ranks 36 to 59: 24 GPUs on 6 nodes" in lines
    said = "# They differ, so no --segment asks for all of that: name the nodes in this order."
    assert said in lines


def test_a_part_of_the_cluster_is_asked_for(tmp_path: Path) -> None:
    """Tests a plan that leaves GPUs idle: 64 of the 72 of a rack, so 16 of its 18 nodes."""
    exported = plan(tmp_path, "hybridep and graphs", cluster=PART)
    assert exported.layout.gpus == 64
    requests = _requests(slurm(exported, "test"))
    assert "--nodes=16" in requests and "--segment=16" in requests


def _ran(text: str, tmp_path: Path, *command: str) -> list[str]:
    """What the command prints when the script runs: ``srun`` starts one task, its seventh."""
    programs = tmp_path / "bin"
    programs.mkdir()
    stubs = {
        "scontrol": 'echo "$3" | tr , "\\n"',
        "srun": 'echo "srun $1 $2"; [[ -z ${SLURM_HOSTFILE:-} ]] || uniq -c "$SLURM_HOSTFILE"\n'
        'shift 2; SLURM_PROCID=7 SLURM_LOCALID=3 SLURM_NTASKS=64 exec "$@"',
    }
    for name, line in stubs.items():
        (programs / name).write_text(f"#!/usr/bin/env bash\n{line}\n", "utf-8")
        (programs / name).chmod(0o755)
    script = tmp_path / "plan.sbatch"
    script.write_text(text, "utf-8")
    run = subprocess.run(
        ["bash", str(script), *command],
        env={"PATH": f"{programs}:{os.environ['PATH']}", "SLURM_JOB_NODELIST": "n4,n9"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    return run.stdout.splitlines()


def test_ranks_get_what_they_need(tmp_path: Path) -> None:
    """Tests the script itself: rank, world, master and variables in the started command."""
    text = slurm(plan(tmp_path, "hybridep and graphs"), "test")
    show = "echo $RANK $LOCAL_RANK $WORLD_SIZE $MASTER_ADDR $MASTER_PORT $USE_MNNVL $1"
    assert _ran(text, tmp_path, "bash", "-c", show, "x", "a  b") == [
        "srun --kill-on-bad-exit=1 --distribution=block",
        "7 3 64 n4 29500 1 a b",
    ]


def test_a_job_without_a_command_fails(tmp_path: Path) -> None:
    """Nodes that were waited for and start nothing are no success."""
    script = tmp_path / "plan.sbatch"
    script.write_text(slurm(plan(tmp_path, "hybridep and graphs"), "test"), "utf-8")
    run = subprocess.run(["bash", str(script)], capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert run.stderr == "usage: sbatch THIS_FILE COMMAND [ARGUMENT...]\n"


def test_named_nodes_keep_their_order(tmp_path: Path) -> None:
    """Tests that ranks follow the plan's order of nodes, which Slurm would sort."""
    exported = plan(tmp_path, "hybridep and graphs")
    names = tuple(f"n{number}" for number in range(16, 0, -1))
    cluster = replace(exported.problem.cluster, node_names=names)
    text = slurm(_on(exported, cluster), "test")
    assert f"--nodelist={','.join(names)}" in _requests(text)
    lines = _ran(text, tmp_path, "bash", "-c", "echo $MASTER_ADDR")
    assert lines[0] == "srun --kill-on-bad-exit=1 --distribution=arbitrary"
    assert [line.split() for line in lines[1:17]] == [["4", name] for name in names]
    assert lines[17] == "n16", "where rank 0 is"
