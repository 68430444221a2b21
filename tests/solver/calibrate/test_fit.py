"""Fits to runs of which the truth is known: the model's own, with other efficiencies and noise."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterator
from pathlib import Path

import pytest

import meshplan
from meshplan.scenarios.calibration import Covered, default_calibration, read_calibration
from meshplan.scenarios.errors import InputError
from meshplan.solver import extras
from meshplan.solver.calibrate import CalibrationReport, picture
from meshplan.solver.calibrate.findings import Grade, Overall, Worth
from meshplan.solver.calibrate.wording import shortened
from tests.solver.calibrate.measured import HELD_OUT, LAYOUTS, TRUTH, stated, true_s, write_runs

BASE = default_calibration().parameters
BAND = default_calibration().error_band
DAY = datetime.date(2026, 11, 30)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with 20 runs of four scenarios, 2 % of noise."""
    path = tmp_path_factory.mktemp("runs")
    write_runs(path)
    return path


@pytest.fixture(scope="module")
def report(folder: Path) -> CalibrationReport:
    """The fit to these runs."""
    return meshplan.calibrate(folder / "runs.csv", date=DAY)


def _held_out(report: CalibrationReport, folder: Path) -> Iterator[float]:
    """Relative error of the step time of each layout that no fit has seen."""
    fitted = report.calibration.parameters.model_dump()
    for name, layouts in HELD_OUT.items():
        for layout in layouts:
            truth = true_s(folder, name, layout)
            yield true_s(folder, name, layout, fitted) / truth - 1


def _by_name(report: CalibrationReport) -> dict[str, float]:
    return {one.name: one.value for one in report.parameters if one.status == "fitted"}


def test_truth_is_recovered(report: CalibrationReport) -> None:
    """Tests GEMMs 15 % slower within 4 %, memory 20 % slower within 15 %, and their spreads.

    Matrix products are most of every run, elementwise work a tenth of it: 2 % of noise in 20 runs
    leave about 2 % of the one and 10 % of the other.
    """
    found = _by_name(report)
    assert found["gemm_bf16"] == pytest.approx(TRUTH["gemm_bf16"], rel=0.04)
    assert found["memory"] == pytest.approx(TRUTH["memory"], rel=0.15)
    for one in report.parameters:
        if one.name in TRUTH:
            assert one.spread is not None
            assert abs(one.value - TRUTH[one.name]) < 3 * one.spread
            assert one.spread < 0.15 * one.value, "half of the prior's spread of 0.3"


def test_what_was_right_stays_about_right(report: CalibrationReport) -> None:
    """Tests that fitted efficiencies that the truth shares with the base stay within 15 %."""
    for one in report.parameters:
        if one.status == "fitted" and one.name not in TRUTH:
            assert one.value == pytest.approx(one.base, rel=0.15), one.name


def test_unseen_layouts_are_predicted(report: CalibrationReport, folder: Path) -> None:
    """Tests that layouts that no fit has seen are within 3 %, where the base is not."""
    errors = list(_held_out(report, folder))
    assert len(errors) == 7
    assert max(map(abs, errors)) < 0.03
    base = report.base.parameters.model_dump()
    before = [
        true_s(folder, n, x, base) / true_s(folder, n, x) - 1 for n in HELD_OUT for x in HELD_OUT[n]
    ]
    assert max(map(abs, before)) > 0.08, "the default is off by the changed efficiencies"


def test_errors_and_band(report: CalibrationReport) -> None:
    """Tests the errors: several percent before, about the noise after, unseen a little more.

    The mean of the absolute value of 2 % of normal noise is 1.6 %, and the band adds the standard
    error of the mean over 20 groups to it; it is never below 2 %.
    """
    errors = report.errors
    assert errors.before > 0.05
    assert errors.unseen is not None and 0.01 < errors.after < errors.unseen < 0.02
    assert 0.02 <= report.band.value < 0.021, "the floor, or a little more"
    assert report.calibration.error_band == report.band.value
    assert report.worth == Worth(Grade.SOUND)
    assert errors.groups == 20, "each run has a layout of its own"
    assert report.ties_after.ties < report.ties_before.ties, "a narrower band has fewer ties"
    assert report.ties_after.pairs == report.ties_before.pairs == 42, "15 + 6 + 15 + 6"


def test_what_no_run_depends_on_is_said(report: CalibrationReport) -> None:
    """Tests that bf16 on Hopper says nothing of FP8, Blackwell, HybridEP or overlap."""
    idle = {one.name for one in report.parameters if one.status == "idle"}
    assert {"gemm_fp8", "attention_blackwell", "nic_hybridep", "ultra_factor", "fused_mlp"} <= idle
    assert all(one.value == one.base for one in report.parameters if one.status != "fitted")


def test_same_file_same_answer(report: CalibrationReport, folder: Path) -> None:
    """Tests that a fit is repeatable, byte by byte."""
    again = meshplan.calibrate(folder / "runs.csv", date=DAY)
    assert again.to_yaml() == report.to_yaml()
    assert again.to_json() == report.to_json()


def test_scenario_reads_what_was_written(report: CalibrationReport, folder: Path) -> None:
    """Tests the round trip: a report that names the calibration, its band, and its step time."""
    path = folder / "my-cluster.yaml"
    path.write_text(report.to_yaml(), "utf-8")
    assert read_calibration(path) == report.calibration
    body = (folder / "moe.yaml").read_text("utf-8").replace("name: moe", "name: mine")
    (folder / "mine.yaml").write_text(body + "calibration: my-cluster.yaml\n", "utf-8")
    time = meshplan.check(folder / "mine.yaml", stated(LAYOUTS["moe"][0])).to_json()["time"]
    assert time["calibration"]["name"] == "runs"
    assert time["calibration"]["provenance"].startswith("fitted to 20 measured runs in runs.csv")
    assert "cross-validated" in time["calibration"]["provenance"]
    assert time["error_band"] == report.band.value
    assert time["step_s"] == pytest.approx(report.rows[0].after_s, rel=1e-3), "four digits are kept"
    assert time["calibration"]["beyond"] == []


def test_plans_far_outside_say_so(report: CalibrationReport, folder: Path) -> None:
    """Tests a scenario at 128K: JSON has what and how far, the text a word beside the band."""
    assert report.calibration.covers == Covered(
        runs=20,
        seq_len=(4096, 32768),
        gpus=(64, 64),
        precisions=("bf16",),
        gpu_types=("H100 SXM",),
        layers=("gqa+dense", "gqa+moe"),
    )
    (folder / "cal.yaml").write_text(report.to_yaml(), "utf-8")
    body = (folder / "long.yaml").read_text("utf-8").replace("seq_len: 32768", "seq_len: 131072")
    (folder / "far.yaml").write_text(body + "calibration: cal.yaml\n", "utf-8")
    judged = meshplan.check(folder / "far.yaml", stated("cp=8,ep=8,pp=1"))
    assert judged.to_json()["time"]["calibration"]["beyond"] == [
        {"what": "seq_len", "value": 131072, "seen": [4096, 32768]}
    ]
    text = " ".join(str(judged).replace("│", " ").split())
    assert "± 2% (estimate; far outside the calibration's runs)" in text
    assert "seq_len 131,072, where its runs had 4,096 to 32,768" in text


def test_file_says_why_each_value_is_what_it_is(report: CalibrationReport) -> None:
    """Tests the comments: fitted with base and spread, or kept with the reason."""
    lines = {line.split(":")[0].strip(): line for line in report.to_yaml().splitlines()}
    assert f"# fitted, {BASE.gemm_bf16:g} in the base, spread 0.01" in lines["gemm_bf16"]
    assert "# base: no run depends on it" in lines["gemm_fp8"]
    assert "# base: not fitted to runs" in lines["memory_stream"]


def test_report_names_what_matters(report: CalibrationReport) -> None:
    """Tests errors, band, ties, parameters and the worst runs, in 100 columns."""
    text = str(report)
    for words in ("error before", "unseen", "band          ± ", "are ties now (",
                  "gemm_bf16", "no run depends on gemm_fp8", "Worst 5 of 20 runs"):  # fmt: skip
        assert words in text
    assert max(map(len, text.splitlines())) <= 100


def test_right_base_stays(tmp_path: Path) -> None:
    """Tests that runs that the base predicts exactly move nothing."""
    layouts = {"moe": LAYOUTS["moe"], "dense": LAYOUTS["dense"]}
    report = meshplan.calibrate(write_runs(tmp_path, noise=0.0, truth={}, layouts=layouts))
    assert report.overall is None and _by_name(report) == {}
    assert report.calibration.parameters == BASE
    assert report.band.value == 0.02, "the floor"
    assert "nothing was fitted: no common factor" in report.notes[0]


def test_fit_starts_from_another_calibration(report: CalibrationReport, folder: Path) -> None:
    """Tests ``base``: a file keeps its own values where the runs cannot tell, and is named."""
    base = folder / "base.yaml"
    text = report.to_yaml().replace("name: runs", "name: first")
    text = text.replace(f"  gemm_fp8: {BASE.gemm_fp8:g}", "  gemm_fp8: 0.55")
    base.write_text(text, "utf-8")
    runs = folder / "few.csv"
    runs.write_text("".join((folder / "runs.csv").read_text("utf-8").splitlines(True)[:6]), "utf-8")
    again = meshplan.calibrate(runs, base=base, name="second")
    assert again.calibration.name == "second"
    assert again.calibration.parameters.gemm_fp8 == 0.55
    assert "from calibration first" in again.calibration.provenance
    assert again.errors.before < 0.03, "the first calibration knows these runs"


def test_missing_library_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that without SciPy the message names the extra."""
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"needs scipy, which is not installed") as refused:
        meshplan.calibrate(folder / "runs.csv")
    assert "pip install 'meshplan[calibrate]'" in str(refused.value)


def test_picture_is_a_page(report: CalibrationReport) -> None:
    """Tests that the picture is a PNG of 1560 × 910 points: 12 × 7 inches at 130."""
    content = report.picture()
    assert content.startswith(b"\x89PNG\r\n")
    size = (int.from_bytes(content[16:20], "big"), int.from_bytes(content[20:24], "big"))
    assert size == (1560, 910)


def test_title_of_the_picture(report: CalibrationReport) -> None:
    """Tests that the title counts runs, tells those passed over, and the common factor."""
    once = dataclasses.replace(report, rows=report.rows[:1])
    assert picture._title(once)[0].startswith("runs: 1 run, mean error ")
    wild = dataclasses.replace(report.rows[0], wild=True)
    slow = dataclasses.replace(
        report, rows=(wild, *report.rows[1:]), overall=Overall(factor=0.8, step_ratio=1.25)
    )
    first, second = picture._title(slow)
    assert first.startswith("runs: 19 runs and 1 passed over, mean error ")
    assert second.startswith("your cluster is 25% slower overall: steps take 1.25 times as long")
    assert slow.picture().startswith(b"\x89PNG\r\n")


def test_one_wild_run_squeezes_no_others(report: CalibrationReport) -> None:
    """Tests that the ends of the page are those of the other runs and the band."""
    wild = dataclasses.replace(report.rows[0], after_s=0.1, before_s=0.1, wild=True)
    low, high = picture._limits(dataclasses.replace(report, rows=(wild, *report.rows[1:])))
    assert -10 < low < -2.6 and 8 < high < 20, "13 % before, 3 % after, 1.3 times a band of 2 %"


def test_pictures_of_wide_ranges_have_logarithmic_axes() -> None:
    """Tests both kinds of axes, and that no two of 70 models look alike."""
    from matplotlib.figure import Figure

    near, wide = Figure().subplots(1, 2)
    assert picture._scale(near, 400.0, 1100.0) == pytest.approx((0.0, 1166))
    assert picture._scale(wide, 70.0, 3500.0) == pytest.approx((56, 4375))
    assert (near.get_xscale(), wide.get_yscale()) == ("linear", "log")
    looks = {
        (picture._MARKERS[i % len(picture._MARKERS)], picture._COLORS[i % len(picture._COLORS)])
        for i in range(70)
    }
    assert len(looks) == 70


@pytest.mark.parametrize(
    ("name", "width", "shown"),
    [("short", 5, "short"), ("ps-26.04-h100-bf16", 11, "ps-26…-bf16"), ("abcdefgh", 4, "ab…h")],
)
def test_long_names_keep_both_ends(name: str, width: int, shown: str) -> None:
    """Tests that rows of one family, which begin alike, stay apart."""
    assert shortened(name, width) == shown
