from __future__ import annotations

import dataclasses
import random
from typing import Any

import pytest

from meshplan.constraints.problem import Problem
from meshplan.constraints.rules import ALL_RULES
from meshplan.solver.diagnosis.conflict import conflict
from meshplan.solver.diagnosis.facts import LIMIT_RULES, MEMORY
from meshplan.solver.diagnosis.words import broken_layout_rules
from meshplan.solver.judge import active_rules
from meshplan.solver.results import Conflict
from meshplan.solver.search import Search
from tests.solver.oracle import cells, tried
from tests.solver.small import small, with_capacity


def _restricted(problem: Problem, paths: set[str]) -> Problem:
    """The problem with the pins at these paths only; others may take any known value."""
    candidates = dict(problem.candidates)
    for pin in problem.pins:
        if pin.decision in candidates:
            candidates[pin.decision] = tuple(
                dict.fromkeys((*candidates[pin.decision], *pin.values))
            )
    kept: dict[str, Any] = {
        "pins": tuple(pin for pin in problem.pins if pin.path in paths),
        "candidates": candidates,
    }
    if "options.pipeline_layout" not in paths:
        kept |= {"layout_string": None, "even_split": False}
    return dataclasses.replace(problem, **kept)


def _possible(problem: Problem, facts: set[str]) -> bool:
    """Whether any layout respects these facts: by enumeration, or by a search if of memory."""
    active = active_rules(problem)
    paths = {fact for fact in facts if "." in fact}
    where = _restricted(problem, paths)
    if MEMORY in facts:
        # In a conflict about memory the framework's own rules hold anyway.
        rules = [r for r in active if r.id in facts or r.id not in LIMIT_RULES]
        return Search(where, rules=rules, pins=where.pinned).any_plan()
    named = {rule.id for rule in active} | {rule.id for rule in ALL_RULES}
    layout_rules = facts - named - paths
    if layout_rules:  # a layout string breaks rules on slots whatever the degrees
        broken = {rule.id for rule in broken_layout_rules(where)}
        return not layout_rules & broken
    rules = [rule for rule in active if rule.id in facts]
    return next(cells(where, rules, read_only=True), None) is not None


def _named(found: Conflict) -> set[str]:
    return {*found.rules, *(pin.split(" = ")[0] for pin in found.pins)}


def assert_irreducible(problem: Problem, found: Conflict) -> None:
    """Assert that the facts clash, and that without any one of them something is possible."""
    facts = _named(found)
    assert facts
    assert not _possible(problem, facts)
    for fact in sorted(facts):
        if fact == MEMORY:
            # Without the limit of memory the same pins and limits have a legal layout.
            limits = {rule.id for rule in active_rules(problem)} - (set(LIMIT_RULES) - facts)
            assert _possible(with_capacity(problem, 1 << 30), facts | limits), fact
        else:
            assert _possible(problem, facts - {fact}), fact
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
