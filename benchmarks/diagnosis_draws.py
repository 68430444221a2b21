"""Random scenarios without a layout, for ``diagnosis_random.py``; a seed gives one scenario.

Three kinds take turns:

- *rules*: tiny models with random pins that clash, small enough to enumerate all degrees;
- *memory*: tiny models with sequences so long, and recompute so scarce, that memory decides;
- *real*: published models on a few nodes, with some degrees and options pinned.
"""

from __future__ import annotations

import random
from typing import Any

from tests.solver.small import draw as draw_small

KINDS = ("rules", "memory", "real")
#: Published models, and the most GPUs that they are put on: mostly too few.
_MODELS: dict[str, int] = {
    "llama-3.1-8b": 16, "llama-3.1-70b": 64, "qwen3-30b-a3b": 32, "qwen3-235b-a22b": 128,
    "deepseek-v3": 256, "mixtral-8x22b": 64, "gpt-oss-120b": 64, "glm-4.5-air": 64,
}  # fmt: skip


def kind_of(seed: int) -> str:
    """Kind of the scenario of a seed."""
    return KINDS[seed % len(KINDS)]


def draw(seed: int) -> dict[str, Any]:
    """A scenario as a mapping; whether it has a layout is for the search to say."""
    kind = kind_of(seed)
    if kind == "rules":
        return draw_small(seed)
    rng = random.Random(seed)
    return _memory(rng, seed) if kind == "memory" else _real(rng, seed)


def _memory(rng: random.Random, seed: int) -> dict[str, Any]:
    scenario = draw_small(seed)
    scenario["workload"]["seq_len"] = rng.choice([1 << 18, 1 << 19, 1 << 20])
    scenario["options"] |= {"recompute": rng.choice(["none", "auto"]), "cuda_graphs": "none"}
    scenario["options"]["optimizer_offload"] = rng.choice([0, "auto"])
    scenario["layout"]["mbs"] = 1
    scenario["layout"].pop("ga", None)
    scenario["layout"].pop("vpp", None)
    scenario["layout"]["cp"] = rng.choice([1, 1, 2])
    scenario["limits"] = {"memory_headroom": rng.choice([0.0, 0.2, 0.5])}
    return scenario


def _real(rng: random.Random, seed: int) -> dict[str, Any]:
    model = rng.choice(sorted(_MODELS))
    preset = rng.choice(["a100-hgx", "h100-hgx", "h100-hgx", "b200-hgx"])
    gpus = rng.choice([n for n in (1, 2, 4, 8, 16, 32, 64, 128, 256) if n <= _MODELS[model]])
    pins: dict[str, int] = {}
    for name, values in (
        ("tp", [1, 2, 4, 8, 16]), ("cp", [1, 2, 4]), ("pp", [1, 2, 4, 8]), ("ep", [1, 4, 8, 16]),
        ("etp", [1, 2]), ("mbs", [1, 2, 4]), ("dp", [1, 2, 8]),
    ):  # fmt: skip
        if rng.random() < 0.4:
            pins[name] = rng.choice([value for value in values if value <= gpus])
    options: dict[str, Any] = {}
    if rng.random() < 0.5:
        options["optimizer_offload"] = rng.choice([False, True])
    if rng.random() < 0.5:
        options["recompute"] = rng.choice(["none", "full"])
    limits: dict[str, Any] = {"memory_headroom": rng.choice([0.08, 0.15])}
    if rng.random() < 0.2:
        limits["min_dp"] = rng.choice([2, 4])
    return {
        "meshplan": 1,
        "name": f"real-{seed}",
        "model": model,
        "cluster": {"preset": preset, "gpus": gpus},
        "workload": {
            "seq_len": rng.choice([4096, 32768, 131072]),
            "global_batch_size": rng.choice([16, 64, 256]),
        },
        "layout": pins,
        "options": options,
        "limits": limits,
    }


__all__ = ["KINDS", "draw", "kind_of"]
