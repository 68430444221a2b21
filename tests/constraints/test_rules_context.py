"""Rules on context-parallel exchanges, and the inner group of the hierarchical one."""

from __future__ import annotations

import pytest

from meshplan.constraints.context import heads_on_rank, inner_a2a
from meshplan.constraints.problem import Problem
from meshplan.constraints.rules import rule
from tests.constraints.factories import assert_triple, problem

DEEPSEEK = problem("deepseek-v3", gpus=256, seq_len=131072)
QWEN = problem("qwen3-235b-a22b", gpus=256, seq_len=131072)


@pytest.mark.parametrize(
    ("where", "tp", "heads"),
    [(DEEPSEEK, 1, (128, 128)), (DEEPSEEK, 8, (16, 16)), (QWEN, 4, (16, 1)), (QWEN, 8, (8, 1))],
)
def test_heads_of_a_rank(where: Problem, tp: int, heads: tuple[int, int]) -> None:
    """Tests that MLA counts query heads and that Qwen's 4 KV heads replicate at tp = 8."""
    assert heads_on_rank(where, tp) == heads


def test_inner_group_fills_the_node() -> None:
    """Tests that cp = 32 on nodes of 8 has an inner group of 8, with tp = 2 one of 4."""
    assert inner_a2a(DEEPSEEK, 1, 32) == 8
    assert inner_a2a(DEEPSEEK, 2, 32) == 4
    assert inner_a2a(DEEPSEEK, 8, 32) == 1


def test_inner_group_follows_the_kv_heads() -> None:
    """Tests that Qwen3-235B's 4 KV heads limit the inner group to 4 though 8 ranks are near."""
    assert inner_a2a(QWEN, 1, 32) == 4
    assert inner_a2a(QWEN, 4, 8) == 1


def test_inner_group_divides_cp() -> None:
    """Tests that cp = 12 has an inner group of 4, the power of two in 12."""
    assert inner_a2a(DEEPSEEK, 1, 12) == 4


def test_exchange_needs_cp() -> None:
    """Tests that p2p is the neutral value without context parallelism."""
    assert_triple(
        "cp-comm-needs-cp",
        problem(),
        good=(1, "p2p"),
        bad=(1, "a2a"),
        neighbour=(2, "a2a"),
        says=("cp_comm = a2a", "cp = 1", "p2p"),
    )


def test_all_to_all_splits_heads() -> None:
    """Tests that 4 KV heads allow a2a with cp = 4, not with cp = 8, where p2p remains."""
    assert_triple(
        "cp-a2a-heads",
        QWEN,
        good=(1, 4, "a2a"),
        bad=(1, 8, "a2a"),
        neighbour=(1, 8, "p2p"),
        says=("cp = 8", "64 query and 4 KV heads"),
    )


def test_all_to_all_counts_heads_after_tp() -> None:
    """Tests that tp = 4 leaves Qwen one KV head, so that a2a is out."""
    assert not rule("cp-a2a-heads").holds(QWEN, 4, 4, "a2a")
    assert rule("cp-a2a-heads").holds(DEEPSEEK, 4, 32, "a2a")


def test_hierarchical_exchange_needs_both_levels() -> None:
    """Tests that a2a+p2p needs an inner group (not with tp = 8) and rings (not with cp = 8)."""
    assert_triple(
        "cp-a2a-heads",
        DEEPSEEK,
        good=(1, 32, "a2a+p2p"),
        bad=(8, 4, "a2a+p2p"),
        neighbour=(4, 4, "a2a+p2p"),
        says=("1 of the cp = 4 ranks share an NVLink domain", "16 query"),
    )
    one = rule("cp-a2a-heads")
    assert not one.holds(DEEPSEEK, 1, 8, "a2a+p2p")
    assert "all cp = 8 ranks fit into its inner group" in one.explain(DEEPSEEK, 1, 8, "a2a+p2p")


def test_sliding_window_exchanges() -> None:
    """Tests that GPT-OSS's window of 128 refuses rings."""
    assert_triple(
        "cp-sliding-window-comm",
        problem("gpt-oss-120b"),
        good=(8, "all_gather"),
        bad=(8, "p2p"),
        neighbour=(1, "p2p"),
        says=("cp_comm = p2p", "cp = 8", "window of 128"),
    )
    assert not rule("cp-sliding-window-comm").applies(QWEN)


def test_attention_sinks_need_all_to_all() -> None:
    """Tests that sinks refuse all_gather as well, so GPT-OSS has tp*cp <= 8 KV heads."""
    where = problem("gpt-oss-120b", gpus=64)
    assert_triple(
        "cp-sinks-need-a2a",
        where,
        good=(8, "a2a"),
        bad=(8, "all_gather"),
        neighbour=(1, "p2p"),
        says=("cp_comm = all_gather", "at most 8 KV heads"),
    )
    assert rule("cp-a2a-heads").holds(where, 1, 8, "a2a")
    assert not rule("cp-a2a-heads").holds(where, 2, 8, "a2a")
