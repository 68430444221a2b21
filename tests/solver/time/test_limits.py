from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from meshplan.constraints.layout import Layout
from meshplan.constraints.pipeline import slots_from_rank_counts
from meshplan.constraints.problem import Problem, Training
from meshplan.constraints.terms import evaluate
from meshplan.scenarios.flops import head_flops_per_token, layer_flops_per_token
from meshplan.scenarios.model_card import LayerKind
from meshplan.solver.time.attention import core_us
from meshplan.solver.time.dispatch import dispatch_us, expected_groups, expected_nodes
from meshplan.solver.time.ends import loss_us, p2p_us
from meshplan.solver.time.links import group_bytes_per_us, tp_exchange_us
from meshplan.solver.time.mlp import experts_us
from meshplan.solver.time.step import layer_parts_us, layer_us, slot_us, step_time
from meshplan.solver.time.update import dense_exchange_us, expert_exchange_us
from tests.constraints.factories import problem
from tests.solver.time.legal_layouts import with_links

MODELS = ("toy-dense", "toy-moe", "llama-3.1-8b", "qwen3-30b-a3b", "deepseek-v3")
PRECISIONS = ("bf16", "fp8-block", "mxfp8", "nvfp4")


def _layout(where: Problem, ranks: tuple[int, ...] | None = None, vpp: int = 1, **decisions):  # type: ignore[no-untyped-def]
    """A layout of a model with these decoder layers on each rank (all on one by default)."""
    counts = ranks or (where.model.layers,)
    slots = slots_from_rank_counts(counts, vpp, mtp=where.model.mtp_layers > 0)
    return Layout(pp=len(counts), vpp=vpp, slots=slots, **{"ga": 8, "gbs": 8, **decisions})


def _peak_flops_per_us(where: Problem) -> float:
    node = where.node_type
    tflops = [node.bf16_tflops]
    if where.precision != "bf16":
        tflops.append(node.fp8_tflops or 0)
    if where.precision == "nvfp4":
        tflops.append(node.fp4_tflops or 0)
    return max(tflops) * 1e6


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("preset", ["h100-hgx", "gb200-nvl72", "b200-hgx"])
@pytest.mark.parametrize("name", MODELS)
def test_no_layer_beats_its_flops_at_peak(name: str, preset: str, precision: str) -> None:
    """Tests that a layer takes at least its model FLOPs at the data sheet's best rate."""
    where = problem(name, preset, precision=precision)
    peak = _peak_flops_per_us(where)
    for tp, cp in ((1, 1), (2, 1), (1, 2), (4, 2)):
        layout = _layout(where, tp=tp, cp=cp)
        tokens = where.seq_len / (tp * cp)
        for kind in where.kinds:
            flops = tokens * layer_flops_per_token(where.model, kind, where.seq_len).total
            assert layer_us(where, layout, kind) >= flops / peak
            parts = layer_parts_us(where, layout, kind)
            assert sum(parts.values()) >= flops / peak


@pytest.mark.parametrize("name", MODELS)
def test_loss_is_not_faster_than_its_flops(name: str) -> None:
    """Tests the output layer, which always runs in bf16."""
    where = problem(name, precision="fp8-block")
    flops = where.seq_len * head_flops_per_token(where.model)
    assert loss_us(where, 1, where.seq_len) >= flops / (where.node_type.bf16_tflops * 1e6)


@pytest.mark.parametrize("figure", ["nvlink_gbps", "nic_gbps"])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    "degrees",
    [
        {"tp": 8, "cp": 2, "dp": 2},
        {"cp": 16, "dp": 2, "ep": 8, "edp": 4},
        {"cp": 4, "cp_comm": "a2a", "dp": 8, "ep": 8, "edp": 4, "dispatcher": "deepep"},
        {"cp": 16, "cp_comm": "a2a+p2p", "dp": 2, "ep": 8, "etp": 2, "edp": 2},
        {"cp": 16, "cp_comm": "all_gather", "dp": 2, "ep": 8, "edp": 4, "dispatcher": "hybridep"},
    ],
)
def test_faster_links_never_slow_a_step(name: str, figure: str, degrees: dict[str, Any]) -> None:
    """Tests that doubling NVLink or NIC makes no step slower, on 32 GPUs in 4 domains."""
    where = problem(name, gpus=32)
    layout = _layout(where, **degrees)
    faster = with_links(where, **{figure: 2.0})
    assert step_time(faster, layout).step_us <= step_time(where, layout).step_us


def test_groups_of_one_do_not_communicate() -> None:
    """Tests zero time of TP, EP, ETP, DP and pipeline exchange where there is no other rank."""
    where = problem("toy-moe")
    exchange = tp_exchange_us(where, 1, 4096, 1024)
    assert (exchange.forward, exchange.backward) == (0, 0)
    assert dispatch_us(where, 4096, 1, 1, "alltoall", 0, 0) == 0
    assert p2p_us(where, 1, 1, 1, 1, 1) == 0
    for kind in where.kinds:
        assert dense_exchange_us(where, kind, 1, 1, 1) == 0
        assert expert_exchange_us(where, kind, 1, 1, 1) == 0


@pytest.mark.parametrize(("ep", "factor"), [(1, 1), (2, 2), (4, 3)])
def test_the_busiest_expert_rank_has_all_tokens_at_most(ep: int, factor: int) -> None:
    """Tests an imbalance of 3: at most ep times the mean, so nothing changes on one rank."""
    even = problem("toy-moe")
    three, capped = (
        dataclasses.replace(even, training=Training(load_imbalance=value))
        for value in (3.0, float(factor))
    )
    for term, flags in ((experts_us, (0, 0, 0)), (dispatch_us, (0, 0))):
        uneven = term(three, 4096, ep, 1, "alltoall", *flags)
        assert uneven == term(capped, 4096, ep, 1, "alltoall", *flags)
        assert (uneven > term(even, 4096, ep, 1, "alltoall", *flags)) == (factor > 1)


def test_one_context_rank_does_not_communicate() -> None:
    """Tests that with cp = 1 how keys would be exchanged changes nothing."""
    where = problem("toy-moe")
    kind = where.kinds[0]
    choices = ("p2p", "a2a", "a2a+p2p", "all_gather")
    assert len({core_us(where, kind, 1, 1, 1, choice, 0, 0) for choice in choices}) == 1


def test_group_bandwidth_is_nvlink_inside_a_domain() -> None:
    """Tests that 8 GPUs of a node get the same rate at any size, and 16 no more than these."""
    where = problem("toy-moe", gpus=32)
    inside = {group_bytes_per_us(where, size, 1) for size in (2, 4, 8)}
    assert len(inside) == 1
    assert group_bytes_per_us(where, 16, 1) <= inside.pop()
    assert group_bytes_per_us(where, 4, 8) < group_bytes_per_us(where, 16, 2)


def test_recompute_never_saves_time() -> None:
    """Tests that each module, and full recompute, makes a layer at least as slow."""
    for name in ("toy-moe", "deepseek-v3"):
        where = problem(name)
        plain = _layout(where, ep=8, dp=8)
        for module in ("core_attn", "moe_act", "layernorm", "mla_up_proj", "mlp", "moe"):
            if module == "mla_up_proj" and where.model.attention != "mla":
                continue
            more = dataclasses.replace(plain, recompute=(module,))
            for kind in where.kinds:
                assert layer_us(where, more, kind) >= layer_us(where, plain, kind)
        full = dataclasses.replace(plain, recompute_full=True)
        for kind in where.kinds:
            assert layer_us(where, full, kind) > layer_us(where, plain, kind)


def test_longer_sequences_are_not_faster() -> None:
    """Tests that doubling the tokens makes a layer slower, and attention more than twice so."""
    short, long = problem("llama-3.1-8b"), problem("llama-3.1-8b", seq_len=131072)
    kind = LayerKind("gqa", "dense")
    layout = _layout(short)
    assert layer_us(long, layout, kind) > 32 * layer_us(short, layout, kind)


def test_expected_groups_of_top_k() -> None:
    """Tests the expected number of groups: all for top-k of all, 1 for one group, by hand."""
    assert expected_groups(8, 2, 1) == 1
    assert expected_groups(8, 8, 4) == pytest.approx(4)
    assert expected_groups(8, 1, 4) == pytest.approx(1)
    # Two of four experts in two groups: the second is in the other group in 2 of 3 cases.
    assert expected_groups(4, 2, 2) == pytest.approx(1 + 2 / 3)


def test_router_groups_cap_the_nodes() -> None:
    """Tests DeepSeek-V3: 4 of 8 groups at most, so at most 4 of 8 nodes."""
    where = problem("deepseek-v3", gpus=64)
    assert expected_nodes(where, 8) <= 4
    assert expected_groups(256, 8, 8) > 4


# -- the step --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("pp", "vpp", "ga"), [(1, 1, 4), (2, 1, 8), (2, 2, 8), (4, 1, 16)])
def test_equal_slots_make_the_bubble_formula(pp: int, vpp: int, ga: int) -> None:
    """Tests B*(ga + (pp-1)/vpp) for equal slots: fill and drain are (pp-1)/vpp micro-batches.

    The ends and p2p are taken away, so that the slots are equal: what remains of a rank is its
    layers.
    """
    where = problem("toy-dense")  # 4 layers
    where = dataclasses.replace(
        where, model=where.model.model_copy(update={"layers": 2 * pp * vpp})
    )
    layout = _layout(where, (2 * vpp,) * pp, vpp, ga=ga, gbs=ga)
    one = layer_us(where, layout, where.kinds[0])
    time = step_time(where, layout)
    p2p = evaluate(p2p_us, where, layout)
    loss = evaluate(loss_us, where, layout)
    # The last rank is the slowest: its layers, the loss (above the embedding), and p2p.
    assert time.rank_us[-1] == 2 * vpp * one + loss + vpp * p2p or pp == 1
    assert time.slot_us >= 2 * one + p2p
    rank = 2 * vpp * one
    ideal = rank * (ga + (pp - 1) / vpp)
    ends = time.bottleneck_us - rank
    heaviest = time.slot_us - 2 * one
    rest = time.exchange_us + time.optimizer_us + 20_000
    assert time.step_us == pytest.approx(ideal + ga * ends + (pp - 1) * heaviest + rest)


def test_step_is_the_sum_of_its_parts() -> None:
    """Tests ga*B + bubble + exchange + optimizer + 20 ms on a real layout."""
    where = problem("deepseek-v3", gpus=256, seq_len=131072)
    layout = _layout(
        where, (7, 8, 8, 8, 8, 8, 8, 6), 4, cp=32, ep=32, ga=256, gbs=256, dispatcher="deepep"
    )
    time = step_time(where, layout)
    # The last rank holds one layer in its first chunk and two in its last, with MTP and loss.
    slots = [
        slot_us(where, layout, slot) + evaluate(p2p_us, where, layout) for slot in layout.slots
    ]
    assert time.bottleneck_us == sum(max(slots[8 * v : 8 * v + 8]) for v in range(4))
    assert time.bottleneck_us > max(time.rank_us)
    assert time.waiting_us(256) == 256 * (time.bottleneck_us - max(time.rank_us))
    assert time.bubble_us == 7 * time.slot_us
    assert time.step_us == (
        256 * time.bottleneck_us + time.bubble_us + time.exchange_us + time.optimizer_us + 20_000
    )


def test_step_grows_linearly_with_micro_batches() -> None:
    """Tests that a micro-batch more costs what the slowest rank takes (one slot a rank)."""
    where = problem("toy-moe")
    eight = step_time(where, _layout(where, (3, 3), ga=8))
    nine = step_time(where, _layout(where, (3, 3), ga=9))
    assert nine.step_us - eight.step_us == eight.bottleneck_us
