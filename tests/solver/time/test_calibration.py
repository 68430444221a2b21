"""The shipped calibration, and where it holds."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

import pytest
import yaml

from meshplan.constraints.resolve import resolve
from meshplan.scenarios import from_mapping
from meshplan.scenarios.calibration import default_calibration
from meshplan.scenarios.cards import card_names
from meshplan.solver.time.trust import error_band
from tests.constraints.factories import card, problem


def test_only_linear_attention_is_not_calibrated() -> None:
    """Tests that cards with gated-delta-net or Mamba layers have no error band, all others one."""
    linear = set()
    for name in card_names():
        kinds = {kind.attention for kind in problem(name).kinds}
        band = error_band(problem(name))
        assert (band is None) == bool(kinds & {"gdn", "mamba"}), name
        linear |= {name} if band is None else set()
    assert {"qwen3-next-80b-a3b", "nemotron-3-nano-30b-a3b"} <= linear
    bands = {"deepseek-v3": error_band(problem("deepseek-v3"))}
    assert bands["deepseek-v3"] == default_calibration().error_band == 0.10


def test_one_such_layer_is_enough() -> None:
    """Tests that one layer of gated delta net among 48 takes the band away."""
    mixed = card("qwen3-next-80b-a3b", layer_pattern=("full",) * 47 + ("gdn",))
    assert error_band(problem(mixed)) is None


def test_header_counts_what_is_fitted() -> None:
    """Tests that as many values are marked as fitted as the header of the file says: 11."""
    folder = resources.files("meshplan.scenarios").joinpath("calibrations")
    text = folder.joinpath("default.yaml").read_text("utf-8")
    assert len(re.findall(r"# fitted, spread", text)) == 11
    assert 'The 11 values marked "fitted"' in text


@pytest.mark.parametrize(
    "part", ["mean error", "left out of the fit", "doubtful settings 11 to 12 %"]
)
def test_provenance_does_not_claim_too_much(part: str) -> None:
    """Tests that the provenance gives the mean, on what the fit has not seen, and with all rows."""
    assert part in default_calibration().provenance


def test_a_bad_calibration_makes_no_wide_ties(tmp_path: Path) -> None:
    """Tests a band of 43 percent: plans 20 percent apart at most are ties, and that is told."""
    path = tmp_path / "bad.yaml"
    shipped = default_calibration()
    path.write_text(
        yaml.safe_dump(shipped.model_copy(update={"error_band": 0.43}).model_dump(mode="json"))
    )
    data = {
        "meshplan": 1,
        "name": "bad",
        "model": "toy-moe",
        "cluster": {"preset": "h100-hgx", "gpus": 8},
        "workload": {"seq_len": 4096, "global_batch_size": 8},
        "calibration": str(path),
    }
    where = resolve(from_mapping(data))
    assert where.limits.dp_tolerance == 0.2
    told = [text for text in where.assumed if "dp_tolerance" in text]
    assert told == [
        "objective.dp_tolerance = 20.0%, the most that is taken for a tie: the error band of the "
        "calibration default is 43.0%, too much to tell plans apart"
    ]
