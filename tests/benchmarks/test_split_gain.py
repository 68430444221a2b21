from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import split_gain
from benchmarks.split_gain import Row

TOY = """\
meshplan: 1
name: toy
model: {{card: toy-dense, layers: {layers}}}
cluster: {{preset: h100-hgx, gpus: 4}}
workload: {{seq_len: 4096, global_batch_size: 16}}
layout: {{tp: 1, cp: 1, pp: {pp}, vpp: 1, mbs: 1}}
options: {{recompute: none, optimizer_offload: 0}}
"""


def _row(folder: Path, layers: int, pp: int) -> Row:
    file = folder / "toy.yaml"
    file.write_text(TOY.format(layers=layers, pp=pp), "utf-8")
    data = next(iter(split_gain.questions([file])))
    return split_gain.compared(data, 60)


def test_the_better_of_two_even_splits_counts(tmp_path: Path) -> None:
    """Tests 7 layers over 4 stages: with embedding or loss counted, 8 split evenly.

    The loss takes longer than the embedding, so the last stage is the one with a layer less.
    """
    row = _row(tmp_path, 7, 4)
    assert (row.status, row.even_status) == ("optimal", "optimal")
    assert row.gain is not None and row.gain >= 0
    assert "`Ett|(tt|)*2tL`" in row.even_split


def test_a_question_without_even_split_counts(tmp_path: Path) -> None:
    """Tests 5 layers over 4 stages of one chunk: 5, 6 and 7 are no multiples of 4."""
    row = _row(tmp_path, 5, 4)
    assert (row.status, row.even_status, row.gain) == ("optimal", "infeasible", None)
    assert row.counts
    assert "**only so**" in split_gain.line(row)


@pytest.mark.parametrize(
    ("step_s", "even_s", "counts"), [(0.9, 1.0, True), (0.98, 1.0, False), (1.0, 1.0, False)]
)
def test_more_than_three_percent_counts(step_s: float, even_s: float, counts: bool) -> None:
    """Tests the gain as a share of the even plan's step."""
    row = Row("x", "optimal", "pp2", step_s, "optimal", "pp2", even_s)
    assert row.gain == pytest.approx(1 - step_s)
    assert row.counts is counts


def test_program_prints_and_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests one file: a table, a total, and the same in JSON."""
    monkeypatch.setattr(split_gain, "PUBLISHED", ())
    file, result = tmp_path / "toy.yaml", tmp_path / "rows.json"
    file.write_text(TOY.format(layers=8, pp=4), "utf-8")
    assert split_gain.main([str(file), "--json", str(result)]) == 0
    assert "1 questions, 1 with a plan" in capsys.readouterr().out
    (row,) = json.loads(result.read_text("utf-8"))
    assert row["name"] == "toy" and row["gain"] >= 0
