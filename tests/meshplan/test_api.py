from __future__ import annotations

from pathlib import Path

import pytest

import meshplan
from tests.meshplan.results import small_file


def test_public_names_are_there() -> None:
    """Tests that everything in ``__all__`` can be used, and that unknown names are refused."""
    for name in meshplan.__all__:
        assert getattr(meshplan, name) is not None
        assert name in dir(meshplan)
    with pytest.raises(AttributeError, match="has no attribute 'sovle'"):
        meshplan.sovle  # noqa: B018


def test_check_takes_a_path_or_a_scenario(tmp_path: Path) -> None:
    """Tests the three lines of the README with a layout as text and as a mapping."""
    file = small_file(tmp_path)
    scenario = meshplan.load(file)
    report = meshplan.check(scenario, {"tp": 2, "ep": 2})
    assert isinstance(report, meshplan.CheckReport)
    assert report.status == "ok"
    assert meshplan.check(file, "tp=2,ep=2").layout == report.layout


def test_solve_gives_a_typed_plan(tmp_path: Path) -> None:
    """Tests that the search answers with a plan that the checker confirms, figure by figure."""
    file = small_file(tmp_path)
    result = meshplan.solve(file)
    assert isinstance(result, meshplan.Plan)
    data = result.to_json()
    stated = {
        **data["layout"],
        "recompute": data["recompute"]["modules"] or "none",
        "optimizer_offload": data["optimizer_offload"],
        "dispatcher": data["dispatcher"],
        "graphs": data["cuda_graphs"],
        "pipeline": data["pipeline"]["layout"],
    }
    report = meshplan.check(file, stated)
    assert report.status == "ok"
    assert report.cost == result.cost


@pytest.mark.parametrize("limit", [0.0, -1.0, float("nan"), float("inf")])
def test_solve_refuses_bad_limits(tmp_path: Path, limit: float) -> None:
    """Tests that a time limit is a finite positive number."""
    with pytest.raises(meshplan.InputError, match="time_limit_s"):
        meshplan.solve(small_file(tmp_path), time_limit_s=limit)


def test_errors_are_exceptions_with_advice(tmp_path: Path) -> None:
    """Tests that bad input reads the same in Python as on the command line."""
    with pytest.raises(meshplan.InputError) as caught:
        meshplan.load(tmp_path / "nothing.yaml")
    assert "does not exist" in str(caught.value) and "Maybe " in str(caught.value)


def test_flops_takes_a_name_or_a_scenario(tmp_path: Path) -> None:
    """Tests a card at two lengths, and that a scenario has a length of its own.

    8B: six FLOPs for each of 8.03 billion weights but the 0.53 billion of the embedding, and
    6 * (4096/2) * 2 * 4096 a layer for the causal half of the scores and of the values.
    """
    report = meshplan.flops("llama-3.1-8b", [4096, 8192])
    assert isinstance(report, meshplan.FlopsReport)
    assert list(report.parts) == [4096, 8192]
    core = 32 * 6 * 2048 * 2 * 4096
    assert report.parts[4096].attention_core == core
    assert report.parts[8192].total - report.parts[4096].total == core
    assert report.parts[4096].total == pytest.approx(6 * (8.03e9 - 0.53e9) + core, rel=0.002)
    assert [one["per_token"] for one in report.to_json()["flops"]] == [
        round(part.total) for part in report.parts.values()
    ]
    scenario = meshplan.load(small_file(tmp_path))
    assert meshplan.flops(scenario).seq_lens == (scenario.workload.seq_len,)


def test_flops_refuses_what_has_no_length() -> None:
    """Tests that a card alone has no sequence length."""
    with pytest.raises(meshplan.InputError, match=r"llama-3\.1-8b has no sequence"):
        meshplan.flops("llama-3.1-8b")
