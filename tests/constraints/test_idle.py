"""Settings that change nothing are named with value and reason; those with effect are not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshplan.constraints.idle import idle_settings, offloaded_modules
from meshplan.constraints.layout import Layout
from meshplan.constraints.pipeline import slots_from_counts
from meshplan.constraints.problem import Problem, Training
from tests.constraints.factories import problem

DEEPSEEK = problem("deepseek-v3", gpus=64)
LLAMA = problem("llama-3.1-8b", gpus=8)
QWEN = problem("qwen3-30b-a3b", gpus=8)  # all layers have experts, none of them shared


def told(where: Problem, what: Layout, **training: object) -> str:
    """All sentences, with these settings of the training recipe."""
    changed = replace(where, training=replace(Training(), **training))  # type: ignore[arg-type]
    return "; ".join(idle_settings(changed, what))


def test_nothing_is_said_of_settings_with_effect() -> None:
    """Tests each setting where it does something."""
    modules = ("attn_norm", "qkv_linear", "core_attn", "attn_proj", "mlp_norm", "expert_fc1")
    selective = Layout(recompute=("moe_act", "mla_up_proj", "mlp", "shared_experts", "layernorm"))
    assert told(DEEPSEEK, Layout(), activation_offload=modules) == ""
    assert told(DEEPSEEK, selective, activation_offload=("moe_act", "expert_fc1")) == ""
    full = Layout(recompute_full=True)
    assert told(DEEPSEEK, full, recompute_method="block", recompute_layers=2) == ""
    assert told(DEEPSEEK, Layout(), load_imbalance=1.5, fused_grouped_mlp=True) == ""


def test_offload_beside_full_recompute() -> None:
    """Tests that nothing is left to offload, but for layers that ``block`` leaves alone."""
    offload = {"activation_offload": ("core_attn", "moe_act")}
    full = Layout(recompute_full=True, pp=2, slots=slots_from_counts((31, 30)))
    assert told(DEEPSEEK, full, **offload) == (
        "options.activation_offload of core_attn, moe_act: recompute = full saves nothing of it "
        "that could be moved; leave out one of the two"
    )
    assert told(DEEPSEEK, full, recompute_method="block", recompute_layers=30, **offload) == ""
    assert "recompute = full" in told(
        DEEPSEEK, full, recompute_method="block", recompute_layers=31, **offload
    )


def test_offload_of_what_a_module_recomputes() -> None:
    """Tests MLA: recompute of the up-projection keeps no input of the attention core."""
    layout = Layout(recompute=("mla_up_proj",))
    found = told(DEEPSEEK, layout, activation_offload=("core_attn", "attn_norm"))
    assert "of core_attn: recompute = [mla_up_proj]" in found and "attn_norm" not in found


@pytest.mark.parametrize(
    ("training", "words"),
    [
        ({"recompute_method": "block"}, "training.recompute_method = block: only full recompute"),
        ({"recompute_layers": 4}, "training.recompute_num_layers = 4: only full recompute"),
    ],
)
def test_settings_of_full_recompute(training: dict[str, object], words: str) -> None:
    """Tests that they are told with selective recompute and with none."""
    assert words in told(LLAMA, Layout(), **training)
    assert "has no recompute" in told(LLAMA, Layout(), **training)
    assert "has recompute [mlp]" in told(LLAMA, Layout(recompute=("mlp",)), **training)


def test_recompute_of_parts_that_are_not_there() -> None:
    """Tests a dense model, and one without dense layers and shared experts."""
    words = "has no layer where this is recomputed; leave it out"
    found = told(LLAMA, Layout(recompute=("layernorm", "moe", "mlp")))
    assert found == f"recompute of layernorm, moe: llama-3.1-8b {words}"
    found = told(QWEN, Layout(recompute=("mlp", "shared_experts", "layernorm")))
    assert found == f"recompute of mlp, shared_experts: qwen3-30b-a3b {words}"


def test_recompute_inside_recompute() -> None:
    """Tests that ``moe`` runs its activation and the shared experts again by itself."""
    found = told(DEEPSEEK, Layout(recompute=("moe_act", "moe", "shared_experts")))
    assert found == ("recompute of moe_act, shared_experts: moe runs it again anyway; leave it out")


def test_settings_of_experts_and_formats() -> None:
    """Tests those of experts in a dense model, and FP8 weights in bf16."""
    found = told(LLAMA, Layout(), load_imbalance=1.5, fused_grouped_mlp=True, fp8_parameters=True)
    assert "training.load_imbalance = 1.5, training.fused_grouped_mlp = true" in found
    assert "training.fp8_parameters = true: with bf16 nothing is kept in FP8" in found
    found = told(LLAMA, Layout(), activation_offload=("expert_fc1", "mlp_norm"))
    assert "of expert_fc1: llama-3.1-8b has no such part" in found
    assert "of mlp_norm: Transformer Engine fuses this norm" in found


def test_offload_that_a_graph_keeps_in_place() -> None:
    """Tests norms beside captured parts, as Megatron-Core's ``_set_offload_modules`` has it."""
    norms = ("attn_norm", "mlp_norm")
    text = "Megatron-Core leaves it on the GPU; leave out one of the two"
    found = told(DEEPSEEK, Layout(cuda_graphs=("attn", "moe_router")), activation_offload=norms)
    assert f"of attn_norm: beside a CUDA graph of attn {text}" in found
    assert f"of mlp_norm: beside a CUDA graph of attn and moe_router {text}" in found
    found = told(DEEPSEEK, Layout(cuda_graphs=("moe_router",)), activation_offload=norms)
    assert "attn_norm" not in found and "of mlp_norm: beside a CUDA graph of moe_router" in found
    found = told(LLAMA, Layout(cuda_graphs=("attn",)), activation_offload=norms)
    assert "graph" not in found and "attn_norm, mlp_norm: Transformer Engine fuses" in found


def test_one_voice_about_offload_inside_recomputed_experts() -> None:
    """Tests that what a rule refuses is not called legal but idle as well."""
    inside = {"activation_offload": ("expert_fc1", "moe_act", "core_attn")}
    assert told(DEEPSEEK, Layout(recompute=("moe",)), **inside) == ""
    full = told(DEEPSEEK, Layout(recompute_full=True), **inside)
    assert "of expert_fc1, moe_act, core_attn: recompute = full" in full


def test_offload_as_results_show_it() -> None:
    """Tests that only what moves is told as being on the host."""
    training = replace(Training(), activation_offload=("attn_norm", "core_attn", "expert_fc1"))
    for where, what, expected in (
        (DEEPSEEK, Layout(), ("attn_norm", "core_attn", "expert_fc1")),
        (DEEPSEEK, Layout(recompute=("moe",), cuda_graphs=("attn",)), ("core_attn",)),
        (LLAMA, Layout(), ("core_attn",)),
        (LLAMA, Layout(recompute_full=True), ()),
    ):
        assert offloaded_modules(replace(where, training=training), what) == expected
