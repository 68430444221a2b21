"""What ``solve_time.py`` solves with everything free, beside the seed scenarios.

- *published*: each combination of model, cluster and sequence length of ``data/published_runs.csv``
  once, with the batch, the precision and the training settings of the first run that has it.
- *growth*: DeepSeek-V3 from 256 to 131,072 GPUs, at 4K and at 128K tokens, the batch growing alike.
- *long*: a million tokens.
- *narrow*: what does not fit, by far and by little.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.memory_words import Unusable
from benchmarks.throughput_rows import Measured, read_measured
from benchmarks.throughput_scenario import SpeedDraft, case_of

_RUNS = Path(__file__).resolve().parent / "data/published_runs.csv"
_GROWTH = tuple(256 << i for i in range(10))
#: Sequences of a batch for each GPU, by sequence length.
_BATCH = {4096: 8, 131072: 1}


def instances() -> list[dict[str, Any]]:
    """All of them, as scenarios."""
    return [*published(_RUNS), *growth(), *long_sequences(), *narrow_misses()]


def published(path: Path) -> list[dict[str, Any]]:
    """One scenario for each model, cluster and sequence length of a file of runs.

    Runs that the step-time model is not about (LoRA, FSDP, vision towers) are left out.
    """
    found: dict[tuple[str, str, int], dict[str, Any]] = {}
    for measured in read_measured(path):
        scenario = _scenario(measured)
        if scenario is not None:
            cluster, length = scenario["cluster"], scenario["workload"]["seq_len"]
            found.setdefault((measured.run.model, repr(cluster), length), scenario)
    return list(found.values())


def _scenario(measured: Measured) -> dict[str, Any] | None:
    try:
        case_of(measured)
        scenario = SpeedDraft(measured).scenario()
    except Unusable:
        return None
    del scenario["layout"]
    scenario.pop("options", None)
    gpus, length = scenario["cluster"]["gpus"], scenario["workload"]["seq_len"]
    words = (measured.run.model, measured.run.gpu, str(gpus), f"{length // 1024}k")
    scenario["name"] = "-".join(words).replace("_", "-").lower()
    return scenario


def growth() -> list[dict[str, Any]]:
    """One model on ever more GPUs."""
    return [
        _question("deepseek-v3", "h100-hgx", gpus, length, gpus * batch, "fp8-block")
        for length, batch in _BATCH.items()
        for gpus in _GROWTH
    ]


def long_sequences() -> list[dict[str, Any]]:
    """A million tokens."""
    million = 1 << 20
    return [
        _question("llama-3.1-8b", "h200-hgx", 8, million, 8, "bf16"),
        _question("llama-3.1-8b", "h200-hgx", 128, million, 8, "bf16"),
        _question("llama-3.1-70b", "h100-hgx", 2048, million, 64, "bf16"),
        _question("qwen3-235b-a22b", "gb200-nvl72", 1152, million, 64, "bf16"),
        _question("deepseek-v3", "gb200-nvl72", 2304, million, 128, "mxfp8"),
    ]


def narrow_misses() -> list[dict[str, Any]]:
    """DeepSeek-V3 at 128K tokens on too few GPUs."""
    found = []
    for gpus, headroom in ((32, 0.08), (64, 0.25), (64, 0.30)):
        scenario = _question("deepseek-v3", "h100-hgx", gpus, 131072, 256, "fp8-block")
        scenario["name"] += f"-headroom-{headroom * 100:.0f}"
        found.append({**scenario, "limits": {"memory_headroom": headroom}})
    return found


def _question(
    model: str, preset: str, gpus: int, length: int, batch: int, precision: str
) -> dict[str, Any]:
    return {
        "meshplan": 1,
        "name": f"{model}-{preset}-{gpus}-{length // 1024}k".replace(".", "-"),
        "model": model,
        "cluster": {"preset": preset, "gpus": gpus},
        "workload": {"seq_len": length, "global_batch_size": batch, "precision": precision},
    }
