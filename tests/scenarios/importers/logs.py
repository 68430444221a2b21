"""Small training logs of the shape that Megatron-LM and Megatron-Bridge print."""

from __future__ import annotations

from collections.abc import Sequence

DUMP = """\
using world size: 64, data-parallel size: 32
------------------------ arguments ------------------------
  context_parallel_size ...... 1
  tensor_model_parallel_size ...... 2
  bf16 ...... True
  expert_model_parallel_size ...... 8
  expert_tensor_parallel_size ...... 1
  global_batch_size ...... 512
  micro_batch_size ...... 1
  moe_token_dispatcher_type ...... alltoall
  num_experts ...... 128
  num_layers ...... 48
  pipeline_model_parallel_size ...... 1
  recompute_granularity ...... selective
  recompute_modules ...... ['moe_act', 'mlp']
  seq_length ...... 4096
  sequence_parallel ...... True
  use_distributed_optimizer ...... True
  world_size ...... 64
-------------------- end of arguments ---------------------
"""
CONFIGURATION = """\
done with setup ...
------- Task Configuration -------
_target_: megatron.bridge.training.config.ConfigContainer
comm_overlap: null
dataset:
  _target_: megatron.bridge.training.config.GPTDatasetConfig
  sequence_length: 4096
  split_matrix:
  - - 0
    - 0.33
mixed_precision:
  bf16: true
  num_layers_at_end_in_bf16: 0
model:
  _target_: megatron.bridge.models.qwen.qwen_provider.Qwen3MoEModelProvider
  attention_backend:
    _args_:
    - 5
    _call_: true
  bf16: true
  context_parallel_size: 1
  expert_model_parallel_size: 8
  expert_tensor_parallel_size: 1
  fp8: null
  hidden_size: 2048
  kv_lora_rank: 512
  moe_ffn_hidden_size: 768
  moe_router_topk: 8
  moe_token_dispatcher_type: alltoall
  multi_latent_attention: false
  num_layers: 48
  num_moe_experts: 128
  num_query_groups: 4
  pipeline_model_parallel_size: 1
  recompute_granularity: selective
  recompute_modules:
  - moe_act
  - mlp
  seq_length: 131072
  sequence_parallel: true
  tensor_model_parallel_size: 2
  virtual_pipeline_model_parallel_size: null
optimizer:
  optimizer_cpu_offload: false
train:
  global_batch_size: 512
  micro_batch_size: 1

----------------------------------
Training ...
"""
BRIDGE = """\
Step Time : 31.23s GPU utilization: 26.4MODEL_TFLOP/s/GPU
 [2026-11-30 01:02:03] iteration        1/      50 | consumed samples:          512 | \
elapsed time per iteration (ms): 31234.5 | learning rate: 1.000000E-05 | global batch size:   512 \
| lm loss: 1.2E+01 | loss scale: 1.0 | number of skipped iterations:   0 | number of nan \
iterations:   0 |
Step Time : 8.57s GPU utilization: 96.3MODEL_TFLOP/s/GPU
 [2026-11-30 01:02:12] iteration        2/      50 | consumed samples:         1024 | \
elapsed time per iteration (ms): 8571.2 | global batch size:   512 |
Step Time : 8.57s GPU utilization: 96.3MODEL_TFLOP/s/GPU
 [2026-11-30 01:02:20] iteration        3/      50 | consumed samples:         1536 | \
elapsed time per iteration (ms): 8568.9 | global batch size:   512 |
"""


def log_line(
    iteration: int, ms: float, *, tflops: float = 160.0, batch: int = 512, skipped: int = 0
) -> str:
    """One line of ``training_log``, without its end."""
    return (
        f" [2026-11-30 01:02:03.123456] iteration {iteration:8d}/{1000:8d} | consumed samples: "
        f"{iteration * batch:12d} | elapsed time per iteration (ms): {ms:.1f} | throughput per GPU "
        f"(TFLOP/s/GPU): {tflops:.1f} | learning rate: 1.000000E-04 | global batch size: "
        f"{batch:5d} | lm loss: 1.072453E+01 | loss scale: 1.0 | grad norm: 3.874 | number of "
        f"skipped iterations: {skipped:3d} | number of nan iterations:   0 |"
    )


def megatron_log(times_ms: Sequence[float]) -> str:
    """A log of consecutive iterations, the first of which is 1.

    160 TFLOP/s at 4.7 s, and so many more in less time: what Qwen3-30B-A3B has on 64 GPUs with 512
    sequences of 4096 tokens, in Megatron's counting.
    """
    return "".join(
        log_line(number, ms, tflops=160.0 * 4700.0 / ms) + "\n"
        for number, ms in enumerate(times_ms, start=1)
    )
