"""Every split that megatron-core takes, on small models: any slot may hold any number of layers.

The search looks at fewer where ``vpp > 1`` (docs/search.md, "Splits outside").
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from meshplan.constraints.layout import Layout, Slot
from meshplan.constraints.layout_rules import ALL_LAYOUT_RULES
from meshplan.constraints.pipeline import format_layout
from meshplan.constraints.problem import Problem
from meshplan.constraints.resolve import resolve
from meshplan.scenarios import from_mapping
from meshplan.solver.judge import cost
from meshplan.solver.results import Infeasible, Plan
from meshplan.solver.solve import solve
from tests.solver.oracle import Tried, best, cells, compositions, splits, to_layout, tried_layouts
from tests.solver.small import FAMILIES, draw_card, with_capacity

DEGREES = [(2, 1), (3, 1), (4, 1), (2, 2), (2, 3), (3, 2)]


def all_splits(layers: int, pp: int, vpp: int, mtp: bool) -> Iterator[tuple[Slot, ...]]:
    """All legal slots: E in the first, L in the last, MTP in a last chunk, no layer after it."""
    stages = pp * vpp
    for counts in compositions(layers, stages):
        filled = max(index for index, count in enumerate(counts) if count)
        holders = range(max(filled, stages - pp), stages) if mtp else (-1,)
        for holder in holders:
            slots, first = [], 0
            for index, count in enumerate(counts):
                last = index == stages - 1
                slots.append(Slot(first, count, index == 0, index == holder, last))
                first += count
            yield tuple(slots)


def scenario(rng: random.Random, pp: int, vpp: int) -> dict[str, Any]:
    """A random model on ``2 * pp`` GPUs with all but the micro-batches given."""
    card = draw_card(rng, rng.choice(sorted(FAMILIES)))
    return {
        "meshplan": 1,
        "name": "all-splits",
        "model": card,
        "cluster": {"preset": "h100-hgx", "gpus": 2 * pp},
        "workload": {"seq_len": rng.choice([4096, 16384]), "global_batch_size": 4 * pp},
        "layout": {"tp": 1, "cp": rng.choice([1, 2]), "pp": pp, "vpp": vpp, "mbs": 1},
        "options": {
            "recompute": rng.choice(["none", "full"]),
            "optimizer_offload": 0,
            "dispatcher": "alltoall",
        },
    }


def _covered_once(problem: Problem, layout: Layout) -> bool:
    """Whether the slots hold each part of the model once and in order, told from their letters.

    Written apart from the rules: the printed string is spelled out and read as one sequence.
    """
    card = problem.model
    text = format_layout(layout.slots, card.mtp_layers)
    while "*" in text:
        at = text.index("*")
        end = at + 1
        while end < len(text) and text[end].isdigit():
            end += 1
        start = text.rindex("(", 0, at) if text[at - 1] == ")" else at - 1
        unit = text[start:at].strip("()")
        text = text[:start] + unit * int(text[at + 1 : end]) + text[end:]
    stages = text.split("|")
    sequence = "E" + "t" * card.layers + "m" * card.mtp_layers + "L"
    runs = [slot for slot in layout.slots if slot.count]
    numbered = [n for slot in runs for n in range(slot.first, slot.first + slot.count)]
    return (
        "".join(stages) == sequence
        and len(stages) == layout.pp * layout.vpp
        and stages[0].startswith("E")
        and stages[-1].endswith("L")
        and numbered == list(range(card.layers))
    )


@pytest.mark.parametrize("seed", range(6))
def test_plans_hold_every_layer_once(seed: int) -> None:
    """Tests plan and alternatives by a validator of its own."""
    rng = random.Random(seed)
    pp, vpp = rng.choice(DEGREES)
    data = scenario(rng, pp, vpp)
    del data["layout"]["pp"], data["layout"]["vpp"]
    problem = resolve(from_mapping(data))
    plan = solve(problem)
    assert isinstance(plan, Plan)
    for layout in (plan.layout, *(other.layout for other in plan.alternatives)):
        assert _covered_once(problem, layout)


@pytest.mark.parametrize(("pp", "vpp"), DEGREES)
def test_legal_splits_are_those_of_the_rules(pp: int, vpp: int) -> None:
    """Tests that all of these splits are legal, and that the search's are among them."""
    for mtp_layers in (0, 1):
        card = {"card": "toy-moe", "layers": 4, "mtp_layers": mtp_layers}
        data = scenario(random.Random(0), pp, vpp) | {"model": card}
        problem = resolve(from_mapping(data))
        every = set(all_splits(4, pp, vpp, mtp_layers > 0))
        assert set(splits(problem, pp, vpp)) <= every
        for slots in every:
            layout = Layout(pp=pp, vpp=vpp, slots=slots)
            assert [rule.id for rule in ALL_LAYOUT_RULES if rule.check(problem, layout)] == []


@pytest.mark.parametrize("seed", range(16))
def test_any_given_split_is_judged_alike(seed: int) -> None:
    """Tests that the program's memory and time of a given split are the checker's, to a quantum.

    With one quantum less than the peak the split does not fit; what the ranks hold decides.
    """
    rng = random.Random(100 + seed)
    pp, vpp = rng.choice(DEGREES)
    data = scenario(rng, pp, vpp)
    mtp = bool(data["model"].get("mtp_layers"))
    slots = rng.choice(list(all_splits(data["model"]["layers"], pp, vpp, mtp)))
    data["options"]["pipeline_layout"] = format_layout(slots, int(mtp))
    problem = resolve(from_mapping(data))
    plan = solve(problem)
    assert isinstance(plan, Plan)
    assert plan.layout.slots == slots
    spent = cost(problem, plan.layout)
    assert round(plan.proof.objective * 1e6) <= spent.time.step_us
    lean = min(cost(problem, to_layout(cell, slots)).peak for cell in cells(problem))
    assert isinstance(solve(with_capacity(problem, lean)), Plan)
    assert isinstance(solve(with_capacity(problem, lean - 1)), Infeasible)


@pytest.mark.parametrize("layers", [2, 3, 5])
@pytest.mark.parametrize("pp", [2, 3, 4])
def test_without_virtual_stages_the_search_covers_all_splits(pp: int, layers: int) -> None:
    """Tests vpp = 1: all splits but those with an idle rank or MTP on another rank than the loss.

    That the search finds the best of its splits is tested in test_oracle.
    """
    for mtp in (0, 1):
        data = scenario(random.Random(0), pp, 1)
        data["model"] = {"card": "toy-moe", "layers": layers, "mtp_layers": mtp}
        problem = resolve(from_mapping(data))
        wanted = {
            slots
            for slots in all_splits(layers, pp, 1, mtp > 0)
            if all(slot.count for slot in slots[1:-1]) and (not mtp or slots[-1].mtp)
        }
        assert set(splits(problem, pp, 1)) == wanted


@pytest.mark.parametrize("seed", range(8))
def test_no_plan_is_better_than_all_splits(seed: int) -> None:
    """Tests vpp > 1: the search finds no better than the best of all splits, and a legal one."""
    rng = random.Random(300 + seed)
    pp, vpp = rng.choice([one for one in DEGREES if one[1] > 1])
    problem, layouts = _all_layouts(rng, pp, vpp)
    capacity = rng.choice(sorted({one.peak for one in layouts}))
    wanted = best(layouts, capacity, 0.0)
    assert wanted is not None
    answer = solve(with_capacity(problem, capacity))
    if isinstance(answer, Plan):
        assert wanted.fastest <= round(answer.proof.objective * 1e6)
        assert answer.cost.peak <= capacity


def _all_layouts(rng: random.Random, pp: int, vpp: int) -> tuple[Problem, list[Tried]]:
    data = scenario(rng, pp, vpp)
    data["model"]["layers"] = max(data["model"]["layers"], pp * vpp - 2)
    problem = resolve(from_mapping(data))
    card = problem.model
    every = list(all_splits(card.layers, pp, vpp, card.mtp_layers > 0))
    return problem, tried_layouts(
        problem, [to_layout(cell, slots) for cell in cells(problem) for slots in every]
    )
