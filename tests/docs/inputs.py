"""What a reader of the documentation has at hand: the files that its examples name."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path

import meshplan
from meshplan.scenarios import loads
from meshplan.scenarios.calibration import default_calibration
from tests.docs.blocks import ROOT, blocks
from tests.scenarios.importers.logs import DUMP, log_line
from tests.solver.calibrate.measured import SLOW, all_scaled, write_runs

#: Of the imaginary cluster of ``calibration.md``: what its network reaches beside all else.
_NETWORK = 0.6
_LAUNCH = """\
torchrun --nproc_per_node 8 pretrain_gpt.py --tensor-model-parallel-size 2 \\
    --pipeline-model-parallel-size 1 --expert-model-parallel-size 8 \\
    --expert-tensor-parallel-size 1 --context-parallel-size 4 --sequence-parallel \\
    --micro-batch-size 1 --global-batch-size 64 --seq-length 32768 --bf16 \\
    --num-layers 48 --num-experts 128 --use-distributed-optimizer --recompute-activations
"""
#: As the table of layers of ``config.json`` of Qwen3-30B-A3B has it.
_CONFIG = {
    "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": 2048,
    "num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128,
    "intermediate_size": 6144, "moe_intermediate_size": 768, "num_experts": 128,
    "num_experts_per_tok": 8, "vocab_size": 151936, "tie_word_embeddings": False,
    "decoder_sparse_step": 1, "mlp_only_layers": [], "max_position_embeddings": 40960,
    "norm_topk_prob": True,
}  # fmt: skip
#: Programs of the examples that are not here, and what takes their place.
_PROGRAMS = {
    "meshplan": f'exec "{sys.executable}" -m meshplan "$@"',
    "pytest": f'exec "{sys.executable}" -m pytest -q -p no:cacheprovider "$@"',
    "python": f'exec "{sys.executable}" "$@"',
    "pip": f'exec "{sys.executable}" -m tests.docs.pip "$@"',
    "kubectl": 'test "$*" = "get nodes -o json" && cat kubectl.json',
    "torchrun": 'test $# -gt 10 && printf "%s\\n" "$@"',
    "sbatch": 'bash -n "$1"',
}


def programs(folder: Path) -> str:
    """A ``PATH`` with ``meshplan`` of this checkout, and stand-ins of what needs a cluster.

    ``python`` is the one that runs the tests, whether or not its environment is active.
    ``pip`` looks whether the extra exists, ``kubectl`` prints nodes, ``torchrun`` its arguments
    (more than ten, or nothing came from the file that the shell read), and ``sbatch`` has bash
    read the script.
    """
    home = folder / ".bin"
    home.mkdir()
    for name, command in _PROGRAMS.items():
        path = home / name
        path.write_text(f"#!/bin/bash\n{command}\n", "utf-8")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return f"{home}{os.pathsep}{os.environ['PATH']}"


def _node(name: str, gpus: int, clique: str) -> dict[str, object]:
    labels = {"nvidia.com/gpu.count": str(gpus), "nvidia.com/gpu.clique": clique}
    return {"kind": "Node", "metadata": {"name": name, "labels": labels}}


def _nodes(path: Path, names: list[tuple[str, int, str]]) -> None:
    items = [_node(*one) for one in names]
    path.write_text(json.dumps({"kind": "List", "items": items}), "utf-8")


def my_run() -> str:
    """The scenario of ``getting-started.md``, which other pages take up."""
    (text,) = (
        one.text
        for one in blocks(ROOT / "docs" / "getting-started.md")
        if (one.mark, one.about) == ("file", "my-run.yaml")
    )
    return text + "\n"


def fill(folder: Path, page: Path) -> None:
    """Puts into ``folder`` the files that the examples of ``page`` name, and which it has not."""
    for name in ("my-run.yaml", "scenario.yaml"):
        (folder / name).write_text(my_run(), "utf-8")
    (folder / "benchmarks").symlink_to(ROOT / "benchmarks")
    (folder / "launch.sh").write_text(_LAUNCH, "utf-8")
    (folder / "config.json").write_text(json.dumps(_CONFIG), "utf-8")
    racks = (ROOT / "scenarios" / "clusters" / "three-racks.conf").read_text("utf-8")
    (folder / "topology.conf").write_text(racks, "utf-8")
    trays = {"r001": 18, "r002": 17, "r003": 14}
    uuid = "00000000-0000-0000-0000-00000000000"
    cliques = [
        (f"{rack}-{tray:02d}", 4, f"{uuid}{number}.0")
        for number, (rack, count) in enumerate(trays.items(), start=1)
        for tray in range(1, count + 1)
    ]
    _nodes(folder / "nodes.json", cliques)
    _nodes(folder / "kubectl.json", [(f"node-{one}", 8, f"node-{one}.0") for one in range(4)])
    if page.name == "ci.md":
        _cases(folder / "scenarios")
    else:
        (folder / "scenarios").symlink_to(ROOT / "scenarios")
    if page.name in ("calibration.md", "importing.md"):
        _logs(folder)
    if page.name == "calibration.md":
        _twenty(folder)


def _cases(folder: Path) -> None:
    """Three test cases: one is met, one is not, and of one nothing is expected."""
    folder.mkdir()
    for name, seq_len, expect in (
        ("h100-32k", 32768, "{status: optimal}"),
        ("h100-64k", 65536, "{status: optimal, layout: {tp: 1}}"),
        ("h100-256k", 262144, None),
    ):
        text = my_run().replace("name: my-run", f"name: {name}").replace("32768", str(seq_len))
        text = text.replace("nodes: 8 ", "nodes: 1 ") if expect is None else text
        text += f"expect: {expect}\n" if expect else ""
        (folder / f"{name}.yaml").write_text(text, "utf-8")


def _log(text: str, tp: int, cp: int, slower: float) -> str:
    """A log of 25 steps of the example scenario, ``slower`` than predicted."""
    predicted = meshplan.check(loads(text), f"tp={tp},cp={cp},ep=8,pp=1").to_json()["time"]
    dump = DUMP.replace("seq_length ...... 4096", "seq_length ...... 32768")
    for name, before, now in (
        ("tensor_model_parallel_size", 2, tp),
        ("context_parallel_size", 1, cp),
        ("global_batch_size", 512, 64),
    ):
        dump = dump.replace(f"  {name} ...... {before}\n", f"  {name} ...... {now}\n")
    ms = predicted["step_s"] * slower * 1000
    tflops = predicted["model_tflops_per_gpu"] / slower
    steps = (log_line(one, ms * (1 + one % 3 / 300), tflops=tflops, batch=64) for one in range(25))
    return dump + "\n".join(steps) + "\n"


def _logs(folder: Path) -> None:
    """Three logs in ``logs``, the first one also as ``train.log``: steps 14 to 17 % longer."""
    logs = folder / "logs"
    logs.mkdir()
    runs = {"may-3": (1, 8, 1.14), "may-4": (2, 4, 1.17), "may-5": (1, 4, 1.15)}
    for name, (tp, cp, slower) in runs.items():
        (logs / f"{name}.log").write_text(_log(my_run(), tp, cp, slower), "utf-8")
    (folder / "train.log").write_text((logs / "may-3.log").read_text("utf-8"), "utf-8")


def _twenty(folder: Path) -> None:
    """The 20 runs of a cluster where all is at 0.8, and the network at 0.6 of that."""
    base = default_calibration().parameters.nic_dispatch
    truth = all_scaled(SLOW) | {"nic_dispatch": base * SLOW * _NETWORK}
    write_runs(folder, truth=truth).rename(folder / "twenty-runs.csv")
