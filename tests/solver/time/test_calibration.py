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


def test_only_linear_attention_has_another_band() -> None:
    """Tests all cards: none with gated delta net, half as much again with Mamba, else the fit's."""
    shipped = default_calibration().error_band
    assert shipped == 0.10
    bands = {name: error_band(problem(name)) for name in card_names()}
    for name, band in bands.items():
        kinds = {kind.attention for kind in problem(name).kinds}
        assert band == (
            None if "gdn" in kinds else pytest.approx(0.15) if "mamba" in kinds else shipped
        ), name
    assert bands["qwen3-next-80b-a3b"] is None
    assert bands["nemotron-3-nano-30b-a3b"] == pytest.approx(0.15)


@pytest.mark.parametrize(
    ("model", "tolerance", "says"),
    [
        ("deepseek-v3", 0.1, "= 10.0%, the error band of the calibration default: closer plans"),
        (
            "nemotron-3-nano-30b-a3b",
            0.15,
            "= 15.0%, the error band of the calibration default,",
        ),
        ("qwen3-next-80b-a3b", 0.1, "= 10.0%, for want of an error band: the calibration default"),
    ],
)
def test_ties_are_as_wide_as_the_band_and_it_is_said_why(
    model: str, tolerance: float, says: str
) -> None:
    """Tests the default of dp_tolerance; of gated delta net it is said not to trust the time."""
    data = {
        "meshplan": 1,
        "name": "ties",
        "model": model,
        "cluster": {"preset": "h100-hgx", "gpus": 256},
        "workload": {"seq_len": 4096, "global_batch_size": 256},
    }
    where = resolve(from_mapping(data))
    assert where.limits.dp_tolerance == pytest.approx(tolerance)
    (told,) = (text for text in where.assumed if "dp_tolerance" in text)
    assert says in told
    assert ("do not trust this step time" in told) == (model == "qwen3-next-80b-a3b")


def test_one_such_layer_is_enough() -> None:
    """Tests that one layer of gated delta net among 48 takes the band away."""
    mixed = card("qwen3-next-80b-a3b", layer_pattern=("full",) * 47 + ("gdn",))
    assert error_band(problem(mixed)) is None


def test_header_counts_what_is_fitted() -> None:
    """Tests that as many values are marked as fitted as the header of the file says: 10."""
    folder = resources.files("meshplan.scenarios").joinpath("calibrations")
    text = folder.joinpath("default.yaml").read_text("utf-8")
    assert len(re.findall(r"# fitted, spread", text)) == 10
    assert 'The 10 values marked "fitted"' in text


@pytest.mark.parametrize(
    "part", ["mean error", "left out of the fit", "doubtful settings 10 to 11 %"]
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
