"""Where rules come from: the places in the framework's code that several rules share.

Rules carry the ids and formulas of Megatron-LM at commit d98e8a64 (0.20.0 in development),
compared with megatron-core 0.19; Megatron-Bridge is read at 067f987.
"""

from __future__ import annotations

_CORE = "Megatron-LM d98e8a64 megatron/core/"
_BRIDGE = "Megatron-Bridge 067f987 src/megatron/bridge/"

PARALLEL_STATE = _CORE + "parallel_state.py initialize_model_parallel"
TRANSFORMER_CONFIG = _CORE + "transformer/transformer_config.py TransformerConfig.__post_init__"
OPTIMIZER_CONFIG = _CORE + "optimizer/optimizer_config.py OptimizerConfig.__post_init__"
VALIDATE_ARGS = "Megatron-LM d98e8a64 megatron/training/arguments.py validate_args"
SCHEDULES = _CORE + "pipeline_parallel/schedules.py forward_backward_pipelining_with_interleaving"
MICROBATCHES = _CORE + "num_microbatches_calculator.py"
TP_LAYERS = _CORE + "tensor_parallel/layers.py ColumnParallelLinear, RowParallelLinear"
TP_MAPPINGS = _CORE + "tensor_parallel/mappings.py _split_along_first_dim"
SELF_ATTENTION = _CORE + "transformer/attention.py SelfAttention.linear_qkv"
EXPERTS = _CORE + "transformer/moe/experts.py TEGroupedMLP"
SHARED_EXPERTS = _CORE + "transformer/moe/shared_experts.py SharedExpertMLP"
MAMBA_MIXER = _CORE + "ssm/mamba_mixer.py MambaMixer, mamba_context_parallel.py"
MOE_LAYER = _CORE + "transformer/moe/moe_layer.py BaseMoELayer"
FLEX_DISPATCHER = _CORE + "transformer/moe/token_dispatcher.py MoEFlexTokenDispatcher"
GRAPH_REPLAY = _CORE + "transformer/transformer_layer.py _te_cuda_graph_replay"
PIPELINE_LAYOUT = (
    _CORE + "transformer/pipeline_parallel_layer_layout.py PipelineParallelLayerLayout"
)
BRIDGE_FLEX = _BRIDGE + "training/flex_dispatcher_backend.py"
BRIDGE_LAUNCHER = "Megatron-Bridge 067f987 scripts/performance/utils/utils.py"
BRIDGE_GUIDE = "Megatron-Bridge 067f987 docs/performance-guide.md"
TE_CONTEXT = "TransformerEngine d0067d0 attention context_parallel.py"
TE_GEMM = "TransformerEngine assert_dim_for_fp8_exec"
TE_MXFP8 = "TransformerEngine MXFP8Quantizer"
