"""Parameters of each rank: meshplan's counts against models that megatron-core builds.

The models are small, the modules real: GPTModel and HybridModel of the installed megatron-core,
on the ranks of small worlds (:mod:`tests.peer.megatron_parameters` says how, without a GPU and
without Transformer Engine).  Where Transformer Engine's modules differ from the local ones, a
stand-in has the former's shape: MLA's down projections are whole on every TP rank, and so are the
projections of latent experts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any, NamedTuple

import pytest

from meshplan.scenarios.model_card import ModelCard
from meshplan.scenarios.parameters import (
    Shards,
    embedding_parameters,
    layer_parameters,
    mtp_parameters,
    output_parameters,
)
from tests.peer.client import PYTHON_VARIABLE, ROOT

pytestmark = pytest.mark.peer


class Degrees(NamedTuple):
    """A small world; DP takes what is left."""

    world: int
    tp: int
    pp: int
    ep: int
    etp: int


#: With more TP ranks (4) than KV groups (2), with experts split wider and narrower than
#: attention, and with stages.
WORLDS = (
    Degrees(world=1, tp=1, pp=1, ep=1, etp=1),
    Degrees(world=8, tp=2, pp=2, ep=2, etp=1),
    Degrees(world=8, tp=2, pp=1, ep=8, etp=1),
    Degrees(world=8, tp=4, pp=2, ep=2, etp=2),
    Degrees(world=8, tp=1, pp=4, ep=1, etp=2),
    Degrees(world=4, tp=4, pp=1, ep=1, etp=1),
)

BASE: dict[str, Any] = {
    "layers": 8, "hidden": 64, "ffn": 256, "vocab": 1000, "heads": 8, "kv_groups": 2,
    "head_dim": 16, "attention": "gqa",
}  # fmt: skip
EXPERTS: dict[str, Any] = {**BASE, "experts": 8, "topk": 2, "moe_ffn": 32, "dense_layers": 3}
MLA: dict[str, Any] = {
    **EXPERTS, "attention": "mla", "kv_groups": 8, "kv_lora_rank": 24, "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8, "v_head_dim": 12, "qk_norm": True, "shared_ffn": 64,
}  # fmt: skip
HYBRID: dict[str, Any] = {
    **{key: EXPERTS[key] for key in EXPERTS if key != "dense_layers"},
    "gated": False, "shared_ffn": 48, "mamba_heads": 8, "mamba_head_dim": 16, "mamba_state": 8,
    "mamba_groups": 4, "mamba_conv": 4,
    "layer_pattern": ["mamba", "moe", "mamba", "attention", "mlp", "mamba", "moe", "mamba"],
}  # fmt: skip
CARDS: dict[str, dict[str, Any]] = {
    "dense": BASE,
    "dense-tied": {**BASE, "tied_embeddings": True},
    "dense-not-gated": {**BASE, "gated": False, "qk_norm": True},
    "dense-biases": {**BASE, "attention_bias": True, "mlp_bias": True},
    "dense-qkv-bias": {**BASE, "qkv_bias": True, "attention_output_gate": True},
    "moe-shared": {**EXPERTS, "qk_norm": True, "shared_ffn": 48, "shared_expert_gate": True},
    "moe-biases-sinks": {
        **EXPERTS, "attention_bias": True, "mlp_bias": True, "attention_sinks": True,
    },
    "moe-latent": {**EXPERTS, "moe_latent": 16, "gated": False},
    "mla": MLA,
    "mla-q-lora": {**MLA, "q_lora_rank": 40},
    "mla-no-norms": {**MLA, "q_lora_rank": 40, "qk_norm": False},
    "mtp": {**MLA, "q_lora_rank": 40, "mtp_layers": 1},
    "mtp-two": {**EXPERTS, "mtp_layers": 2},
    "mtp-tied": {**BASE, "mtp_layers": 1, "tied_embeddings": True},
    "mtp-repeated": {**EXPERTS, "mtp_layers": 2, "mtp_repeated": True},
    "gated-delta-net": {
        **EXPERTS, "layer_pattern": ["gdn", "gdn", "gdn", "full"], "gdn_key_heads": 4,
        "gdn_value_heads": 8, "gdn_key_dim": 8, "gdn_value_dim": 12, "gdn_conv": 4,
    },
    "hybrid": HYBRID,
    "hybrid-latent-mtp": {**HYBRID, "moe_latent": 16, "mtp_layers": 2, "mtp_repeated": True},
    "hybrid-two-mtp-gated": {**HYBRID, "gated": True, "mtp_layers": 2},
}  # fmt: skip
#: Letters of Megatron-LM's hybrid patterns, for the parts of our layers.
LETTERS = {"mamba": "M", "gdn": "G", "gqa": "*", "dense": "-", "moe": "E", "none": ""}


def _config(card: ModelCard) -> dict[str, Any]:
    """The figures of a card under the names of TransformerConfig."""
    config: dict[str, Any] = {
        "num_layers": card.layers,
        "hidden_size": card.hidden,
        "ffn_hidden_size": card.ffn,
        "num_attention_heads": card.heads,
        "gated": card.gated,
        "qk_layernorm": card.qk_norm,
        # Megatron-LM has one switch for the biases of attention and MLP.
        "add_bias_linear": card.attention_bias or card.mlp_bias,
        "add_qkv_bias": card.qkv_bias,
        "attention_output_gate": card.attention_output_gate,
        "softmax_type": "learnable" if card.attention_sinks else "vanilla",
        "mtp_num_layers": card.mtp_layers or None,
        "mtp_use_repeated_layer": card.mtp_repeated,
    }
    if card.attention == "mla":
        config |= {
            "q_lora_rank": card.q_lora_rank or None,
            "kv_lora_rank": card.kv_lora_rank,
            "qk_head_dim": card.qk_nope_head_dim,
            "qk_pos_emb_head_dim": card.qk_rope_head_dim,
            "v_head_dim": card.v_head_dim,
        }
    else:
        config |= {"num_query_groups": card.kv_groups, "kv_channels": card.head_dim}
    if card.is_moe:
        config |= {
            "num_moe_experts": card.experts,
            "moe_router_topk": card.topk,
            "moe_ffn_hidden_size": card.moe_ffn,
            # The pattern says it for a HybridModel.
            "moe_layer_freq": [int(kind.mlp == "moe") for kind in card.layer_kinds]
            if card.layer_pattern is None
            else 1,
            "moe_shared_expert_intermediate_size": card.shared_ffn,
            "moe_shared_expert_gate": card.shared_expert_gate,
            "moe_latent_size": card.moe_latent,
        }
    if card.gdn_conv:
        config |= {
            "linear_num_key_heads": card.gdn_key_heads,
            "linear_num_value_heads": card.gdn_value_heads,
            "linear_key_head_dim": card.gdn_key_dim,
            "linear_value_head_dim": card.gdn_value_dim,
            "linear_conv_kernel_dim": card.gdn_conv,
        }
    if card.mamba_heads:
        config |= {
            "mamba_num_heads": card.mamba_heads,
            "mamba_head_dim": card.mamba_head_dim,
            "mamba_state_dim": card.mamba_state,
            "mamba_num_groups": card.mamba_groups,
        }
    return config


def _case(card: ModelCard, degrees: Degrees) -> dict[str, Any]:
    hybrid = card.is_hybrid or card.gdn_conv > 0
    parts = [part for kind in card.layer_kinds for part in (kind.attention, kind.mlp)]
    pattern = "".join(LETTERS[part] for part in parts) if hybrid else ""
    config = _config(card) | ({"num_layers": len(pattern)} if hybrid else {})
    return {
        "kind": "hybrid" if hybrid else "gpt",
        "pattern": pattern,
        "config": config,
        "vocab": card.padded_vocab(degrees.tp),
        "tied": card.tied_embeddings,
        **degrees._asdict(),
        **({} if card.is_moe else {"ep": 1, "etp": 1}),
        **({"etp": 1} if card.mlp_bias else {}),  # Megatron-LM refuses more
    }


def _stage(card: ModelCard, degrees: Degrees, stage: int) -> Shards:
    """What one rank of a stage holds; MTP layers are on the last one, the split is even."""
    _, tp, pp, ep, etp = degrees
    etp = 1 if card.mlp_bias else etp
    first, last = stage == 0, stage == pp - 1
    size = card.layers // pp
    kinds = card.layer_kinds[stage * size : (stage + 1) * size]
    held = Shards(_query_norms(card, len(kinds) + (card.mtp_copies if last else 0)))
    for kind in kinds:
        held += layer_parameters(card, kind, tp=tp, ep=ep, etp=etp)
    table = Shards(embedding_parameters(card, tp=tp))
    if last:
        for _ in range(card.mtp_copies):
            held += mtp_parameters(card, tp=tp, ep=ep, etp=etp)
        held += Shards(output_parameters(card, tp=tp))
        if first and card.tied_embeddings:
            held += Shards(-table.dense)
    # MTP layers read the embedding, of which their stage has a copy.
    return held + table if first or (last and card.mtp_layers) else held


def _query_norms(card: ModelCard, layers: int) -> int:
    """What megatron-core has and we do not count.

    Since July 2026 it norms the input of a query that is not compressed a second time
    (``core/transformer/mla_qk_norm_config.py``).  Weights of such models have no such norm.
    """
    doubled = card.attention == "mla" and card.qk_norm and not card.q_lora_rank
    return card.hidden * layers if doubled else 0


@pytest.fixture(scope="module")
def built() -> dict[tuple[str, Degrees], list[dict[str, int]]]:
    """Counts of all ranks of all cases, from one process."""
    keys = [(name, degrees) for name in CARDS for degrees in WORLDS]
    cases = [_case(_card(name), degrees) for name, degrees in keys]
    done = subprocess.run(
        [os.environ.get(PYTHON_VARIABLE) or sys.executable, "-m", "tests.peer.megatron_parameters"],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(zip(keys, json.loads(done.stdout), strict=True))


def _card(name: str) -> ModelCard:
    return ModelCard.model_validate({"name": name, **CARDS[name]})


@pytest.mark.parametrize("degrees", WORLDS, ids=lambda degrees: "-".join(map(str, degrees)))
@pytest.mark.parametrize("name", CARDS)
def test_ranks_hold_what_megatron_builds(
    built: dict[tuple[str, Degrees], list[dict[str, int]]], name: str, degrees: Degrees
) -> None:
    """Tests that every rank holds exactly our counts, dense and routed experts apart."""
    card = _card(name)
    ranks = built[name, degrees]
    assert isinstance(ranks, list), ranks
    assert [rank["stage"] for rank in ranks] == [
        index * degrees.pp // degrees.world for index in range(degrees.world)
    ]
    for rank in ranks:
        assert Shards(rank["dense"], rank["expert"]) == _stage(card, degrees, rank["stage"])
