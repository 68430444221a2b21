from __future__ import annotations

import math

import pytest
from hypothesis import given

from meshplan.constraints.layout import Layout
from meshplan.constraints.problem import Problem
from meshplan.scenarios import from_mapping
from meshplan.solver.breakdown import PARTS, step_breakdown_us
from meshplan.solver.check import check
from meshplan.solver.time.step import step_time
from tests.solver.time.legal_layouts import cases


def parts(model: str, layout: str, **training: bool) -> dict[str, int]:
    """Parts of a step on 8 H100s at 4096 tokens with one micro-batch, in us."""
    report = check(
        from_mapping(
            {
                "meshplan": 1,
                "name": "test",
                "model": model,
                "cluster": {"preset": "h100-hgx", "gpus": 8},
                "workload": {"seq_len": 4096, "global_batch_size": 8},
                "training": training,
            }
        ),
        f"mbs=1,recompute=none,offload=0,{layout}",
    )
    assert report.cost is not None
    return step_breakdown_us(report.problem, report.layout, report.cost.time)


def test_tensor_parallel_exchange_is_the_collectives_of_the_layers() -> None:
    """Tests Llama 3.1 8B with TP 2: 32 layers of two blocks, each 4096 tokens * 4096 * 2 bytes.

    Half of that travels, in forward once gathered and once scattered, in backward once and 0.3
    times: 3.3 * 16 MiB / 337.5 GB/s (450 GB/s NVLink at 75 %) = 164 us a block,
    and each of these starts with 30 us, 99 us: 16.8 ms for the 64; two micro-batches.
    """
    block = 3.3 * (30 + 4096 * 4096 * 2 / 2 / (450e3 * 0.75))
    found = parts("llama-3.1-8b", "tp=2")
    assert found["tensor_parallel_exchange"] == 2 * 64 * math.floor(block)
    assert found["context_parallel_exchange"] == 0
    hidden = parts("llama-3.1-8b", "tp=2", overlap_tensor_communication=True)
    assert hidden["tensor_parallel_exchange"] == pytest.approx(
        0.3 * found["tensor_parallel_exchange"], rel=0.02
    )


def test_context_parallel_exchange_is_what_is_not_hidden() -> None:
    """Tests all-to-all against a ring on NVLink: the ring hides all but the start of its steps.

    Two steps of 20 us in each direction are 80 us a layer.
    """
    ring = parts("llama-3.1-8b", "cp=2,cp_comm=p2p")["context_parallel_exchange"]
    assert ring == 2 * 32 * 80
    exchanged = parts("llama-3.1-8b", "cp=2,cp_comm=a2a")
    assert exchanged["context_parallel_exchange"] > ring
    assert exchanged["tensor_parallel_exchange"] == 0


@given(case=cases())
def test_parts_add_up_and_none_is_negative(case: tuple[Problem, Layout]) -> None:
    """Tests random layouts: nothing is counted twice, and groups of one exchange nothing."""
    where, layout = case
    time = step_time(where, layout)
    found = step_breakdown_us(where, layout, time)
    assert tuple(found) == PARTS
    assert sum(found.values()) == time.step_us
    assert min(found.values()) >= 0
    if layout.tp == 1:
        assert found["tensor_parallel_exchange"] == 0
    if layout.cp == 1:
        assert found["context_parallel_exchange"] == 0
