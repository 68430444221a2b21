from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import meshplan
from meshplan.constraints.decisions import GRAPH_SCOPES
from meshplan.constraints.layout import Layout
from meshplan.constraints.memory.stage import rank_memory
from meshplan.constraints.problem import Problem
from meshplan.scenarios import Scenario, from_mapping, load
from meshplan.solver.check import check
from tests.solver.time.legal_layouts import cases

SEED = Path(__file__).resolve().parent.parent.parent / "scenarios" / "seed"


def pinned(model: str, gpus: int, headroom: float, **degrees: Any) -> Scenario:
    """A scenario on H100s at 8K tokens whose degrees are pinned and whose options are open."""
    return from_mapping(
        {
            "meshplan": 1,
            "name": "test",
            "model": model,
            "cluster": {"preset": "h100-hgx", "gpus": gpus},
            "workload": {"seq_len": 8192, "global_batch_size": 64},
            "layout": {"mbs": 1, **degrees},
            "options": {"cuda_graphs": "auto", "pipeline_layout": "even"},
            "objective": {"maximize": "throughput", "dp_tolerance": 0.0},
            "limits": {"memory_headroom": headroom},
        }
    )


@pytest.mark.parametrize("headroom", [0.08, 0.4, 0.5])
@pytest.mark.parametrize(
    ("model", "gpus", "degrees"),
    [
        ("qwen3-30b-a3b", 16, {"tp": 1, "cp": 2, "pp": 2, "vpp": 4, "ep": 8, "etp": 1}),
        ("moonlight-16b-a3b", 8, {"tp": 2, "cp": 1, "pp": 1, "ep": 8, "etp": 1}),
        ("llama-3.1-8b", 8, {"tp": 2, "cp": 2, "pp": 1}),
        ("llama-3.1-8b", 8, {"tp": 1, "cp": 2, "pp": 1}),
    ],
)
def test_options_are_those_that_the_search_takes(
    model: str, gpus: int, degrees: dict[str, int], headroom: float
) -> None:
    """Tests a check with the degrees pinned against the proved optimum: the same options.

    The smaller the memory, the more must be recomputed, and the fewer scopes can be captured.
    """
    asked = pinned(model, gpus, headroom, **degrees)
    plan, report = meshplan.solve(asked), check(asked)
    if isinstance(plan, meshplan.Infeasible):
        assert report.status == "overfull"
        assert "nothing fits, and this takes the least memory" in "\n".join(report.assumed)
        return
    assert isinstance(plan, meshplan.Plan)
    assert report.layout == plan.layout
    assert "the fastest that fits" in "\n".join(report.assumed)


def test_exchange_is_the_fastest_that_fits() -> None:
    """Tests DeepSeek-V3 at 64K: ``a2a+p2p`` is fastest, ``all_gather`` next and takes 7 GiB less.

    They take 58.8 and 51.7 GiB; with 30 % kept free 55.4 GiB may be used.
    """
    file = SEED / "dsv3-h100-64k-published.yaml"
    assert check(load(file)).layout.cp_comm == "a2a+p2p"
    report = check(load(file, ["limits.memory_headroom=0.3"]))
    assert (report.layout.cp_comm, report.status) == ("all_gather", "ok")
    assert "cp_comm = all_gather: the fastest that fits" in report.assumed


def test_auto_opens_what_the_scenario_pins() -> None:
    """Tests that graphs are chosen where the layout says auto, and stay off where none is said.

    Not that of the MLP in the one dense layer: the host runs ahead there, and nothing is gained.
    """
    asked = pinned("moonlight-16b-a3b", 8, 0.08, tp=2, ep=8, etp=1)
    assert check(asked, "graphs=none").layout.cuda_graphs == ()
    assert check(asked, "graphs=auto").layout.cuda_graphs == ("attn", "moe_router")
    off = check(load(SEED / "dsv3-h100-4k-published.yaml"))
    assert off.layout.cuda_graphs == ()
    assert not any("cuda_graphs" in text for text in off.assumed)


@given(case=cases(), scopes=st.sets(st.sampled_from(GRAPH_SCOPES)))
def test_graphs_never_save_memory(case: tuple[Problem, Layout], scopes: set[str]) -> None:
    """Tests what spares the trial of scopes where the layout does not even fit without."""
    where, layout = case
    captured = dataclasses.replace(layout, cuda_graphs=tuple(sorted(scopes)))
    for rank in range(layout.pp):
        assert rank_memory(where, captured, rank).peak >= rank_memory(where, layout, rank).peak
