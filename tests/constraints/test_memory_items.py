"""Items of a rank's memory: they add up to the parts, whatever the layout."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshplan.constraints.layout import Layout
from meshplan.constraints.memory.items import Item, itemize
from meshplan.constraints.memory.overhead import context, workspaces
from meshplan.constraints.memory.stage import PARTS, layer_activation, rank_memory
from meshplan.constraints.memory.static import embedding_static, output_static
from meshplan.constraints.problem import Problem
from tests.constraints.factories import card, problem
from tests.constraints.memory_layouts import cases, laid_out, parts_of, trained

TOY = problem("toy-moe")


def _by_part(items: tuple[Item, ...]) -> dict[str, int]:
    sums: Counter[str] = Counter()
    for item in items:
        sums[item.part] += item.quanta
    return {part: sums[part] for part in PARTS}


def _holds(where: Problem, one: Layout) -> None:
    for rank in range(one.pp):
        items = itemize(where, one, rank)
        assert {item.part for item in items} <= set(PARTS)
        assert all(item.quanta > 0 for item in items)
        assert _by_part(items) == parts_of(rank_memory(where, one, rank))


@given(cases())
def test_items_add_up_to_their_part(drawn: tuple[Problem, Layout]) -> None:
    """Tests random cards, pp, vpp, recompute, offload and recipes: every part of every rank."""
    where, one = drawn
    _holds(where, one)


@given(cases(), st.sampled_from(("uniform", "block")), st.integers(1, 5))
def test_items_of_other_checkpoints_add_up(
    drawn: tuple[Problem, Layout], method: str, layers: int
) -> None:
    """Tests full recompute of several layers a checkpoint, and of the first of each slot."""
    where, one = drawn
    where = trained(where, recompute_method=method, recompute_layers=layers)
    _holds(where, dataclasses.replace(one, recompute=(), recompute_full=True))


@given(cases())
def test_items_of_an_optimizer_step_add_up(drawn: tuple[Problem, Layout]) -> None:
    """Tests ranks that peak at the optimizer step: short sequences, bf16 moments, no offload."""
    where, one = drawn
    where = dataclasses.replace(trained(where, moment_bytes=2, precision_aware=None), seq_len=64)
    one = dataclasses.replace(one, offload=0, dp=1, edp=1)
    assert any("update" in rank_memory(where, one, rank).event for rank in range(one.pp))
    _holds(where, one)


def test_checkpoints_are_counted_not_layers() -> None:
    """Tests 8 dense layers on two ranks of 1F1B: rank 0 keeps two micro-batches alive.

    Two layers a checkpoint make 2 of 4 layers, an input of 32 quanta each; ``block`` of one layer
    makes 1, and the other three layers keep all that they save.
    """
    dense = problem(card("toy-dense", layers=8))
    one = laid_out(dense, (4, 4), recompute_full=True)

    def saved(method: str, layers: int) -> dict[str, int]:
        where = trained(dense, recompute_method=method, recompute_layers=layers)
        return {i.name: i.quanta for i in itemize(where, one, 0) if i.part == "activations"}

    assert saved("uniform", 2) == {"inputs of 4 live checkpoints": 4 * 32}
    assert saved("uniform", 3) == {"inputs of 4 live checkpoints": 4 * 32}
    block = saved("block", 1)
    assert block.pop("inputs of 2 live checkpoints") == 2 * 32
    (kind,) = dense.kinds
    whole = layer_activation(dense, laid_out(dense, (4, 4)), kind)
    assert sum(block.values()) == 2 * 3 * whole
    assert all("of 6 live layers" in name for name in block)


def test_items_of_a_small_layout() -> None:
    """Tests toy-moe with an MTP layer on two ranks by name: what is where, and how much."""
    where = problem(card("toy-moe", mtp_layers=1))
    one = laid_out(where, (3, 3))
    first, last = (itemize(where, one, rank) for rank in range(2))
    names = [{item.name: item.quanta for item in items if item.part == "weights"}
             for items in (first, last)]  # fmt: skip
    assert list(names[0]) == [
        "attention, norms, dense MLPs and routers of 3 layers",
        "routed experts of 2 layers",
        "embedding",
    ]  # fmt: skip
    assert list(names[1]) == [
        "attention, norms and routers of 3 layers",
        "routed experts of 3 layers",
        "MTP layers with a copy of the embedding", "final norm and output layer",
    ]  # fmt: skip
    assert names[0]["routed experts of 2 layers"] == 2 * 192  # 8*3*1024*1024 * 2 bytes each
    assert names[0]["embedding"] == embedding_static(where, "weights", 1, 1, 1, 0) == 250
    assert names[1]["final norm and output layer"] == output_static(where, "weights", 1, 1, 1, 2, 0)
    overhead = {item.name: item.quanta for item in first if item.part == "overhead"}
    assert overhead["CUDA context and world communicator"] == context(where)
    assert overhead["workspaces of matrix products"] == workspaces(where)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"recompute_full": True}, "one checkpoint running backward"),
        ({"cp": 2, "cp_comm": "p2p", "mbs": 4}, "neighbour's keys and values"),
        ({}, "experts running backward"),
    ],
)
def test_work_is_named_by_what_needs_most(changes: dict[str, Any], says: str) -> None:
    """Tests the words for a rank before the loss, by the term that is the largest.

    A ring needs most where there are no experts and the MLP is narrow.
    """
    narrow, wide = problem(card("toy-dense", ffn=256)), problem(card("toy-moe", topk=8))
    where = narrow if "cp" in changes else wide
    half = where.model.layers // 2
    items = itemize(where, laid_out(where, (half, half), **changes), 0)
    assert [item.name for item in items if item.part == "working" and says in item.name]


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ("nemotron-3-nano-30b-a3b", {"Mamba mixer of 23 live layers (mamba)",
                                     "attention of 6 live layers (gqa)",
                                     "experts of 23 live layers (moe)"}),
        ("qwen3-next-80b-a3b", {"linear attention of 36 live layers (gdn+moe)",
                                "experts of 36 live layers (gdn+moe)",
                                "attention of 12 live layers (gqa+moe)",
                                "experts of 12 live layers (gqa+moe)"}),
    ],
)  # fmt: skip
def test_mixers_have_their_names(model: str, says: set[str]) -> None:
    """Tests that a Mamba or gated-delta-net layer is not called attention."""
    where = problem(card(model, mtp_layers=0))
    items = itemize(where, laid_out(where, (where.model.layers,)), 0)
    assert {item.name for item in items if item.part == "activations"} == says


def test_offloaded_activations_are_staged_at_work() -> None:
    """Tests that the copies to the host are an item: 2 layers * 64 quanta of core_attn."""
    where = trained(TOY, activation_offload=("core_attn",))
    items = itemize(where, laid_out(where, (3, 3)), 0)
    assert ("working", "activations on their way from and to the host", 128) in [
        (item.part, item.name, item.quanta) for item in items
    ]
