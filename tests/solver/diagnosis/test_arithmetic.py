from __future__ import annotations

from typing import Any

import pytest

from meshplan.constraints.problem import QUANTA_PER_GIB, QUANTUM_BYTES
from meshplan.constraints.resolve import resolve
from meshplan.scenarios import from_mapping
from meshplan.scenarios.parameters import total_parameters
from meshplan.solver.diagnosis.arithmetic import findings, memory_floors
from tests.solver.oracle import TooLarge, tried
from tests.solver.small import draw, small


def test_no_layout_is_below_the_floors() -> None:
    """Tests that every legal layout of random problems needs what the floors say at least."""
    judged = 0
    for seed in range(24):
        problem = resolve(from_mapping(draw(seed)))
        try:
            layouts = tried(problem, 2000)
        except TooLarge:
            continue
        floors = memory_floors(problem)
        host = min(floor.host for floor in floors)
        for one in layouts:
            assert one.peak >= floors[0].device
            assert one.host * QUANTUM_BYTES >= host
        judged += bool(layouts)
    assert judged >= 5


def test_the_memory_floor_in_numbers() -> None:
    """Tests 70.6e9 parameters in bf16 with fp32 gradients and moments on 2 GPUs.

    2 bytes of weight and 4 of gradient each make 197 and 394 GB over 2 GPUs, and what stays of the
    optimizer is 12 bytes each, or none with all of it on the hosts, which then hold 16.
    """
    problem = small(
        model="llama-3.1-70b",
        cluster={"preset": "h100-hgx", "gpus": 2},
        training={"gradient_dtype": "fp32", "moment_dtype": "fp32"},
    )
    each = total_parameters(problem.model) / 2
    on_host, on_gpu = memory_floors(problem)
    assert (on_host.offload, on_gpu.offload) == (100, 0)
    assert on_host.weights == 2 * each
    assert on_host.gradients == 4 * each
    assert on_host.optimizer == 0
    assert on_host.host == 16 * each
    assert on_gpu.optimizer == 12 * each
    assert on_gpu.host == 0
    (found,) = findings(problem)
    assert found.rule == "memory-capacity"
    assert found.needed == pytest.approx(6 * each / 2**30, abs=0.3)
    assert found.available == pytest.approx(problem.capacity / QUANTA_PER_GIB, abs=1e-3)


@pytest.mark.parametrize(
    ("sections", "rule", "needed", "available"),
    [
        # 8 GPUs against 2*2*4; the expert mesh follows, with etp*ep = 4*4.
        ({"layout": {"tp": 2, "cp": 2, "pp": 4}}, "world-dense-divisible", 16, 8),
        ({"layout": {"ep": 4, "etp": 4}}, "world-expert-divisible", 16, 8),
        # A batch of 8 sequences against 4 micro-batches of 4.
        ({"layout": {"mbs": 4, "dp": 4}}, "gbs-divisible", 16, 8),
        ({"layout": {"mbs": 4}, "limits": {"min_dp": 4}}, "gbs-divisible", 16, 8),
    ],
)
def test_grid_and_batch(
    sections: dict[str, Any], rule: str, needed: float, available: float
) -> None:
    """Tests floors of meshes and batch against what the scenario has."""
    (found,) = findings(small(**sections))
    assert (found.rule, found.needed, found.available) == (rule, needed, available)
    assert f"{needed:g}" in found.text and f"{available:g}" in found.text


def test_what_is_possible_has_no_finding() -> None:
    """Tests that a scenario with a plan is not refused by arithmetic."""
    assert findings(small()) == []
