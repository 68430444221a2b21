"""The published DeepSeek-V3 series: every point ran on 80 GB, and what each option buys."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.memory_families import MODULES, POINTS, main


def test_every_published_point_fits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Tests both families at six lengths, the gain of each option, and the public estimates."""
    file = tmp_path / "families.json"
    assert main(["--json", str(file)]) == 0
    rows = json.loads(file.read_text("utf-8"))
    assert [row["seq_len"] for row in rows] == [1024 * point[0] for point in POINTS] * 2
    for row in rows:
        assert row["verdict"] in ("fits", "tight")
        assert row["tp"] * row["cp"] == row["seq_len"] // 4096
        assert all(row["buys_gib"][module] > 0 for module in MODULES)
        # 8 bytes of state (fp32 master, two bf16 moments) of 671 B parameters over all GPUs, more
        # or less by what the fullest rank holds, less where the peak moves to another rank.
        even = 8 * 671e9 / row["gpus"] / 2**30
        assert 0.7 * even < row["offload_buys_gib"] < 1.3 * even
    assert "public estimators 97, 109, 131 or 2,003" in capsys.readouterr().out
