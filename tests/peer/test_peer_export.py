"""Exported plans as megatron-core and Hydra read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.megatron_arguments import ALWAYS
from meshplan.solver.export.documents import megatron_bridge, megatron_lm
from meshplan.solver.export.plan_file import StoredPlan
from tests.peer.client import Peer
from tests.solver.export.plans import PLANS, plan
from tests.solver.export.test_documents import array

pytestmark = pytest.mark.peer

#: Which configuration of megatron-core a section of Megatron-Bridge's extends.
_OWNERS = {
    "model": "model", "optimizer": "optimizer", "ddp": "ddp", "train": "args", "dataset": "args",
}  # fmt: skip
#: Fields of Megatron-Bridge that megatron-core has by another name.
_RENAMED = {"cuda_graph_scope": "cuda_graph_modules"}
_DTYPES = {"fp32": "torch.float32", "bf16": "torch.bfloat16"}
#: Compared otherwise: an object behind a string, which the flags give too; a field of
#: Megatron-Bridge's models alone, the same as ``dataset.seq_length``.
_OTHERS = ("model.pipeline_model_parallel_layout", "model.seq_length")


def _checked(exported: StoredPlan, peer: Peer, report: dict[str, list[str]]) -> dict[str, Any]:
    """What megatron-core says of the flags, those of the model and some that all runs need."""
    words = array(megatron_lm(exported, "test", with_model=True), "MESHPLAN_ARGS")
    return peer.ask(
        {
            "query": "check",
            "argv": [*ALWAYS, *words],
            "world": exported.layout.gpus,
            "capability": exported.problem.node_type.compute_capability,
            "report": report,
        }
    )


@pytest.mark.parametrize("name", PLANS)
def test_flags_start_the_run_that_was_planned(tmp_path: Path, name: str, peer: Peer) -> None:
    """Tests that megatron-core takes the flags, and finds the plan's own degrees and slots."""
    exported = plan(tmp_path, name)
    layout = exported.layout
    answer = _checked(exported, peer, {})
    assert answer["accept"], answer
    found = answer["found"]
    expected = {"dp": layout.dp, "edp": layout.edp, "ga": layout.ga, "vpp": layout.vpp}
    assert {key: found[key] for key in expected} == expected
    slots = [
        [slot.count, slot.first, exported.problem.model.mtp_layers * slot.mtp]
        for slot in layout.slots
    ]
    assert found["stages"] == slots


@pytest.mark.parametrize("name", PLANS)
def test_overrides_say_what_the_flags_say(tmp_path: Path, name: str, peer: Peer) -> None:
    """Tests each override in Hydra's grammar, and its value in megatron-core's configurations.

    These are built from the flags; Megatron-Bridge's sections extend the same classes.
    """
    exported = plan(tmp_path, name)
    texts = array(megatron_bridge(exported, "test"), "MESHPLAN_OVERRIDES")
    parsed = peer.ask({"query": "overrides", "texts": texts})
    assert parsed["accept"], parsed
    values = {
        key: value
        for key, value in parsed["values"].items()
        if key.partition(".")[0] in _OWNERS and key not in _OTHERS
    }
    report: dict[str, list[str]] = {}
    for key in values:
        section, _, field = key.partition(".")
        report.setdefault(_OWNERS[section], []).append(_RENAMED.get(field, field))
    built = _checked(exported, peer, report)["report"]
    for key, value in values.items():
        section, _, field = key.partition(".")
        got = built[_OWNERS[section]][_RENAMED.get(field, field)]
        if field == "recompute_modules" and value is None:
            continue  # nothing reads the default of a granularity that is none
        wanted = _DTYPES.get(value, value) if isinstance(value, str) else value
        assert got == wanted, key


@pytest.mark.parametrize("name", PLANS)
def test_number_formats_agree(tmp_path: Path, name: str, peer: Peer) -> None:
    """Tests mixed_precision, a class of Megatron-Bridge alone, against what it is applied to."""
    exported = plan(tmp_path, name)
    texts = array(megatron_bridge(exported, "test"), "MESHPLAN_OVERRIDES")
    values = peer.ask({"query": "overrides", "texts": texts})["values"]
    mixed = {
        key.partition(".")[2]: value
        for key, value in values.items()
        if key.startswith("mixed_precision.")
    }
    names = {
        "bf16": "model", "fp8": "model", "fp8_recipe": "model", "fp4": "model",
        "fp8_param_gather": "args", "fp4_param_gather": "args", "grad_reduce_in_fp32": "ddp",
        "reuse_grad_buf_for_mxfp8_param_ag": "args",
    }  # fmt: skip
    assert mixed.keys() == names.keys()
    report: dict[str, list[str]] = {}
    for key, owner in names.items():
        report.setdefault(owner, []).append(key)
    built = _checked(exported, peer, report)["report"]
    if mixed["fp8"] is None:
        del mixed["fp8_recipe"]
    assert {key: built[names[key]][key] for key in mixed} == mixed
