"""Training arguments of Megatron-LM for a layout: how the comparison asks the real package.

Arguments that no decision of meshplan reaches take the values that every current recipe has: bf16
beside the low-precision formats, RMSNorm, RoPE, the distributed optimizer, grouped expert GEMMs.
"""

from __future__ import annotations

from collections.abc import Iterator

from meshplan.constraints.context import inner_a2a
from meshplan.constraints.layout import Layout
from meshplan.constraints.problem import Problem
from meshplan.scenarios.model_card import ModelCard

#: ``fp8_recipe`` of each 8-bit precision.
FP8_RECIPES = {
    "fp8-tensor": "delayed",
    "fp8-current": "tensorwise",
    "fp8-block": "blockwise",
    "mxfp8": "mxfp8",
}
#: Flags of the even split, by whether embedding and loss count as a layer each.
_ACCOUNT = ("--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split")

_ALWAYS = [
    "--bf16",
    "--normalization",
    "RMSNorm",
    "--position-embedding-type",
    "rope",
    "--no-rope-fusion",
    "--use-distributed-optimizer",
    "--attention-dropout",
    "0",
    "--hidden-dropout",
    "0",
    "--mock-data",
    "--train-iters",
    "10",
    "--lr",
    "1e-4",
    "--tokenizer-type",
    "NullTokenizer",
]


def arguments(problem: Problem, layout: Layout, account: tuple[int, int] = (0, 0)) -> list[str]:
    """Command line of the training script.

    Parameters
    ----------
    problem, layout
        What is asked.  ``problem.layout_string`` is passed on as it stands; with
        ``problem.even_split`` the framework splits the layers itself.
    account
        For the even split: whether the embedding and the loss count as a layer each.
    """
    parts = (_model, _attention, _experts, _degrees, _options, _precision)
    words = [word for part in parts for word in part(problem, layout)]
    return [*_ALWAYS, *words, *_split(problem, layout, account)]


def _model(problem: Problem, _: Layout) -> Iterator[str]:
    model = problem.model
    yield from ("--num-layers", str(model.layers), "--hidden-size", str(model.hidden))
    yield from ("--vocab-size", str(model.vocab))
    yield from ("--make-vocab-size-divisible-by", str(model.vocab_divisor))
    length = str(problem.seq_len)
    yield from ("--seq-length", length, "--max-position-embeddings", length)
    if model.ffn is not None:
        yield from ("--ffn-hidden-size", str(model.ffn))
    if model.gated:
        yield "--swiglu"
    if not model.tied_embeddings:
        yield "--untie-embeddings-and-output-weights"
    if not model.mlp_bias:
        yield "--disable-bias-linear"
    if model.mtp_layers:
        yield from ("--mtp-num-layers", str(model.mtp_layers))


def _attention(problem: Problem, _: Layout) -> Iterator[str]:
    model = problem.model
    yield from ("--num-attention-heads", str(model.heads), "--kv-channels", str(model.head_dim))
    if model.attention == "mla":
        yield from ("--multi-latent-attention", "--kv-lora-rank", str(model.kv_lora_rank))
        if model.q_lora_rank:
            yield from ("--q-lora-rank", str(model.q_lora_rank))
        yield from ("--qk-head-dim", str(model.qk_nope_head_dim))
        yield from ("--qk-pos-emb-head-dim", str(model.qk_rope_head_dim))
        yield from ("--v-head-dim", str(model.v_head_dim))
    else:
        yield from ("--group-query-attention", "--num-query-groups", str(model.kv_groups))
    if model.attention_bias:
        yield "--add-qkv-bias"
    if model.attention_sinks:
        yield from ("--softmax-type", "learnable")
    if model.attention_output_gate:
        yield "--attention-output-gate"
    yield from _delta_net(model)


def _delta_net(model: ModelCard) -> Iterator[str]:
    kinds = [kind.attention for kind in model.layer_kinds]
    if "gdn" not in kinds:
        return
    yield from ("--experimental-attention-variant", "gated_delta_net")
    frequency = [int(kind == "gdn") for kind in kinds]
    yield from ("--linear-attention-freq", str(frequency).replace(" ", ""))
    yield from ("--linear-num-key-heads", str(model.gdn_key_heads))
    yield from ("--linear-num-value-heads", str(model.gdn_value_heads))
    yield from ("--linear-key-head-dim", str(model.gdn_key_dim))
    yield from ("--linear-value-head-dim", str(model.gdn_value_dim))


def _experts(problem: Problem, layout: Layout) -> Iterator[str]:
    model = problem.model
    if layout.dispatcher == "alltoall":
        yield from ("--moe-token-dispatcher-type", "alltoall")
    else:
        yield from ("--moe-token-dispatcher-type", "flex")
        yield from ("--moe-flex-dispatcher-backend", layout.dispatcher)
    if not model.is_moe:
        return
    yield from ("--num-experts", str(model.experts), "--moe-router-topk", str(model.topk))
    yield from ("--moe-ffn-hidden-size", str(model.moe_ffn), "--moe-grouped-gemm")
    if model.topk == 1:  # softmax over one expert alone would have no gradient
        yield "--moe-router-pre-softmax"
    if model.dense_layers:
        frequency = f"([0]*{model.dense_layers}+[1]*{model.layers - model.dense_layers})"
        yield from ("--moe-layer-freq", frequency)
    if model.shared_ffn is not None:
        yield from ("--moe-shared-expert-intermediate-size", str(model.shared_ffn))
    if model.shared_expert_gate:
        yield "--moe-shared-expert-gate"
    if model.router_groups is not None:
        yield from ("--moe-router-num-groups", str(model.router_groups))
        yield from ("--moe-router-group-topk", str(model.router_topk_groups))


def _degrees(problem: Problem, layout: Layout) -> Iterator[str]:
    yield from ("--tensor-model-parallel-size", str(layout.tp))
    if layout.tp > 1 and problem.training.sequence_parallel:
        yield "--sequence-parallel"
    yield from ("--pipeline-model-parallel-size", str(layout.pp))
    yield from ("--context-parallel-size", str(layout.cp))
    yield from ("--expert-model-parallel-size", str(layout.ep))
    yield from ("--expert-tensor-parallel-size", str(layout.etp))
    yield from ("--micro-batch-size", str(layout.mbs), "--global-batch-size", str(layout.gbs))
    yield from ("--cp-comm-type", layout.cp_comm)
    if layout.cp_comm == "a2a+p2p":
        inner = inner_a2a(problem, layout.tp, layout.cp)
        sizes = (str(inner), str(layout.cp // inner))
        yield from ("--hierarchical-context-parallel-sizes", *sizes)


def _options(problem: Problem, layout: Layout) -> Iterator[str]:
    if layout.recompute_full:
        yield from ("--recompute-granularity", "full", "--recompute-method", "uniform")
        yield from ("--recompute-num-layers", "1")
    elif layout.recompute:
        yield from ("--recompute-granularity", "selective")
        yield from ("--recompute-modules", *layout.recompute)
    if layout.cuda_graphs:
        yield from ("--cuda-graph-impl", "transformer_engine")
        yield from ("--cuda-graph-modules", *layout.cuda_graphs)
    if layout.offload:
        yield from ("--optimizer-cpu-offload", "--optimizer-offload-fraction")
        yield str(layout.offload / 100)
    if problem.training.activation_offload:
        yield from ("--fine-grained-activation-offloading", "--offload-modules")
        yield from problem.training.activation_offload
    if problem.training.overlap_expert_communication:
        yield "--overlap-moe-expert-parallel-comm"
    if problem.training.cross_entropy == "native":
        yield "--cross-entropy-loss-fusion"


def _precision(problem: Problem, layout: Layout) -> Iterator[str]:
    training = problem.training
    aware = problem.precision_aware(layout.offload)
    if aware:
        yield "--use-precision-aware-optimizer"
    if training.moment_bytes == 2:
        yield from ("--exp-avg-dtype", "bf16", "--exp-avg-sq-dtype", "bf16")
    if training.gradient_bytes == 2:
        yield from ("--main-grads-dtype", "bf16") if aware else ("--grad-reduce-in-bf16",)
    if problem.precision in FP8_RECIPES:
        yield from ("--fp8-format", "hybrid", "--fp8-recipe", FP8_RECIPES[problem.precision])
    elif problem.precision == "nvfp4":
        yield from ("--fp4-format", "e2m1")
    if gathers_parameters(problem, layout):
        yield "--fp4-param-gather" if problem.precision == "nvfp4" else "--fp8-param-gather"


def gathers_parameters(problem: Problem, layout: Layout) -> bool:
    """Whether weights are kept in the low precision; ``auto`` does so where it is allowed."""
    if problem.training.fp8_parameters is None and layout.offload:
        return problem.precision == "fp8-tensor"
    return problem.fp8_parameters


def _split(problem: Problem, layout: Layout, account: tuple[int, int]) -> Iterator[str]:
    if problem.layout_string is not None:
        yield from ("--pipeline-model-parallel-layout", problem.layout_string)
        return
    yield from (flag for flag, wanted in zip(_ACCOUNT, account, strict=True) if wanted)
    if layout.vpp > 1:
        yield from ("--num-virtual-stages-per-pipeline-rank", str(layout.vpp))
