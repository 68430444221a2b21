"""What reports call the levers."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from meshplan.constraints.resolve import resolve
from meshplan.scenarios import from_mapping
from meshplan.solver.repairs.hardware import gpu_step
from meshplan.solver.repairs.search import LEVERS

_FIGURES = {"hbm": "memory of each GPU", "host-memory": "memory of each node"}


@pytest.mark.parametrize(
    ("size", "field", "change"),
    [
        ({"gpus": 16}, "cluster.gpus", "cluster.gpus: 32 instead of 16"),
        (
            {"nodes": 2},
            "cluster.nodes",
            "cluster.nodes: 4 instead of 2 (32 GPUs instead of 16)",
        ),
        (
            {"domains": [8, 8]},
            "cluster.domains (more of them)",
            "cluster.domains: 4 instead of 2 NVLink domains of 8 GPUs (32 GPUs instead of 16)",
        ),
    ],
)
def test_levers_go_by_the_fields_of_the_file(
    size: Mapping[str, object], field: str, change: str
) -> None:
    """Tests that each lever is shown as a field of the scenario, or as a figure of the nodes.

    With half of the optimizer state on the hosts, as these take part otherwise not at all.
    """
    problem = resolve(
        from_mapping(
            {
                "meshplan": 1,
                "name": "names",
                "model": "qwen3-30b-a3b",
                "cluster": {"preset": "h100-hgx", **size},
                "workload": {"seq_len": 4096, "global_batch_size": 64},
                "training": {"moment_dtype": "fp32", "gradient_dtype": "fp32"},
                "options": {"optimizer_offload": 0.5},
            }
        )
    )
    shown = {lever.name: lever.shown(problem) for lever in LEVERS if lever.applies(problem)}
    assert shown["gpus"] == field
    assert shown["state-formats"] == "training.moment_dtype and training.gradient_dtype"
    assert {name: shown[name] for name in _FIGURES} == _FIGURES
    roots = ("layout", "options.", "limits.", "training.", "workload.", "cluster.", "framework.")
    others = [text for name, text in shown.items() if name not in (*_FIGURES, "fewer-gpus")]
    assert [text for text in others if not text.startswith(roots)] == []
    assert gpu_step(problem, 32)[0].text == change
