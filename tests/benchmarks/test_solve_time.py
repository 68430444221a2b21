from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import solve_time
from benchmarks.solve_instances import instances

ROOT = Path(__file__).resolve().parents[2]
TOY = """\
meshplan: 1
name: {name}
model: toy-moe
cluster: {{preset: h100-hgx, gpus: 8}}
workload: {{seq_len: 4096, global_batch_size: 16}}
layout: {{tp: {tp}}}
expect: {{status: optimal}}
"""


def _toy(folder: Path, name: str, tp: int) -> Path:
    file = folder / f"{name}.yaml"
    file.write_text(TOY.format(name=name, tp=tp), "utf-8")
    return file


def test_free_variants_are_the_different_questions(tmp_path: Path) -> None:
    """Tests that two files that differ in pins only are solved free once."""
    files = [_toy(tmp_path, "one", 1), _toy(tmp_path, "two", 2)]
    cases = solve_time.variants(files)
    assert [(name, variant) for name, variant, _ in cases] == [
        ("one", "as written"),
        ("two", "as written"),
        ("one", "free"),
    ]
    assert "layout" in cases[0][2], "as written has its pins"
    assert not set(solve_time.ASKED) & set(cases[2][2]), "free has none"
    assert cases[2][2]["workload"]["seq_len"] == 4096, "the question itself stays"


def test_instances_span_the_range() -> None:
    """Tests that there are 60 or more, from 8 to 131,072 GPUs and up to 1M tokens."""
    found = instances()
    sizes = [solve_time.size(one) for one in found]
    assert len(found) >= 60
    assert len({one["name"] for one in found}) == len(found), "each has a name of its own"
    assert {8, 131072} <= {gpus for gpus, _ in sizes}
    assert max(length for _, length in sizes) == 1 << 20
    assert all(not set(solve_time.ASKED) & set(one) for one in found), "all is free"


def test_table_by_gpus_has_medians() -> None:
    """Tests the median of 1, 2 and 9 s on 8 GPUs, and that failed cases are left out."""
    case = {"status": "optimal", "gpus": 8, "cells": 5, "peak_mib": 100.0}
    cases = [{**case, "solve_s": one, "cpu_s": one} for one in (1.0, 9.0, 2.0)]
    table = solve_time.by_gpus([*cases, {"status": "failed", "gpus": 16}]).splitlines()
    assert table[2:] == ["| 8 | 3 | 2.00 | 2.00 | 9.00 | 5 | 100 |"]


@pytest.mark.parametrize(
    ("percent", "value"),
    [(50, 5), (90, 9), (91, 10), (100, 10), (0, 1)],
)
def test_percentile_is_a_value_of_the_list(percent: float, value: float) -> None:
    """Tests the nearest rank of 1 to 10: nine of the ten do not exceed 9, so it is the 90th."""
    assert solve_time.percentile([10, 1, 9, 2, 8, 3, 7, 4, 6, 5], percent) == value


def test_percentile_of_nothing_is_refused() -> None:
    """Tests that an empty list gives an error and no number."""
    with pytest.raises(ValueError, match="nothing"):
        solve_time.percentile([], 50)


def test_report_has_the_figures(tmp_path: Path) -> None:
    """Tests that a toy scenario gives two cases, both optimal, with figures that agree."""
    target = tmp_path / "report.json"
    command = [sys.executable, str(ROOT / "benchmarks/solve_time.py"), "--json", str(target)]
    run = subprocess.run(
        [*command, str(_toy(tmp_path, "toy", 1))], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
    report = json.loads(target.read_text("utf-8"))
    assert [(case["variant"], case["status"]) for case in report["cases"]] == [
        ("as written", "optimal"),
        ("free", "optimal"),
    ]
    for case in report["cases"]:
        assert (case["gpus"], case["seq_len"]) == (8, 4096)
        assert 0 <= case["solver_s"] <= case["solve_s"] <= case["process_s"], "one within the other"
        assert case["peak_mib"] > 20, "no Python process with OR-Tools takes less"
    assert report["cases"][0]["cells"] < report["cases"][1]["cells"], "a pin leaves fewer"
    assert report["summary"]["free"]["infeasible_max_solve_s"] is None, "none is infeasible"
    assert "| toy | 8 | 4,096 | optimal |" in run.stdout


def test_failed_scenario_is_counted(tmp_path: Path) -> None:
    """Tests that a scenario that cannot be read gives a row, exit code 1, and not an abort."""
    file = tmp_path / "bad.yaml"
    file.write_text("meshplan: 1\nname: bad\n", "utf-8")
    measured = solve_time.in_fresh_process({"meshplan": 1, "name": "bad"}, 10)
    assert measured["status"] == "failed"
    case = {"name": "bad", "gpus": 8, "seq_len": 4096, **measured}
    assert solve_time.summary([case])["failed"] == 1
    assert "| bad | 8 | 4,096 | failed |" in solve_time.row(case)
