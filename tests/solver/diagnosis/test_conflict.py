from __future__ import annotations

import random
from typing import Any

import pytest

from meshplan.constraints.problem import Problem
from meshplan.solver.diagnosis.conflict import Conflicts, conflict
from meshplan.solver.diagnosis.diagnose import MOST_CONFLICTS
from meshplan.solver.diagnosis.facts import MEMORY
from meshplan.solver.diagnosis.queries import Queries
from meshplan.solver.results import Conflict
from tests.solver.diagnosis.judge import faults
from tests.solver.oracle import cells, tried
from tests.solver.small import small, with_capacity


def assert_irreducible(problem: Problem, found: Conflict) -> None:
    """Assert that the facts clash, and that without any one of them something is possible."""
    assert faults(problem, found) == []
    if found.pins:
        assert all(pin in found.text for pin in found.pins)


RULE_CLASHES: dict[str, dict[str, Any]] = {
    "too-few-gpus": {"layout": {"tp": 8, "cp": 2}},
    "batch": {"layout": {"dp": 8, "mbs": 2}},
    "tp-over-the-domain": {
        "cluster": {"preset": "h100-hgx", "gpus": 16},
        "layout": {"tp": 16},
    },
    "heads": {"model": {"card": "toy-dense", "heads": 12, "kv_groups": 12}, "layout": {"tp": 8}},
    "vpp-without-pp": {"layout": {"pp": 1, "vpp": 2}},
    "group": {"layout": {"pp": 4, "vpp": 2, "ga": 2, "dp": 2}},
    "deepep-alone": {"layout": {"ep": 1, "etp": 1}, "options": {"dispatcher": "deepep"}},
    "deepep-on-nvl72": {
        "cluster": {"preset": "gb200-nvl72", "gpus": 8},
        "options": {"dispatcher": "deepep"},
    },
    "dense-with-ep": {"model": "toy-dense", "layout": {"ep": 2}},
    "variable-length": {
        "workload": {"seq_len": 4096, "global_batch_size": 8, "variable_length": True},
        "options": {"cuda_graphs": ["attn"]},
    },
    "min-dp": {"layout": {"tp": 4, "cp": 2}, "limits": {"min_dp": 2}},
    "experts": {"layout": {"ep": 8, "etp": 2}},
    "layout-decoders": {"options": {"pipeline_layout": "Et|tL"}, "layout": {"pp": 2}},
}


@pytest.mark.parametrize("name", RULE_CLASHES)
def test_rule_conflicts_are_irreducible(name: str) -> None:
    """Tests clashes of rules and pins: leaving any fact out makes the rest possible."""
    problem = small(**RULE_CLASHES[name])
    found = conflict(problem)
    assert found.minimal
    assert MEMORY not in found.rules
    assert_irreducible(problem, found)


def test_every_conflict_names_the_rule_of_the_batch_where_it_needs_it() -> None:
    """Tests three micro-batches for four interleaved stages: ga = 4 is refused by the batch alone.

    Each of the conflicts is irreducible, and those that leave ``layout.ga`` out name the batch.
    """
    layout = {"tp": 1, "pp": 4, "vpp": 2, "dp": 2, "mbs": 1, "ga": 3}
    problem = small(layout=layout, workload={"seq_len": 4096, "global_batch_size": 6})
    found = list(Conflicts(Queries(problem)).every(MOST_CONFLICTS))
    assert len(found) > 1
    for one in found:
        assert faults(problem, one) == [], one
        if not any(pin.startswith("layout.ga") for pin in one.pins):
            assert "gbs-divisible" in one.rules


LEAN: dict[str, Any] = {"recompute": "none", "optimizer_offload": 0}
MEMORY_CLASHES: dict[str, dict[str, Any]] = {
    "pins": {"model": "toy-dense", "layout": {"tp": 1, "cp": 1, "mbs": 4}, "options": LEAN},
    "dp": {"model": "toy-dense", "layout": {"dp": 8, "mbs": 1}, "options": LEAN},
    "min-dp": {
        "model": "toy-dense",
        "layout": {"mbs": 1},
        "options": LEAN,
        "limits": {"min_dp": 8},
    },
    "layout-string": {
        "model": "toy-dense",
        "layout": {"mbs": 1, "cp": 1},
        "options": {**LEAN, "pipeline_layout": "E|tttt||L"},
    },
    "graphs": {
        "model": "toy-dense",
        "layout": {"mbs": 1, "cp": 1},
        "options": {**LEAN, "cuda_graphs": ["attn", "mlp"]},
    },
}


@pytest.mark.parametrize("share", [0.5, 0.999])
@pytest.mark.parametrize("name", MEMORY_CLASHES)
def test_memory_conflicts_are_irreducible(name: str, share: float) -> None:
    """Tests too little memory: leaving out any pin or limit of the conflict makes room.

    The capacity is a share of what the pinned question needs at least; with a small share other
    layouts may not fit either, and then the conflict has no pins.
    """
    problem = small(**MEMORY_CLASHES[name])
    least = min(one.peak for one in tried(problem))
    problem = with_capacity(problem, int(least * share))
    found = conflict(problem)
    assert MEMORY in found.rules
    assert_irreducible(problem, found)


@pytest.mark.parametrize(
    ("sections", "says"),
    [
        ({"layout": {"pp": {"min": 3, "max": 3}}}, "layout.pp"),
        ({"layout": {"dp": 5}}, "5"),
    ],
)
def test_pins_that_no_value_satisfies_say_why(sections: dict[str, Any], says: str) -> None:
    """Tests that a pin which leaves no value at all is named with a reason, not an empty one."""
    found = conflict(small(**sections))
    assert says in found.text
    assert not found.text.rstrip(".").rstrip().endswith(":")


@pytest.mark.parametrize("text", ["E|tttttt|L", "Et|t|t|t|tt|L", "E" + "t|" * 6 + "L"])
def test_stage_count_is_not_a_matter_of_memory(text: str) -> None:
    """Tests layout strings of 3, 6 and 7 stages on 8 GPUs: no GPU memory would help.

    pp must divide 8 and pp*vpp the stages, so that only 6 = 2*3 stages can be had.
    """
    problem = small(options={"pipeline_layout": text}, layout={"vpp": 1})
    found = conflict(problem)
    assert MEMORY not in found.rules
    assert "281474976710656" not in found.text


def test_slots_without_layers_are_not_a_matter_of_memory() -> None:
    """Tests pp = 4 with vpp = 3 on 6 layers: 12 slots, more than layers and ends can fill."""
    found = conflict(small(layout={"pp": 4, "vpp": 3}))
    assert MEMORY not in found.rules


def test_random_rule_conflicts_are_irreducible() -> None:
    """Tests random pins on 8 GPUs that clash."""
    rng = random.Random(5)
    judged = 0
    while judged < 15:
        names = rng.sample(["tp", "cp", "pp", "dp", "ep", "etp", "mbs", "ga"], 4)
        layout = {name: rng.choice([1, 2, 4, 8]) for name in names}
        problem = small(layout=layout, options=LEAN | {"dispatcher": "alltoall"})
        if next(cells(problem), None) is not None:
            continue
        assert_irreducible(problem, conflict(problem))
        judged += 1
