"""Calibration files that people write: refusals with line, value and advice."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from meshplan.scenarios.calibration import DEFAULT_FILE, read_calibration
from meshplan.scenarios.errors import InputError


@pytest.mark.parametrize(
    ("line", "words", "advice"),
    [
        ("date: yesterday", "date is 'yesterday', but must be a date", "write it as 2026-11-30."),
        ("date: 3.5", "date is 3.5, but must be a date", "write it as 2026-11-30."),
        ("date: [1]", "date is the list [1], but must be a date", "write it as 2026-11-30."),
        ("error_band: 5", "error_band is 5, but must be less than 1.0", "use less than 1.0."),
        ("error_bands: 0.1", "error_band is missing", "add error_band."),
    ],
)
def test_slips_are_told(line: str, words: str, advice: str, tmp_path: Path) -> None:
    """Tests that a slip in the calibration that ships with meshplan is told."""
    key = line.partition(":")[0].removesuffix("s")
    text, count = re.subn(rf"^{key}:.*$", line, DEFAULT_FILE.read_text("utf-8"), flags=re.M)
    assert count == 1
    path = tmp_path / "cal.yaml"
    path.write_text(text, "utf-8")
    with pytest.raises(InputError) as refused:
        read_calibration(path)
    assert words in str(refused.value) and advice in str(refused.value)
    assert refused.value.line is not None


@pytest.mark.parametrize(
    ("covers", "words"),
    [
        ("{runs: 3, seq_len: [4096, 0], gpus: [8, 8]", "seq_len[1] is 0, but must be"),
        ("{runs: 3, seq_len: 4096, gpus: [8, 8]", "seq_len is 4096, but must be"),
    ],
)
def test_slips_in_what_the_runs_were_are_told(covers: str, words: str, tmp_path: Path) -> None:
    """Tests ranges with a nought, and of one number."""
    rest = "precisions: [bf16], gpu_types: [H100 SXM], layers: [gqa+moe]}"
    path = tmp_path / "cal.yaml"
    path.write_text(f"covers: {covers}, {rest}\n" + DEFAULT_FILE.read_text("utf-8"), "utf-8")
    with pytest.raises(InputError, match=re.escape(f"covers.{words}")) as refused:
        read_calibration(path)
    assert refused.value.line == 1


@pytest.mark.parametrize("name", ["host_tensor_factor", "host_mla_factor"])
def test_factors_of_older_files_are_refused_with_what_replaced_them(
    name: str, tmp_path: Path
) -> None:
    """Tests a file that still names a factor on the host time of a layer."""
    path = tmp_path / "cal.yaml"
    text = DEFAULT_FILE.read_text("utf-8").replace("host_collective_us: 600 ", f"{name}: 1.8 ")
    assert name in text
    path.write_text(text, "utf-8")
    with pytest.raises(InputError) as refused:
        read_calibration(path)
    assert f"parameters.{name} was replaced by host_collective_us" in str(refused.value)
    assert f"remove {name}" in str(refused.value)
    line = next(i for i, one in enumerate(text.splitlines(), 1) if one.startswith(f"  {name}"))
    assert refused.value.line == line
