"""Runs of clusters that differ from the default in a known way: what was put in comes out."""

from __future__ import annotations

from pathlib import Path

import pytest

import meshplan
from meshplan.scenarios.calibration import default_calibration
from meshplan.solver.calibrate import CalibrationReport
from meshplan.solver.calibrate.determined import CONFOUNDED, Why
from meshplan.solver.calibrate.findings import Grade
from meshplan.solver.calibrate.validate import BandFrom
from tests.solver.calibrate.measured import LAYOUTS, SLOW, all_scaled, write_runs

BASE = default_calibration().parameters
BAND = default_calibration().error_band
MOE = {"moe": LAYOUTS["moe"]}


def _fitted(report: CalibrationReport) -> dict[str, float]:
    """Each fitted value over its base."""
    return {one.name: one.value / one.base for one in report.parameters if one.status == "fitted"}


def _one(report: CalibrationReport, name: str) -> meshplan.solver.calibrate.findings.Parameter:
    return next(one for one in report.parameters if one.name == name)


# -- what differs ------------------------------------------------------------------------------


def test_all_steps_a_quarter_longer_are_one_common_factor(tmp_path: Path) -> None:
    """Tests step times times 1.25, all of them: one factor, no efficiency is blamed.

    The factor is not 0.8 but 0.795, as a hundredth of a step is no efficiency's.
    """
    report = meshplan.calibrate(
        write_runs(tmp_path, noise=0.0, truth={}, factors=dict.fromkeys(range(20), 1.25))
    )
    assert set(_fitted(report)) == {"overall"}
    assert report.overall is not None
    assert report.overall.factor == pytest.approx(0.795, abs=0.005)
    assert report.overall.step_ratio == pytest.approx(1.25, abs=0.005)
    words = "your cluster is 25% slower overall: steps take 1.25 times as long as by default"
    assert words in " ".join(str(report).replace("│", " ").split())
    assert report.to_json()["overall"] == {
        "factor": round(report.overall.factor, 6),
        "step_ratio": round(report.overall.step_ratio, 6),
    }
    assert report.errors.after < 0.01 and report.band.value == 0.02


def test_common_factor_is_recovered_from_noise(tmp_path: Path) -> None:
    """Tests all efficiencies at 0.8 with 2 % of noise in 20 runs, which leave 0.5 % of the factor.

    The others follow it, also those that no run depends on, and keep their ratios.
    """
    report = meshplan.calibrate(write_runs(tmp_path, truth=all_scaled(SLOW)))
    assert set(_fitted(report)) == {"overall"}
    overall = _one(report, "overall")
    assert overall.value == pytest.approx(SLOW, rel=0.015)
    assert overall.spread is not None and abs(overall.value - SLOW) < 2 * overall.spread < 0.03
    fp8 = _one(report, "gemm_fp8")
    assert (fp8.status, fp8.why) == ("shared", Why.IDLE)
    assert fp8.value == pytest.approx(BASE.gemm_fp8 * overall.value, rel=1e-3)
    host = _one(report, "host_moe_layer_ms")
    assert host.value == pytest.approx(BASE.host_moe_layer_ms / overall.value, rel=1e-3)
    assert _one(report, "fused_mlp").value == BASE.fused_mlp, "a share of traffic stays"
    assert "with all, 0.85 in the base" in report.to_yaml(), "memory_stream, which is not fitted"


@pytest.mark.parametrize(
    ("name", "factor", "within"),
    [
        ("memory", 0.8, 0.08),
        ("attention_hopper", 0.7, 0.08),
        ("nic_dispatch", 0.6, 0.05),
    ],
)
def test_one_efficiency_is_recovered_alone(
    name: str, factor: float, within: float, tmp_path: Path
) -> None:
    """Tests one efficiency at a time, 2 % of noise: it is fitted, and nothing else is blamed."""
    truth = {name: getattr(BASE, name) * factor}
    report = meshplan.calibrate(write_runs(tmp_path, truth=truth))
    assert set(_fitted(report)) == {name}
    found = _one(report, name)
    assert found.value / found.base == pytest.approx(factor, rel=within)
    assert found.spread is not None
    assert abs(found.value - truth[name]) < 2 * found.spread < 0.2 * found.base


def test_common_factor_and_one_more(tmp_path: Path) -> None:
    """Tests all at 0.8 and the network at 0.48: the factor within 2 %, the network within 5 %."""
    truth = all_scaled(SLOW) | {"nic_dispatch": BASE.nic_dispatch * SLOW * 0.6}
    report = meshplan.calibrate(write_runs(tmp_path, truth=truth))
    found = _fitted(report)
    assert set(found) == {"overall", "nic_dispatch"}
    assert found["overall"] == pytest.approx(SLOW, rel=0.02)
    assert found["nic_dispatch"] == pytest.approx(SLOW * 0.6, rel=0.05)


# -- what cannot be told -----------------------------------------------------------------------


def test_alike_runs_cannot_tell_one_efficiency_from_all(tmp_path: Path) -> None:
    """Tests slow GEMMs in dense runs of which they are most: the common factor stands for them.

    That is said, with a correlation above the limit of the documentation.
    """
    layouts = {"dense": LAYOUTS["dense"]}
    truth = {"gemm_bf16": BASE.gemm_bf16 * 0.8}
    report = meshplan.calibrate(write_runs(tmp_path, truth=truth, layouts=layouts))
    assert set(_fitted(report)) == {"overall"}
    gemm = _one(report, "gemm_bf16")
    assert gemm.why is Why.CONFOUNDED and gemm.confounded_with == ("overall",)
    assert gemm.correlation is not None and gemm.correlation > CONFOUNDED
    assert gemm.reason.startswith("does to these runs what the common factor can do (correlation +")
    attention = _one(report, "attention_hopper")
    assert attention.status == "shared"
    assert report.errors.after < report.errors.before / 3


def test_contradicting_runs_say_so(tmp_path: Path) -> None:
    """Tests runs of one model that are half too slow and a fifth too fast in turn.

    No reason is that they hardly depend on GEMMs: a third less makes steps a third longer.
    """
    factors = {0: 1.6, 1: 0.8, 2: 1.6, 3: 0.8, 4: 1.5, 5: 0.9}
    layouts = {"dense": LAYOUTS["dense"]}
    report = meshplan.calibrate(
        write_runs(tmp_path, noise=0.0, truth={}, layouts=layouts, factors=factors)
    )
    assert _fitted(report) == {}
    gemm = _one(report, "gemm_bf16")
    assert gemm.why in (Why.SCATTER, Why.NO_GAIN) and "hardly" not in gemm.reason
    nvlink = _one(report, "nvlink")
    assert nvlink.why is Why.SCATTER
    assert nvlink.reason.startswith("the runs scatter by 25%, too much to tell: a third less of it")
    assert "changes steps by at most 9.0%" in nvlink.reason
    assert report.worth.grade is Grade.WEAK and "contradict each other" in report.worth.text
    assert report.band.value > 0.35 and report.band.source is BandFrom.UNSEEN
    assert any(note.startswith("the runs scatter by 25%") for note in report.notes)


def test_repeats_that_differ_are_named(tmp_path: Path) -> None:
    """Tests the same run twice, 1.5 times as long the second time: its lines are said."""
    layouts = {"moe": (*LAYOUTS["moe"][:4], LAYOUTS["moe"][0])}
    path = write_runs(tmp_path, noise=0.0, truth={}, layouts=layouts, factors={4: 1.5})
    notes = meshplan.calibrate(path).notes
    assert "lines 2 and 6 are the same run, but differ by 50%" in notes


# -- outliers, and few runs ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layouts", "factors"),
    [
        (LAYOUTS, {3: 3.0}),
        (LAYOUTS, {3: 1.6, 12: 1.5}),
        (MOE, {2: 1.6}),
        ({"moe": LAYOUTS["moe"][:4]}, {1: 1.6}),
    ],
)
def test_outliers_are_named_and_widen_nothing(
    layouts: dict[str, tuple[str, ...]], factors: dict[int, float], tmp_path: Path
) -> None:
    """Tests runs that are far off among good ones, 2 % of noise: the band stays below 3 %.

    One of two that depend on the network, one of six, one of four, two of twenty.
    """
    path = write_runs(tmp_path, truth={}, layouts=layouts, factors=factors, seed=3)
    report = meshplan.calibrate(path)
    assert [place for place, row in enumerate(report.rows) if row.wild] == sorted(factors)
    assert report.band.value < 0.03 and report.errors.before < 0.03
    assert report.worth.grade is Grade.SOUND
    assert _fitted(report) == {}, "the good runs are as predicted"
    for place, factor in factors.items():
        note = next(one for one in report.notes if f"(line {place + 2})" in one)
        assert note.startswith(f"{report.rows[place].run.name} (line {place + 2}) is +")
        said = int(note.partition(" is +")[2].partition("%")[0]) / 100
        assert said == pytest.approx(factor - 1, abs=0.15), "the throughput that is predicted"
        assert "fit, errors and band pass over it" in note
    assert f"{len(factors)} more passed over" in report.calibration.provenance
    assert f"to {len(report.rows) - len(factors)} runs of" in str(report)


def test_too_many_outliers_are_none(tmp_path: Path) -> None:
    """Tests three of six: no more than one is passed over, the others make the band wide.

    At best two of five are off by half, a fifth of it in the mean.
    """
    factors = {1: 1.6, 3: 1.5, 5: 0.6}
    path = write_runs(tmp_path, truth={}, layouts=MOE, factors=factors, seed=3)
    report = meshplan.calibrate(path)
    assert sum(row.wild for row in report.rows) <= 1
    assert report.band.value > 0.2 and report.worth.grade is Grade.WEAK


def test_one_run_far_off_is_worth_little(tmp_path: Path) -> None:
    """Tests one run 1.9 times as long as predicted: a common factor, a band as wide, and words."""
    layouts = {"moe": LAYOUTS["moe"][:1]}
    report = meshplan.calibrate(
        write_runs(tmp_path, noise=0.0, truth={}, layouts=layouts, factors={0: 1.9})
    )
    assert set(_fitted(report)) == {"overall"}
    assert report.errors.unseen is None and report.errors.groups == 1
    assert (report.band.value, report.band.source) == (0.9, BandFrom.DISTANCE)
    assert report.worth.grade is Grade.WEAK
    assert report.worth.text.startswith(
        "little: 1 layout tells a common factor at best, and nothing of other layouts; the runs "
        "are 90% off the prediction"
    )
    assert "# Worth: little: 1 layout tells a common factor" in report.to_yaml()
    assert "not cross-validated: 1 group of runs are too few" in report.calibration.provenance
    assert report.to_json()["worth"] == {"grade": "weak", "text": report.worth.text}


def test_too_few_groups_keep_the_band_of_the_base(tmp_path: Path) -> None:
    """Tests two good groups: no cross-validation, nothing fitted, the band of the base."""
    path = write_runs(tmp_path, truth={}, layouts={"moe": LAYOUTS["moe"][:2]})
    report = meshplan.calibrate(path)
    assert report.errors.unseen is None and report.errors.groups == 2
    assert (report.band.value, report.band.source) == (BAND, BandFrom.BASE)
    assert report.worth.grade is Grade.WEAK
    text = str(report)
    assert "not known: 2 groups of runs, 3 needed" in text
    assert "that of default, as there are too few" in text


def test_repeats_count_once(tmp_path: Path) -> None:
    """Tests 30 repeats of two runs: still two groups, and the same factor as from each once."""
    layouts = {"moe": LAYOUTS["moe"][:2]}
    path = write_runs(tmp_path, noise=0.0, truth=all_scaled(SLOW), layouts=layouts)
    once = meshplan.calibrate(path)
    header, *rows = path.read_text("utf-8").splitlines()
    path.write_text("\n".join([header, *rows * 30]) + "\n", "utf-8")
    often = meshplan.calibrate(path)
    assert often.errors.groups == once.errors.groups == 2
    assert _fitted(often) == pytest.approx(_fitted(once), rel=0.01)
    assert _one(often, "overall").spread == pytest.approx(_one(once, "overall").spread, rel=0.1)


def test_only_runs_of_their_kind_are_no_contradiction(tmp_path: Path) -> None:
    """Tests two of eight runs on a network at a fifth: explained, but neither predicts the other.

    The band is wide, and the words do not say that runs contradict each other.
    """
    layouts = {"moe": LAYOUTS["moe"][:4], "long": LAYOUTS["long"]}
    truth = {"nic_dispatch": BASE.nic_dispatch * 0.2}
    report = meshplan.calibrate(write_runs(tmp_path, truth=truth, layouts=layouts))
    assert set(_fitted(report)) == {"nic_dispatch"}
    assert report.errors.unseen is not None and report.errors.after < 0.03 < report.errors.unseen
    assert report.worth.grade is Grade.WEAK and report.band.value > BAND
    assert "some are the only ones of their kind" in report.worth.text
