"""What ``solve`` says of a plan that fits with little room."""

from __future__ import annotations

import dataclasses

import pytest

import meshplan
from meshplan.scenarios import from_mapping
from meshplan.solver.diagnosis import near_misses as module
from meshplan.solver.diagnosis.near_misses import with_near_misses
from meshplan.solver.results import Plan
from tests.solver.small import with_capacity


def _plan(**changes: object) -> Plan:
    data = {
        "meshplan": 1,
        "name": "near",
        "model": "toy-moe",
        "cluster": {"preset": "h100-hgx", "gpus": 8},
        "workload": {"seq_len": 4096, "global_batch_size": 32},
    }
    found = meshplan.solve(from_mapping(data | changes))
    assert isinstance(found, Plan)
    return found


def test_solve_says_that_no_data_parallelism_is_left() -> None:
    """Tests tp = 8 on 8 GPUs: dp is 1, in the plan, its JSON and its text."""
    found = _plan(layout={"tp": 8, "cp": 1, "pp": 1})
    assert found.layout.dp == 1
    (text,) = (one for one in found.near_misses if one.startswith("dp is 1"))
    assert text in found.to_json()["near_misses"]
    assert "What it is close to" in str(found)


def test_solve_says_nothing_of_a_plan_with_room() -> None:
    """Tests a toy model with dp = 8: no section, an empty list."""
    found = _plan(layout={"dp": 8})
    assert found.near_misses == ()
    assert found.to_json()["near_misses"] == []
    assert "What it is close to" not in str(found)


def test_neighbours_that_do_not_fit_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests the plan with a capacity of just its peak: mbs = 2 needs more, and memory is tight.

    With all degrees pinned the one legal neighbour is another micro-batch.
    """
    degrees = {"tp": 1, "cp": 1, "pp": 1, "ep": 8, "etp": 1}
    found = _plan(layout={**degrees, "mbs": [1, 2]})
    one = meshplan.check(from_mapping(dict(found.problem.asked)), "tp=1,cp=1,pp=1,ep=8,mbs=1")
    assert one.cost is not None
    tight = with_capacity(one.problem, one.cost.peak)
    plan = dataclasses.replace(found, problem=tight, layout=one.layout, cost=one.cost)
    texts = with_near_misses(plan).near_misses
    assert texts[0].startswith("Memory is tight")
    assert texts[-1] == (
        "The one legal layout with one degree halved or doubled does not fit into memory: mbs = 2."
    )

    def interrupted(*_: object) -> tuple[str, ...]:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "near_misses", interrupted)
    assert with_near_misses(plan) is plan, "Ctrl-C costs no plan"
