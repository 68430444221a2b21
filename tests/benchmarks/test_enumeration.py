from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import enumeration
from benchmarks.enumeration import Row
from meshplan.constraints.resolve import resolve
from meshplan.scenarios import from_mapping
from meshplan.solver.results import Plan
from meshplan.solver.solve import solve
from tests.solver.oracle import best, tried
from tests.solver.small import draw

TOY = """\
meshplan: 1
name: toy
model: {card: toy-moe, layers: 4}
cluster: {preset: h100-hgx, gpus: 4}
workload: {seq_len: 4096, global_batch_size: 8}
"""


@pytest.mark.parametrize("seed", [3, 8, 21])
def test_enumeration_search_and_oracle_agree(seed: int) -> None:
    """Tests the number of layouts and the least step time against the slow oracle of the tests."""
    problem = resolve(from_mapping(draw(seed)))
    every = tried(problem)
    expected = best(every, problem.capacity, 0, problem.host_capacity)
    least = enumeration.enumerated(problem, 600)
    assert least == (expected and expected.fastest)
    answer = solve(problem)
    assert least == (round(answer.proof.objective * 1e6) if isinstance(answer, Plan) else None)


def test_limits_are_kept() -> None:
    """Tests that an enumeration ends when its time has passed."""
    with pytest.raises(enumeration.TooLong):
        enumeration.enumerated(resolve(from_mapping(draw(3))), 0)


def test_program_prints_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Tests an instance that is enumerated, and one with more layouts than allowed."""
    file, out = tmp_path / "toy.yaml", tmp_path / "rows.json"
    file.write_text(TOY, "utf-8")
    assert enumeration.main([str(file), "--json", str(out)]) == 0
    (row,) = json.loads(out.read_text("utf-8"))
    assert row["least"] == row["found"] > 0 and row["layouts"] > 1000
    assert enumeration.main([str(file), "--most", "10"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].endswith("| same |") and "| not ended |  | | |" in lines[-1]


def test_a_difference_is_told() -> None:
    """Tests a row in which the two differ."""
    row = Row("x", 8, 100, 2.0, 0.5, 7, None)
    assert not row.agrees
    assert enumeration.line(row) == "| x | 8 | 100 | 2.00 | 0.50 | 4.0 | **7 and None us** |"
