"""Host time: of kernels, of collectives, and how it joins the time of the GPU."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshplan.constraints.layout import Layout
from meshplan.constraints.problem import Problem
from meshplan.constraints.terms import evaluate
from meshplan.scenarios.model_card import LayerKind
from meshplan.solver.time.host import HOST_TERMS, kernels_us, layer_time_us
from tests.constraints.factories import card, problem
from tests.solver.time.legal_layouts import cases

MICROSECONDS = st.integers(0, 10_000_000)
EXPERTS, DENSE, LATENT = (
    LayerKind("gqa", "moe"),
    LayerKind("gqa", "dense"),
    LayerKind("mla", "moe"),
)
KINDS = st.sampled_from((EXPERTS, DENSE, LayerKind("mamba", "none")))
COLLECTIVES = HOST_TERMS[1:]


def _with(where: Problem, **efficiencies: float) -> Problem:
    return dataclasses.replace(where, calibration=where.calibration.with_parameters(efficiencies))


def _calls(where: Problem, kind: LayerKind, layout: Layout) -> int:
    """Collectives that the host calls for one layer: their time, at 1 ms each."""
    unit = _with(where, host_collective_us=1000.0)
    return sum(evaluate(term, unit, layout, kind=kind) for term in COLLECTIVES) // 1000


@given(KINDS, MICROSECONDS, MICROSECONDS, st.integers(0, 1000), st.integers(0, 1000))
def test_layer_time_is_monotone(
    kind: LayerKind, gpu: int, host: int, more_gpu: int, more_host: int
) -> None:
    """Tests that a slower GPU or host never makes a layer faster."""
    more = layer_time_us(kind, gpu + more_gpu, host + more_host)
    assert more >= layer_time_us(kind, gpu, host)


@given(KINDS, MICROSECONDS, MICROSECONDS)
def test_layer_time_is_between_maximum_and_fourth_power_mean(
    kind: LayerKind, gpu: int, host: int
) -> None:
    """Tests the tangents: at least the slower of the two, at most (g^4 + h^4)^(1/4)."""
    time = layer_time_us(kind, gpu, host)
    assert time >= max(gpu, host)
    # Coefficients are rounded to a thousandth, times to a whole microsecond.
    assert time <= (gpu**4 + host**4) ** 0.25 * 1.001 + 1


@given(KINDS, MICROSECONDS)
def test_layer_time_of_one_alone_is_its_own(kind: LayerKind, time: int) -> None:
    """Tests that a host that costs nothing, or a GPU that does, leaves the other's time."""
    assert layer_time_us(kind, time, 0) == time
    assert layer_time_us(kind, 0, time) == time


def test_equal_times_overlap_in_part() -> None:
    """Tests g = h = 1000 us: 2*594 = 1188, near 1000 * 2^(1/4) = 1189."""
    assert layer_time_us(EXPERTS, 1000, 1000) == 1188


def test_without_experts_the_host_runs_ahead() -> None:
    """Tests a dense layer: nothing in it waits for the GPU, so 1000 and 1000 us take 1000."""
    assert layer_time_us(DENSE, 1000, 1000) == 1000
    assert layer_time_us(DENSE, 1000, 1001) == 1001


@pytest.mark.parametrize(
    ("model", "kind", "degrees", "calls"),
    [
        # Gather and scatter forward, three calls backward; experts take their tokens sharded.
        ("qwen3-235b-a22b", EXPERTS, {"tp": 2, "dispatcher": "deepep"}, 5),
        # So around attention and around the MLP.
        ("llama-3.1-8b", DENSE, {"tp": 8}, 10),
        # Latents of keys and values once more (3), and the shared experts like a dense MLP (5).
        ("deepseek-v3", LATENT, {"tp": 2, "dispatcher": "deepep"}, 13),
        # Three steps of a ring, forward and backward.
        ("llama-3.1-8b", DENSE, {"cp": 4, "cp_comm": "p2p"}, 6),
        # Q, K, V and output, both ways; keys and values gathered, and backward scattered.
        ("llama-3.1-8b", DENSE, {"cp": 4, "cp_comm": "a2a"}, 8),
        ("llama-3.1-8b", DENSE, {"cp": 4, "cp_comm": "all_gather"}, 6),
        # An all-to-all over 8 ranks (8), and three steps of a ring around them (6).
        ("deepseek-v3", LATENT, {"cp": 32, "cp_comm": "a2a+p2p", "dispatcher": "deepep"}, 14),
        # Three more than a fused dispatcher, which is in the time of a layer.
        ("qwen3-235b-a22b", EXPERTS, {"ep": 8, "dispatcher": "alltoall"}, 3),
        ("qwen3-235b-a22b", EXPERTS, {"ep": 8, "dispatcher": "hybridep"}, 0),
        ("qwen3-235b-a22b", EXPERTS, {"ep": 4, "etp": 2, "dispatcher": "deepep"}, 4),
        # Full recompute calls forward twice: 2*2 + 3 of attention and 2*2 + 1 of the exchange.
        ("qwen3-235b-a22b", EXPERTS, {"tp": 2, "ep": 8, "recompute_full": True}, 12),
        # What a graph captures costs nothing; the router's holds the shared experts.
        ("llama-3.1-8b", DENSE, {"tp": 8, "cp": 2, "cuda_graphs": ("attn", "mlp")}, 0),
        (
            "deepseek-v3",
            LATENT,
            {"tp": 2, "dispatcher": "deepep", "cuda_graphs": ("moe_router", "moe_preprocess")},
            8,
        ),
    ],
)  # fmt: skip
def test_collectives_are_counted(
    model: str, kind: LayerKind, degrees: dict[str, int], calls: int
) -> None:
    """Tests the calls of one layer, forward and backward."""
    where = problem(model, gpus=256, seq_len=131072)
    assert _calls(where, kind, Layout(**degrees)) == calls  # type: ignore[arg-type]


def test_overlap_of_tensor_communication_calls_nothing() -> None:
    """Tests that the matrix products then do the exchange, and the ring of CP still steps."""
    where = problem("llama-3.1-8b")
    training = dataclasses.replace(where.training, overlap_tensor_communication=True)
    overlapped = dataclasses.replace(where, training=training)
    assert _calls(where, DENSE, Layout(tp=4, cp=2)) == 12
    assert _calls(overlapped, DENSE, Layout(tp=4, cp=2)) == 2


def test_linear_attention_changes_sequence_for_heads() -> None:
    """Tests two calls forward and two backward, whatever ``cp_comm`` says, unless captured."""
    where = problem("qwen3-next-80b-a3b")
    kind = LayerKind("gdn", "moe")
    for exchange in ("p2p", "all_gather"):
        layout = Layout(cp=4, cp_comm=exchange, dispatcher="deepep")
        assert _calls(where, kind, layout) == 4
        captured = dataclasses.replace(layout, cuda_graphs=("mamba",))
        assert _calls(where, kind, captured) == 0


def test_grace_launches_more_slowly() -> None:
    """Tests 5 calls of 600 us at 1.2 times: 3600 us."""
    where = _with(problem("qwen3-235b-a22b", "gb200-nvl72", 64), host_collective_us=600.0)
    layout = Layout(tp=2, dispatcher="hybridep")
    assert sum(evaluate(term, where, layout, kind=EXPERTS) for term in COLLECTIVES) == 3600


@pytest.mark.parametrize(
    ("kind", "graphs", "share"),
    [
        (EXPERTS, (), 1.0),
        (DENSE, (), 0.4),  # both halves are like that of attention
        (LayerKind("none", "moe"), (), 0.8),
        (LayerKind("mamba", "none"), (), 0.2),
        (LayerKind("mamba", "none"), ("attn",), 0.2),  # that scope is another's
        (LayerKind("mamba", "none"), ("mamba",), 0.0),
        (EXPERTS, ("attn",), 0.8),
        (EXPERTS, ("moe_router", "moe_preprocess"), 0.6),
        (EXPERTS, ("attn", "moe_router", "moe_preprocess"), 0.4),
        (DENSE, ("attn", "mlp"), 0.0),
    ],
)
def test_kernels_are_those_of_two_halves(
    kind: LayerKind, graphs: tuple[str, ...], share: float
) -> None:
    """Tests the share of a layer with experts (6 ms), with parts of it in CUDA graphs."""
    where = _with(problem("qwen3-235b-a22b"), host_moe_layer_ms=6.0)
    layout = Layout(cuda_graphs=graphs)
    # Rounded up, and 0.6 of 6000 is a hair more than 3600 in binary.
    assert 0 <= evaluate(kernels_us, where, layout, kind=kind) - 6000 * share <= 1


@given(cases())
def test_a_graph_of_the_whole_step_launches_nothing(case: tuple[Problem, Layout]) -> None:
    """Tests all terms of the host over random legal layouts."""
    where, layout = case
    training = dataclasses.replace(where.training, full_iteration_graph=True)
    whole = dataclasses.replace(where, training=training)
    for kind in where.kinds:
        assert not any(evaluate(term, whole, layout, kind=kind) for term in HOST_TERMS)


def test_the_card_says_which_layers_wait() -> None:
    """Tests that DeepSeek-V3 has both kinds: three dense layers, then those with experts."""
    kinds = [kind.mlp for kind in card("deepseek-v3").layer_kinds]
    assert kinds.count("dense") == 3 and set(kinds[3:]) == {"moe"}
