"""What lies far outside the runs of a calibration, and what does not."""

from __future__ import annotations

from typing import Any

import pytest

from meshplan.constraints.advisories import ALL_ADVISORIES
from meshplan.constraints.calibrated import Beyond, beyond_calibration
from meshplan.constraints.layout import Layout
from meshplan.constraints.problem import Problem
from meshplan.scenarios.calibration import Covered, default_calibration
from tests.constraints.factories import problem

#: Runs of Qwen3-30B-A3B and of Llama at 4K to 32K on 64 H100.
COVERS = Covered(
    runs=20,
    seq_len=(4096, 32768),
    gpus=(64, 64),
    precisions=("bf16",),
    gpu_types=("H100 SXM",),
    layers=("gqa+dense", "gqa+moe"),
)
CALIBRATION = default_calibration().model_copy(update={"name": "mine", "covers": COVERS})


def _problem(model: str = "qwen3-30b-a3b", **changes: Any) -> Problem:
    return problem(model, **{"gpus": 64, "calibration": CALIBRATION, **changes})


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, None),
        ({"seq_len": 65536}, None),
        ({"seq_len": 65664}, Beyond("seq_len", 65664, (4096, 32768))),
        ({"seq_len": 2048}, None),
        ({"seq_len": 1024}, Beyond("seq_len", 1024, (4096, 32768))),
        ({"gpus": 256}, None),
        ({"gpus": 264}, Beyond("gpus", 264, (64, 64))),
        ({"gpus": 8}, Beyond("gpus", 8, (64, 64))),
        ({"precision": "fp8-block"}, Beyond("precision", "fp8-block", ("bf16",))),
        ({"preset": "b200-hgx"}, Beyond("gpu_type", "B200", ("H100 SXM",))),
        ({"model": "llama-3.1-70b"}, None),
        ({"model": "deepseek-v3"}, Beyond("layers", "mla+dense, mla+moe", COVERS.layers)),
    ],
)
def test_each_way_to_be_far_outside(changes: dict[str, Any], found: Beyond | None) -> None:
    """Tests each limit: twice the length, four times the GPUs, and what no run had at all."""
    assert beyond_calibration(_problem(**changes)) == (() if found is None else (found,))


def test_a_calibration_that_does_not_say_is_never_left() -> None:
    """Tests that the default, whose rows are published runs of all kinds, warns of nothing."""
    far = _problem("deepseek-v3", seq_len=1 << 20, calibration=default_calibration())
    assert default_calibration().covers is None and beyond_calibration(far) == ()


def test_advisory_has_the_figures() -> None:
    """Tests the words: both figures of each way, the name of the calibration, and its band."""
    advisory = next(one for one in ALL_ADVISORIES if one.id == "beyond-calibration")
    where = _problem(seq_len=131072, precision="fp8-block")
    assert advisory.finds(where, Layout(), ()) == (
        "far outside what the calibration mine rests on: seq_len 131,072, where its runs had 4,096 "
        "to 32,768; precision fp8-block, where its runs had bf16; its band of 10% does not hold "
        "here"
    )
    assert advisory.finds(_problem(), Layout(), ()) is None
    assert str(Beyond("gpus", 512, (64, 64))) == "gpus 512, where its runs had 64"
