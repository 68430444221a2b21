"""Which printed arguments describe a model, and which are defaults that its kind does not use."""

from __future__ import annotations

from meshplan.scenarios import resolve_model
from meshplan.scenarios.importers.agreement import model_differences
from meshplan.scenarios.importers.megatron_args import read_arguments
from meshplan.scenarios.loader import loads
from meshplan.scenarios.model_card import ModelCard

#: What Megatron-LM prints for every model without latents, experts or query groups.
DEFAULTS = """\
  group_query_attention ...... False
  kv_lora_rank ...... 32
  moe_ffn_hidden_size ...... None
  moe_router_topk ...... 2
  multi_latent_attention ...... False
  num_experts ...... None
  num_query_groups ...... 1
  qk_head_dim ...... 128
  qk_pos_emb_head_dim ...... 64
  seq_length ...... 4096
  v_head_dim ...... 128
"""


def _model(name: str) -> ModelCard:
    scenario = loads(
        f"meshplan: 1\nname: x\nmodel: {name}\ncluster: {{preset: h100-hgx, gpus: 64}}\n"
        "workload: {seq_len: 4096, global_batch_size: 64}\n"
    )
    return resolve_model(scenario)


def _found(text: str, model: str) -> list[tuple[str, object]]:
    differences = model_differences(read_arguments(text), _model(model))
    return [(one.name, one.known) for one in differences]


def test_printed_defaults_are_no_difference() -> None:
    """Tests a dense model: top-2, a latent of 32 and one query group are defaults, not its own."""
    assert _found(DEFAULTS, "llama-3.1-70b") == []


def test_what_the_kind_uses_is_compared() -> None:
    """Tests that query groups count once they are on, and experts once there are some."""
    text = DEFAULTS.replace("group_query_attention ...... False", "group_query_attention .. True")
    assert _found(text, "llama-3.1-70b") == [("num_query_groups", 8)]
    text = DEFAULTS.replace("num_experts ...... None", "num_experts ...... 128")
    assert _found(text, "qwen3-30b-a3b") == [("moe_router_topk", 8)]


def test_latents_are_compared_where_they_are_on() -> None:
    """Tests DeepSeek-V3, whose KV latent has 512 where the default is 32."""
    text = DEFAULTS.replace("multi_latent_attention ...... False", "multi_latent_attention .. True")
    assert ("kv_lora_rank", 512) in _found(text, "deepseek-v3")
