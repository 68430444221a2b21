"""Tiny random problems that an enumerator can solve: models, clusters, pins and memory."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

from meshplan.constraints.problem import QUANTA_PER_GIB, Problem
from meshplan.constraints.resolve import resolve
from meshplan.scenarios import Scenario, from_mapping

_GQA: dict[str, Any] = {
    "hidden": 1024, "vocab": 32000, "heads": 8, "kv_groups": 4, "head_dim": 128,
    "attention": "gqa", "ffn": 4096,
}  # fmt: skip
_MLA: dict[str, Any] = {
    "hidden": 1024, "vocab": 64000, "heads": 8, "kv_groups": 8, "head_dim": 128,
    "attention": "mla", "ffn": 3072, "q_lora_rank": 512, "kv_lora_rank": 256,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
}  # fmt: skip
_EXPERTS: dict[str, Any] = {"experts": 4, "topk": 2, "moe_ffn": 1024}
_GDN: dict[str, Any] = {
    "gdn_key_heads": 8, "gdn_value_heads": 16, "gdn_key_dim": 128, "gdn_value_dim": 128,
    "gdn_conv": 4,
}  # fmt: skip

#: Families of models; the number of layers and the ends are drawn.
FAMILIES: dict[str, dict[str, Any]] = {
    "dense": _GQA,
    "dense-wide": {**_GQA, "hidden": 2048, "heads": 16, "ffn": 8192, "vocab": 128000},
    "moe": {**_GQA, **_EXPERTS, "ffn": None},
    "moe-prefix": {**_GQA, **_EXPERTS, "dense_layers": 1},
    "moe-shared": {**_GQA, **_EXPERTS, "dense_layers": 1, "shared_ffn": 2048, "experts": 8},
    "mla-moe": {**_MLA, **_EXPERTS, "dense_layers": 1, "shared_ffn": 1024, "experts": 8},
    "gdn-full": {**_GQA, **_EXPERTS, **_GDN, "ffn": None, "layer_pattern": ["gdn", "full"]},
    "swa-full": {**_GQA, "sliding_window": 512, "layer_pattern": ["swa", "full"]},
    "swa-moe": {
        **_GQA, **_EXPERTS, "dense_layers": 1, "sliding_window": 512,
        "layer_pattern": ["full", "swa"],
    },
}  # fmt: skip


def toy_scenario(batch: int, **sections: Any) -> Scenario:
    """A toy mixture of experts on 8 H100s at 4096 tokens; ``sections`` replace parts."""
    data: dict[str, Any] = {
        "meshplan": 1,
        "name": "small",
        "model": "toy-moe",
        "cluster": {"preset": "h100-hgx", "gpus": 8},
        "workload": {"seq_len": 4096, "global_batch_size": batch},
    }
    return from_mapping({**data, **sections})


def small(**sections: Any) -> Problem:
    """A problem on 8 H100s at 4096 tokens with a batch of 8; ``sections`` replace parts."""
    return resolve(toy_scenario(8, **sections))


def with_capacity(problem: Problem, capacity: int) -> Problem:
    """The same problem on GPUs of which a plan may use ``capacity`` quanta each."""
    node = problem.node_type.model_copy(update={"hbm_gib": capacity / QUANTA_PER_GIB})
    return dataclasses.replace(
        problem,
        cluster=dataclasses.replace(problem.cluster, node_type=node),
        limits=dataclasses.replace(problem.limits, memory_headroom=0.0),
    )


def draw_card(rng: random.Random, family: str) -> dict[str, Any]:
    """A model of a family with 2 to 5 layers."""
    card = {k: v for k, v in FAMILIES[family].items() if v is not None}
    card |= {"name": f"tiny-{family}", "layers": rng.choice([2, 3, 4, 4, 5])}
    if rng.random() < 0.3:
        card["mtp_layers"] = 1
    if rng.random() < 0.3:
        card["tied_embeddings"] = True
    return card


def _batch(rng: random.Random) -> Any:
    if rng.random() < 0.6:
        return rng.choice([4, 8, 12, 16])
    step = rng.choice([2, 4])
    least = rng.choice([2, 4, 8])
    return {"min": least, "max": least + 2 * step, "multiple_of": step}


def _pin(rng: random.Random, values: list[int]) -> Any:
    """A pin as a number, a list or a range."""
    form = rng.random()
    if form < 0.5:
        return rng.choice(values)
    if form < 0.8:
        return sorted(rng.sample(values, min(2, len(values))))
    low = rng.choice(values)
    return {"min": low, "max": max(low, rng.choice(values))}


def _within(pins: dict[str, Any], gpus: int, batch: int) -> dict[str, Any]:
    """The pins that some layout could satisfy: a scenario is refused for others."""

    def least(pin: Any) -> int:
        value = pin["min"] if isinstance(pin, dict) else min(pin) if isinstance(pin, list) else pin
        return int(value)

    most = dict.fromkeys(("mbs", "ga"), batch)
    return {
        name: pin
        for name, pin in pins.items()
        if name in ("vpp", "cp_comm") or least(pin) <= most.get(name, gpus)
    }


def _split(rng: random.Random, card: dict[str, Any]) -> str:
    layers: int = card["layers"]
    m = "m" * int(card.get("mtp_layers", 0))
    form = rng.randrange(5)
    if form == 0:
        return "even"
    if form == 1 and layers >= 2:
        return f"Et|{'t' * (layers - 1)}{m}L"
    if form == 2:
        return f"E|{'t' * layers}|{m}|L" if m else f"E|{'t' * layers}|L"
    if form == 3:
        return f"E{'t' * layers}|{m}L"
    return "E" + "t|" * layers + f"{m}L"


def draw(seed: int) -> dict[str, Any]:
    """A scenario as a mapping: random model, cluster, workload, pins and options."""
    rng = random.Random(seed)
    family = rng.choice(list(FAMILIES))
    card = draw_card(rng, family)
    moe = "experts" in card
    preset = rng.choice(["h100-hgx", "h100-hgx", "gb200-nvl72"])
    gpus = rng.choice([2, 4, 8, 8, 16] if preset == "h100-hgx" else [4, 8])
    pins: dict[str, Any] = {}
    wanted = {
        "tp": ([1, 2, 4], 0.6), "cp": ([1, 2, 4], 0.6), "pp": ([1, 2, 3, 4], 0.3),
        "vpp": ([1, 2, 3], 0.2), "mbs": ([1, 2, 4], 0.8), "dp": ([1, 2, 4, 8], 0.15),
        "ga": ([1, 2, 4, 8], 0.1),
    }  # fmt: skip
    if moe:
        wanted |= {"ep": ([1, 2, 4], 0.6), "etp": ([1, 2], 0.8), "edp": ([1, 2, 4], 0.1)}
    for name, (values, chance) in wanted.items():
        if rng.random() < chance:
            pins[name] = _pin(rng, values)
    if rng.random() < 0.5:
        pins["cp_comm"] = rng.choice(["p2p", "all_gather", "a2a"])
    options: dict[str, Any] = {}
    modules = ["moe", "layernorm", "moe_act"] if moe else ["mlp"]
    recompute = rng.choice(["auto", "none", "full", modules[:1], modules, modules[1:] or "none"])
    options["recompute"] = recompute
    options["optimizer_offload"] = rng.choice(["auto", "auto", 0, 1, 0.5])
    options["cuda_graphs"] = rng.choice(["none", "none", "none", "auto", ["attn"]])
    if moe:
        options["dispatcher"] = rng.choice(["auto", "alltoall", "alltoall", "deepep", "hybridep"])
    if rng.random() < 0.2:
        options["pipeline_layout"] = _split(rng, card)
    limits: dict[str, Any] = {}
    if rng.random() < 0.15:
        limits["min_dp"] = 2
    batch = _batch(rng)
    precision = rng.choice(["bf16", "bf16", "fp8-block", "mxfp8"])
    if precision == "mxfp8" and preset == "h100-hgx":
        precision = "fp8-block"  # Hopper has no MXFP8
    return {
        "meshplan": 1,
        "name": f"small-{seed}",
        "model": card,
        "cluster": {"preset": preset, "gpus": gpus},
        "workload": {
            "seq_len": rng.choice([2048, 8192, 32768]),
            "global_batch_size": batch,
            "precision": precision,
        },
        "layout": _within(pins, gpus, batch if isinstance(batch, int) else batch["max"]),
        "options": options,
        "limits": limits,
        "objective": {"dp_tolerance": rng.choice([0.0, 0.02, 0.2, 0.5])},
    }
