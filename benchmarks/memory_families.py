"""What meshplan says of the published DeepSeek-V3 series on H100s, from 4K to 256K tokens.

Both published families are judged at every length: TP1 with CP = seq/4096, and TP = seq/4096 with
CP1; each PP8 VPP4 EP32 with FP8 block scaling and FP8 weights, bf16 moments in the precision-aware
optimizer on the host, recompute of [mla_up_proj, layernorm, moe, mlp] and the layout string of the
scripts.  All of them ran on 80 GB.  The table shows what the offload and each module buy: the peak
without it, less the peak with it.  Below it, what public estimators say of the 128K point.

    python benchmarks/memory_families.py [--json PATH]

Sources: Megatron-Bridge skills/nemo-mbridge-perf-moe-long-context card.yaml (CP family),
Megatron-MoE-ModelZoo best_practice DeepSeekV3 H100 OPT_OFFLOAD scripts (TP family).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.command_line import Results, dumps, exit_code, json_option

LAYOUT = "Et*2|(tt|)*22t|(tt|)*7mL"
MODULES = ("mla_up_proj", "layernorm", "moe", "mlp")
#: What public estimators say of the 128K point, in GB a GPU; the run had 80.
PUBLIC_ESTIMATES_GB = (97, 109, 131, 2003)
#: Tokens in thousands, GPUs, and sequences of a step (ModelZoo keeps about 63 M tokens).
POINTS = ((4, 256, 15360), (16, 256, 3840), (32, 256, 1920), (64, 256, 960), (128, 256, 480),
          (256, 512, 240))  # fmt: skip


def judge(family: str, thousands: int, gpus: int, batch: int) -> dict[str, Any]:
    """The memory of one point of a family."""
    import meshplan
    from meshplan.scenarios import from_mapping

    shards = thousands // 4
    degrees = {"tp": 1, "cp": shards} if family == "cp" else {"tp": shards, "cp": 1}
    scenario = from_mapping(
        {
            "meshplan": 1,
            "name": f"dsv3-h100-{thousands}k-{family}",
            "model": "deepseek-v3",
            "cluster": {"preset": "h100-hgx", "gpus": gpus},
            "workload": {
                "seq_len": thousands * 1024,
                "global_batch_size": batch,
                "precision": "fp8-block",
            },
            "layout": {**degrees, "ep": 32, "etp": 1, "pp": 8, "vpp": 4, "mbs": 1},
            "options": {
                "recompute": list(MODULES),
                "optimizer_offload": True,
                "dispatcher": "deepep",
                "pipeline_layout": LAYOUT,
            },
            "training": {"moment_dtype": "bf16", "gradient_dtype": "bf16"},
            "limits": {"tp_within_domain": False},
        }
    )
    report = meshplan.memory(scenario)
    data = report.to_json()
    memory = data["memory"]
    fullest = max(memory["stages"], key=lambda stage: stage["peak_gib"])
    gains = {
        lever["change"].removeprefix("without recompute of "): lever["difference_gib"]
        for lever in memory["levers"]
        if lever["change"].startswith("without") or "on the GPUs" in lever["change"]
    }
    return {
        "family": family,
        "seq_len": thousands * 1024,
        "gpus": gpus,
        **degrees,
        "status": data["status"],
        "verdict": memory["verdict"],
        "peak_gib": memory["peak_gib"],
        "capacity_gib": memory["capacity_gib"],
        "rank": fullest["rank"],
        "event": fullest["peak_event"],
        "buys_gib": {name: gains.get(name) for name in MODULES},
        "offload_buys_gib": gains.get("with the optimizer on the GPUs"),
    }


def _print(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print the table."""
    print("what each buys, GiB".rjust(98))
    names = " ".join(f"{name:>11}" for name in (*MODULES, "offload"))
    print(
        f"{'':14}{'GPUs':>5}{'tp':>4}{'cp':>4}{'peak':>7} of {'':5}rank event     verdict {names}"
    )
    for row in rows:
        label = f"{row['family'].upper()} {row['seq_len'] // 1024}K"
        gains = (*row["buys_gib"].values(), row["offload_buys_gib"])
        shown = " ".join(f"{'-' if gain is None else f'{gain:.1f}':>11}" for gain in gains)
        print(
            f"{label:14}{row['gpus']:>5}{row['tp']:>4}{row['cp']:>4}{row['peak_gib']:7.1f} of "
            f"{row['capacity_gib']:.1f}{row['rank']:>5} {row['event']:9} {row['verdict']:8}{shown}"
        )
    ours = " and ".join(
        f"{row['peak_gib'] * 2**30 / 1e9:.1f} ({row['family'].upper()})"
        for row in rows
        if row["seq_len"] == 128 * 1024
    )
    *others, last = (f"{gigabytes:,}" for gigabytes in PUBLIC_ESTIMATES_GB)
    print(f"\nThe 128K point, which ran on GPUs of 80 GB, in GB: meshplan {ours};")
    print(f"public estimators {', '.join(others)} or {last}")


def main(arguments: list[str] | None = None) -> int:
    """Print the table; exit code 1 if a point that ran is called overfull or illegal."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    json_option(parser, "the table")
    options = parser.parse_args(arguments)
    return exit_code(lambda: _compare(options))


def _compare(options: argparse.Namespace) -> int:
    results = Results({"--json": options.json})
    rows = [judge(family, *point) for family in ("cp", "tp") for point in POINTS]
    with results.printing():
        _print(rows)
    results.deliver("--json", lambda: dumps(rows))
    return 0 if all(row["status"] == "ok" for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
