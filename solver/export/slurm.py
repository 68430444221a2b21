"""A batch script for Slurm: nodes, tasks, NVLink domains as segments, and the order of ranks."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from meshplan.scenarios.errors import one_line
from meshplan.solver.export.documents import exports, head
from meshplan.solver.export.plan_file import StoredPlan
from meshplan.solver.placement.place import Placement, place
from meshplan.solver.placement.slurm import node_sizes, task_options
from meshplan.topologies import Cluster

#: What sets up a rank of a job step as torch.distributed reads it.
_RANK = "RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS"


def slurm(plan: StoredPlan, written_by: str) -> str:
    """A script for ``sbatch``; what is to run comes behind it: ``sbatch SCRIPT python ...``."""
    placed = place(plan.problem, plan.layout)
    cluster = placed.cluster
    lines = [
        "#!/usr/bin/env bash",
        *_requests(plan.problem.name, placed),
        *head(plan, written_by),
        *_ranks(cluster),
        "set -euo pipefail",
        # Without it the job would end at once as a success, after a wait for all its nodes.
        "if [[ $# -eq 0 ]]; then",
        '    echo "usage: sbatch THIS_FILE COMMAND [ARGUMENT...]" >&2',
        "    exit 2",
        "fi",
        *exports(plan),
        *_hostfile(placed),
        'MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)'
        if not cluster.node_names
        else f"MASTER_ADDR={cluster.node_names[0]}",
        "export MASTER_ADDR MASTER_PORT=${MASTER_PORT:-29500}",
        f"srun --kill-on-bad-exit=1 --distribution={_distribution(cluster)} \\",
        f'    bash -c \'{_RANK} exec "$@"\' rank "$@"',
        "",
    ]
    return "\n".join(lines)


def _distribution(cluster: Cluster) -> str:
    """Ranks follow the nodes; where these have names, in the order of the plan."""
    return "arbitrary" if cluster.node_names else "block"


def _requests(name: str, placed: Placement) -> Iterator[str]:
    cluster = placed.cluster
    yield f"#SBATCH --job-name={one_line(name)}"
    yield from (f"#SBATCH {option}" for option in task_options(cluster))
    yield f"#SBATCH --gpus-per-node={max(node_sizes(cluster))}"
    yield "#SBATCH --exclusive"
    if cluster.node_names:
        yield f"#SBATCH --nodelist={','.join(cluster.node_names)}"
    elif placed.segment_nodes > 1:
        yield f"#SBATCH --segment={placed.segment_nodes}"


def _ranks(cluster: Cluster) -> Iterator[str]:
    """Which ranks the plan puts into which NVLink domain, equal ones together."""
    whole = cluster.node_type.gpus_per_node
    yield "# Ranks follow the nodes; the plan counts on these NVLink domains:"
    rank = 0
    for gpus, run in groupby(cluster.domains):
        count = len(list(run))
        nodes = -(-gpus // whole)
        each = f"{gpus} GPUs on {nodes} node{'s' * (nodes > 1)}"
        if count == 1:
            yield f"#   ranks {rank} to {rank + gpus - 1}: {each}"
        else:
            yield f"#   ranks {rank} to {rank + count * gpus - 1}: {count} domains of {each}"
        rank += count * gpus
    if len(set(cluster.domains)) > 1 and not cluster.node_names:
        yield "# They differ, so no --segment asks for all of that: name the nodes in this order."


def _hostfile(placed: Placement) -> Iterator[str]:
    """A line for each rank with its node: Slurm itself sorts the names of a list."""
    if not placed.cluster.node_names:
        return
    yield "SLURM_HOSTFILE=$(mktemp)"
    yield "export SLURM_HOSTFILE"
    yield 'while read -r node ranks; do yes "$node" | head -n "$ranks" || true; done \\'
    yield "    >\"$SLURM_HOSTFILE\" <<'END'"
    yield from (f"{name} {ranks}" for name, ranks in placed.nodes())
    yield "END"


__all__ = ["slurm"]
