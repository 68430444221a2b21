"""Limits and monotonicity of the step time over random legal layouts of shipped models.

Nothing here depends on the fitted constants: it holds for any efficiencies up to 1.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from meshplan.constraints.context import inner_a2a
from meshplan.constraints.layout import Layout
from meshplan.constraints.pipeline import balanced_slots
from meshplan.constraints.problem import Problem
from meshplan.scenarios.flops import flops_per_token
from meshplan.scenarios.parameters import layer_parameters
from meshplan.solver.time.step import layer_parts_us, layer_us, step_time
from tests.constraints.factories import problem
from tests.solver.time.legal_layouts import cases, problems, with_links

MANY = settings(suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
CASES = cases()
#: Figures of the links in a node type.
LINKS = ("nvlink_gbps", "nic_gbps", "host_link_gbps")
#: Nothing lost: what the roofline must hold for as well, whatever a calibration says.
PERFECT = {
    "gemm_bf16": 1.0, "gemm_fp8": 1.0, "gemm_hopper_bf16_factor": 1.0, "gemm_nvfp4_factor": 1.0,
    "gemm_blockwise_factor": 1.0, "attention_hopper": 1.0, "attention_blackwell": 1.0,
    "attention_mla_hopper": 1.0, "attention_mla_blackwell": 1.0, "memory": 1.0,
    "memory_hopper_factor": 1.0, "memory_stream": 1.0, "expert_overlap": 1.0,
    "tensor_overlap": 1.0, "nvlink": 1.0, "nic_dispatch": 1.0, "nic_hybridep": 1.0,
    "host_moe_layer_ms": 0.0, "host_collective_us": 0.0,
}  # fmt: skip
#: Least bytes of a weight as an operand: 4 bits.
LEAST_WIDTH = {"bf16": 2.0, "nvfp4": 0.5}


def _peak(where: Problem) -> float:
    """FLOPs per microsecond of the data sheet, in the precision of the linear layers."""
    node = where.node_type
    rates = {"bf16": node.bf16_tflops, "nvfp4": node.fp4_tflops or node.fp8_tflops}
    rate = rates.get(where.precision, node.fp8_tflops)
    assert rate is not None
    return rate * 1e6


def _with_training(where: Problem, **changes: Any) -> Problem:
    return dataclasses.replace(where, training=dataclasses.replace(where.training, **changes))


def _with_efficiencies(where: Problem, **changes: float) -> Problem:
    return dataclasses.replace(where, calibration=where.calibration.with_parameters(changes))


def _perfect(where: Problem) -> Problem:
    return _with_efficiencies(where, **PERFECT)


def _flops_us(where: Problem) -> float:
    """Least time of the model FLOPs of a token on one GPU: scores, values and logits in bf16."""
    count = flops_per_token(where.model, where.seq_len)
    bf16 = count.attention_core + count.logits
    peak = where.node_type.bf16_tflops * 1e6
    return bf16 / peak + (count.total - bf16) / max(_peak(where), peak)


@MANY
@given(CASES)
def test_no_step_beats_its_flops_at_peak(case: tuple[Problem, Layout]) -> None:
    """Tests that all GPUs together take the FLOPs of the batch at the rate of the precision."""
    where, layout = _perfect(case[0]), case[1]
    tokens = layout.gbs * where.seq_len
    assert step_time(where, layout).step_us >= tokens * _flops_us(where) / where.gpus


@MANY
@given(CASES)
def test_no_layer_beats_its_bytes(case: tuple[Problem, Layout]) -> None:
    """Tests a layer against the memory traffic that nothing avoids.

    Its weights are read forward and backward, and their gradients (at least 2 bytes) read and
    written; what is written forward for backward is left out.
    """
    where, layout = _perfect(case[0]), case[1]
    width = 2 * LEAST_WIDTH.get(where.precision, 1.0) + 2 * 2
    for kind in where.kinds:
        held = layer_parameters(where.model, kind, tp=layout.tp, ep=layout.ep, etp=layout.etp)
        least = (held.dense + held.expert) * width / (where.node_type.hbm_tbps * 1e6)
        assert sum(layer_parts_us(where, layout, kind).values()) >= least
        assert layer_us(where, layout, kind) >= least


@MANY
@given(CASES)
def test_optimizer_reads_and_writes_its_state(case: tuple[Problem, Layout]) -> None:
    """Tests that the optimizer moves at least 12 bytes for each parameter that a GPU owns.

    Gradient, moments and weight are read, moments and weight written, at 2 bytes each.
    """
    where, layout = _perfect(case[0]), case[1]
    kinds = where.kind_counts
    owned = 0.0
    for kind, count in kinds.items():
        held = layer_parameters(where.model, kind, tp=layout.tp, ep=layout.ep, etp=layout.etp)
        shared = held.dense / (layout.dp * layout.cp) + held.expert / layout.edp
        owned += shared * count / layout.pp  # the mean rank; the fullest has as many or more
    least = owned * 12 / (where.node_type.hbm_tbps * 1e6)
    assert step_time(where, dataclasses.replace(layout, offload=0)).optimizer_us >= least


@MANY
@given(CASES, st.sampled_from(LINKS), st.sampled_from((2.0, 7.0)))
def test_a_faster_link_never_slows_a_step(
    case: tuple[Problem, Layout], link: str, factor: float
) -> None:
    """Tests NVLink, the NIC and the link to the host, each made faster alone."""
    where, layout = case
    faster = with_links(where, **{link: factor})
    assert step_time(faster, layout).step_us <= step_time(where, layout).step_us


@MANY
@given(CASES)
def test_oversubscription_never_speeds_a_step(case: tuple[Problem, Layout]) -> None:
    """Tests a network above the leaves that carries half, one node to a leaf."""
    where, layout = case
    near, far = (
        dataclasses.replace(
            where,
            cluster=dataclasses.replace(where.cluster, nodes_per_leaf=1, oversubscription=factor),
        )
        for factor in (1.0, 2.0)
    )
    assert step_time(near, layout).step_us <= step_time(far, layout).step_us


@MANY
@given(CASES)
def test_faster_gpus_never_slow_a_step(case: tuple[Problem, Layout]) -> None:
    """Tests doubled memory bandwidth and doubled peaks."""
    where, layout = case
    step = step_time(where, layout).step_us
    peaks = {
        name: 2.0
        for name in ("bf16_tflops", "fp8_tflops", "fp4_tflops")
        if getattr(where.node_type, name)
    }
    for faster in ({"hbm_tbps": 2.0}, peaks):
        assert step_time(with_links(where, **faster), layout).step_us <= step


@MANY
@given(CASES, st.sampled_from(("overlap_expert_communication", "overlap_tensor_communication")))
def test_overlap_never_slows_a_step(case: tuple[Problem, Layout], setting: str) -> None:
    """Tests each overlap setting, on against off."""
    where, layout = case
    on, off = (_with_training(where, **{setting: value}) for value in (True, False))
    assert step_time(on, layout).step_us <= step_time(off, layout).step_us


@MANY
@given(CASES, st.sampled_from(("expert_overlap", "tensor_overlap")), st.data())
def test_more_overlap_never_slows_a_step(
    case: tuple[Problem, Layout], share: str, data: st.DataObject
) -> None:
    """Tests the hidden share of the communication, which a calibration gives: from 0 to 1."""
    where, layout = case
    where = _with_training(
        where, overlap_expert_communication=True, overlap_tensor_communication=True
    )
    low, high = sorted(data.draw(st.tuples(*[st.floats(0, 1)] * 2)))
    less, more = (_with_efficiencies(where, **{share: value}) for value in (low, high))
    assert step_time(more, layout).step_us <= step_time(less, layout).step_us


@MANY
@given(CASES)
def test_graphs_of_the_whole_step_never_slow_it(case: tuple[Problem, Layout]) -> None:
    """Tests that launches that cost nothing make no step slower."""
    where, layout = case
    graphs = _with_training(where, full_iteration_graph=True)
    assert step_time(graphs, layout).step_us <= step_time(where, layout).step_us


@MANY
@given(problems(), st.data())
def test_one_gpu_does_not_communicate(where: Problem, data: st.DataObject) -> None:
    """Tests that where every group has one rank no link matters, however slow."""
    layout = data.draw(_alone(where))
    here = _with_training(where, activation_offload=())
    cut = with_links(here, **dict.fromkeys(LINKS, 1e-9))
    assert step_time(cut, layout) == step_time(here, layout)


def _alone(where: Problem) -> st.SearchStrategy[Layout]:
    """Layouts with all degrees 1: legal or not does not matter to what is sent."""
    return st.builds(
        Layout,
        mbs=st.sampled_from((1, 2)),
        ga=st.integers(1, 8),
        recompute_full=st.booleans(),
        dispatcher=st.sampled_from(("alltoall", "deepep", "hybridep")),
        cp_comm=st.sampled_from(("p2p", "a2a", "a2a+p2p", "all_gather")),
        slots=st.just(balanced_slots(where, 1, 1)),
    )


def _one_domain(where: Problem) -> Problem:
    """The same GPUs in one NVLink domain."""
    node = where.node_type.model_copy(update={"nvlink_domain_gpus": where.gpus})
    cluster = dataclasses.replace(where.cluster, domains=(where.gpus,), node_type=node)
    return dataclasses.replace(where, cluster=cluster)


def _ring_around_inner_groups(where: Problem, layout: Layout) -> bool:
    return layout.cp_comm == "a2a+p2p" and inner_a2a(where, layout.tp, layout.cp) < layout.cp


@MANY
@given(CASES)
def test_no_network_inside_one_domain(case: tuple[Problem, Layout]) -> None:
    """Tests that a cluster that is one NVLink domain does not depend on its NICs."""
    inside, layout = _one_domain(case[0]), case[1]
    cut = with_links(inside, nic_gbps=1e-9)
    assert step_time(cut, layout) == step_time(inside, layout)


def test_no_network_for_rings_inside_one_domain() -> None:
    """Tests a2a over 4 KV heads and a ring of 4 around them, on 16 GPUs of one rack."""
    where = problem("qwen3-235b-a22b", "gb200-nvl72", gpus=16, seq_len=65536)
    layout = Layout(cp=16, cp_comm="a2a+p2p", gbs=1, slots=balanced_slots(where, 1, 1))
    assert _ring_around_inner_groups(where, layout)
    cut = with_links(where, nic_gbps=1e-9)
    assert step_time(cut, layout) == step_time(where, layout)


@MANY
@given(CASES)
def test_a_domain_border_never_speeds_a_step(case: tuple[Problem, Layout]) -> None:
    """Tests that the same GPUs in one NVLink domain are at least as fast as in several.

    NICs that are slower than NVLink, as all are.
    """
    where, layout = case
    assert step_time(_one_domain(where), layout).step_us <= step_time(where, layout).step_us
