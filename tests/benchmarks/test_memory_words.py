"""What the texts in rows of measured runs are read as."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import memory_words as words
from benchmarks.memory_words import Dispatch, Unusable


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("torch max_memory_allocated", words.ALLOCATED),
        ("mem-max-allocated-bytes (log)", words.ALLOCATED),
        ("peak allocated after iteration 2", words.ALLOCATED),
        ("real peak allocated (1 decimal)", words.ALLOCATED),
        ("allocated between iterations", words.RESIDENT),
        ("allocated after iteration 1", words.UNSTATED),
        ("script comment; tool log = max_memory_reserved over model-parallel group",
         words.RESERVED),
        ("peak observed GPU memory (81,005 MiB, device level)", words.DEVICE),
        ("nvidia-smi", words.DEVICE),
        ("GPU memory as stated", words.UNSTATED),
        ("peak", words.UNSTATED),
    ],
)  # fmt: skip
def test_kinds_of_figure(text: str, kind: str) -> None:
    """Tests that only figures of the allocator's peak are in the headline."""
    assert words.figure_kind(text) == kind


@pytest.mark.parametrize(
    ("text", "precision", "kept"),
    [
        ("bf16", "bf16", "auto"),
        ("mxfp8", "mxfp8", "auto"),
        ("nvfp4", "nvfp4", "auto"),
        ("fp8 blockwise", "fp8-block", None),
        ("fp8 blockwise + param gather", "fp8-block", True),
        ("fp8 tensorwise hybrid", "fp8-tensor", None),
        ("fp8", "fp8-tensor", None),
        ("fp8_cs", "fp8-current", None),
        ("fp8 current scaling", "fp8-current", None),
    ],
)
def test_precisions(text: str, precision: str, kept: object) -> None:
    """Tests the names of number formats; None: the source's default decides."""
    assert words.precision(text) == (precision, kept)


def test_ranks() -> None:
    """Tests that a figure is of the rank that it names, or the largest."""
    assert words.rank_of("s1", 2) == 1
    assert words.rank_of("stage 0", 4) == 0
    assert words.rank_of("last/logging rank", 4) == 3
    for text in ("", "all", "max over ranks (predicted rank 2)"):
        assert words.rank_of(text, 4) is None
    with pytest.raises(Unusable, match="rank 's7' of 4"):
        words.rank_of("s7", 4)


def test_notes_are_read_by_fixed_words_only() -> None:
    """Tests the vocabulary, and that other prose changes nothing."""
    notes = words.notes("TE 2.11, SP off; MTP 1; no grad-accum fusion, dropout 0.1, layout EtL")
    assert notes.transformer_engine == "2.11"
    assert notes.mtp == 1
    assert notes.layout == "EtL"
    assert notes.settings == {
        "sequence_parallel": False, "gradient_accumulation_fusion": False, "hidden_dropout": 0.1,
    }  # fmt: skip
    plain = words.notes("layout in card; 1226 TF/s/GPU; bf16 weights; natural routing")
    assert (plain.layout, plain.mtp, plain.settings) == ("", None, {})
    assert plain.flags == ("natural routing",)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("", {}),
        ("fp32", {"moment_dtype": "fp32", "gradient_dtype": "fp32"}),
        ("fp32, not precision-aware",
         {"precision_aware_optimizer": False, "moment_dtype": "fp32", "gradient_dtype": "fp32"}),
        ("precision-aware, bf16 m/v", {"precision_aware_optimizer": True, "moment_dtype": "bf16"}),
        ("precision-aware: fp32 main, bf16 grads, bf16 m/v",
         {"precision_aware_optimizer": True, "moment_dtype": "bf16", "gradient_dtype": "bf16"}),
        # The optimizer's copy in fp32 says nothing of the buffer.
        ("precision_aware=False main_grads=float32 main_params=float32 exp_avg=float32",
         {"precision_aware_optimizer": False, "moment_dtype": "fp32"}),
        ("precision_aware=True grads=bfloat16 params=float32 m=bfloat16 v=bfloat16",
         {"precision_aware_optimizer": True, "moment_dtype": "bf16", "gradient_dtype": "bf16"}),
    ],
)  # fmt: skip
def test_optimizers(text: str, read: dict[str, Any]) -> None:
    """Tests formats of gradients and moments; what is not stated stays open."""
    assert words.optimizer(text) == read


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("", None),
        ("none (recipe@HEAD)", ("none", {})),
        ("full", ("full", {})),
        ("full uniform 1", ("full", {"recompute_method": "uniform", "recompute_num_layers": 1})),
        ("granularity=full method=block num_layers=5",
         ("full", {"recompute_method": "block", "recompute_num_layers": 5})),
        ("selective", (["core_attn"], {})),
        ("selective: []", ("none", {})),
        ("selective: up_proj,norm,moe,mlp", (["layernorm", "mla_up_proj", "mlp", "moe"], {})),
        ("granularity=selective modules=[moe_act,layernorm]", (["moe_act", "layernorm"], {})),
    ],
)  # fmt: skip
def test_recompute(text: str, read: object) -> None:
    """Tests the ways to write recompute."""
    assert words.recompute(text) == read


@pytest.mark.parametrize(
    ("text", "scopes"),
    [
        ("", "none"),
        ("no", "none"),
        ("none (recipe@HEAD)", "none"),
        ("impl=none scope=full", "none"),
        ("disabled", "none"),
        ("TE attn+mamba+router+preprocess", ["attn", "mamba", "moe_router", "moe_preprocess"]),
        ("transformer_engine: moe_router,moe_preprocess", ["moe_router", "moe_preprocess"]),
        ("impl=transformer_engine scope=[mlp]", ["mlp"]),
        ("yes (TE)", ["attn"]),
    ],
)
def test_graphs(text: str, scopes: object) -> None:
    """Tests scopes of CUDA graphs; without scopes it is attention, and flagged."""
    found, flag = words.graphs(text)
    assert found == scopes
    assert bool(flag) == text.startswith("yes")


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("", Dispatch("", False, 1.0)),
        ("+ EP overlap", Dispatch("", True, 1.0)),
        ("flex (DeepEP/HybridEP)", Dispatch("flex", False, 1.0)),
        ("type=flex backend=hybridep", Dispatch("hybridep", False, 1.0)),
        ("type=alltoall backend=deepep", Dispatch("alltoall", False, 1.0)),
        ("DeepEP + EP overlap", Dispatch("deepep", True, 1.0)),
        ("alltoall, capacity factor 1 padded", Dispatch("alltoall", False, 1.0)),
        ("capacity factor 2", Dispatch("alltoall", False, 2.0)),
    ],
)
def test_dispatchers(text: str, read: Dispatch) -> None:
    """Tests dispatchers, their overlap, and the load of the busiest rank."""
    assert words.dispatcher(text) == read


def test_offload() -> None:
    """Tests shares of the optimizer state, and modules of activations."""
    assert [words.optimizer_offload(text) for text in ("", "0.25", "1.0")] == [0, 0.25, 1]
    assert words.optimizer_offload("yes (optimizer-cpu-offload)") == 1
    assert words.activation_offload("core_attn attn_proj") == ["core_attn", "attn_proj"]
    assert words.activation_offload("modules=[] fraction=1.0") == "none"


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (words.optimizer, "dist muon"),
        (words.optimizer_offload, "offload_optimizer_states (FGO)"),
        (words.activation_offload, "fine-grained"),
        (words.recompute, "selective: core_attn,gdn_norm_out"),
        (words.graphs, "full iteration, paged stash factor 1.5"),
        (words.graphs, "impl=local scope=full_iteration"),
        (words.dispatcher, "NCCL EP, capacity 1.5"),
        (words.dispatcher, "allgather"),
        (words.cross_entropy, "chunked"),
        (words.precision, "fp16"),
        (words.precision, ""),
        (words.figure_kind, "ANALYTIC (tool output, not measured)"),
        (words.notes, "vision-language run"),
    ],
)
def test_unmodelled_settings_are_refused(read: Any, text: str) -> None:
    """Tests that what a scenario cannot express is a reason to leave the row out."""
    with pytest.raises(Unusable):
        read(text)
