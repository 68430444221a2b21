"""Plans of many kinds, as ``check --json`` writes them, for the tests of exports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from meshplan.scenarios import from_mapping
from meshplan.solver.check import check
from meshplan.solver.export.plan_file import StoredPlan, read_plan
from meshplan.solver.report.data import dumps

_DEEPSEEK: dict[str, Any] = {
    "meshplan": 1,
    "name": "deepseek",
    "model": "deepseek-v3",
    "cluster": {"preset": "h100-hgx", "gpus": 256},
    "workload": {"seq_len": 4096, "global_batch_size": 8192, "precision": "fp8-block"},
}
_QWEN: dict[str, Any] = {
    "meshplan": 1,
    "name": "qwen",
    "model": "qwen3-30b-a3b",
    "cluster": {"preset": "gb200-nvl72", "gpus": 64},
    "workload": {"seq_len": 8192, "global_batch_size": 512, "precision": "mxfp8"},
}
_LLAMA: dict[str, Any] = {
    "meshplan": 1,
    "name": "llama",
    "model": "llama-3.1-8b",
    "cluster": {"preset": "h100-hgx", "gpus": 16},
    "workload": {"seq_len": 8192, "global_batch_size": 128, "precision": "bf16"},
}

#: Scenario, changes to its sections, and a layout, by what is special about each.
PLANS: dict[str, tuple[dict[str, Any], dict[str, dict[str, Any]], str]] = {
    "published": (
        _DEEPSEEK,
        {},
        "tp=1,cp=1,pp=8,vpp=4,ep=32,etp=1,mbs=1,recompute=layernorm+mla_up_proj+mlp+moe,"
        "offload=100,dispatcher=deepep,pipeline=Et|(tt|)*30mL",
    ),
    "two meshes": (
        _QWEN,
        {"workload": {"seq_len": 65536}},
        "tp=2,cp=8,pp=1,ep=16,etp=2,mbs=1,cp_comm=p2p,dispatcher=alltoall,recompute=moe_act,"
        "offload=0",
    ),
    "hybridep and graphs": (
        _QWEN,
        {},
        "tp=1,cp=1,pp=1,ep=32,etp=1,mbs=2,dispatcher=hybridep,"
        "graphs=attn+moe_router+moe_preprocess,recompute=moe_act,offload=0",
    ),
    "full recompute": (_LLAMA, {}, "tp=2,cp=1,pp=2,vpp=2,mbs=1,recompute=full,offload=0"),
    "half of the optimizer": (_LLAMA, {}, "tp=4,cp=2,pp=1,mbs=1,cp_comm=p2p,offload=50"),
    "exchange of two kinds": (
        _LLAMA,
        {"cluster": {"gpus": 64}, "workload": {"seq_len": 131072}},
        "tp=1,cp=32,pp=1,mbs=1,cp_comm=a2a+p2p,recompute=none,offload=0",
    ),
    "other recipe": (
        _LLAMA,
        {
            "training": {
                "gradient_dtype": "bf16",
                "moment_dtype": "fp32",
                "cross_entropy": "unfused",
                "hidden_dropout": 0.1,
                "gradient_accumulation_fusion": False,
            }
        },
        "tp=2,cp=1,pp=1,mbs=1,offload=0,recompute=layernorm",
    ),
    "activations on the host": (
        _LLAMA,
        {"options": {"activation_offload": ["core_attn", "attn_proj"]}},
        "tp=2,cp=1,pp=1,mbs=1,offload=0,recompute=none",
    ),
    "delayed scaling": (
        _LLAMA,
        {"workload": {"precision": "fp8-tensor"}},
        "tp=2,cp=1,pp=1,mbs=1,offload=100,recompute=none",
    ),
    "four bits": (
        _QWEN,
        {"workload": {"precision": "nvfp4"}},
        "tp=1,cp=1,pp=1,ep=8,etp=1,mbs=1,dispatcher=alltoall,offload=0,recompute=moe_act",
    ),
    "overlap of experts": (
        _QWEN,
        {"training": {"overlap_expert_communication": True}},
        "tp=1,cp=1,pp=2,vpp=4,ep=8,etp=1,mbs=1,dispatcher=hybridep,offload=0,recompute=moe_act",
    ),
}


def written(folder: Path, name: str, **changes: dict[str, Any]) -> Path:
    """Path of the JSON of one of ``PLANS``, sections of its scenario changed further."""
    base, first, layout = PLANS[name]
    data = {**base}
    for more in (first, changes):
        data |= {key: {**data.get(key, {}), **section} for key, section in more.items()}
    report = check(from_mapping(data), layout)
    assert report.status == "ok", (report.violations, report.cost)
    path = folder / "plan.json"
    path.write_text(dumps(report.to_json()), "utf-8")
    return path


def plan(folder: Path, name: str, **changes: dict[str, Any]) -> StoredPlan:
    """One of ``PLANS``, read back from its JSON."""
    return read_plan(written(folder, name, **changes))
