from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from meshplan.cli.app import application
from tests.meshplan.results import ROOT, small_file

DSV3_128K = str(ROOT / "scenarios" / "seed" / "dsv3-h100-128k.yaml")


def _check(*arguments: str) -> Result:
    return CliRunner().invoke(application, ["check", *arguments])


def test_published_layout_passes() -> None:
    """Tests the layout of the mission: DeepSeek-V3 at 128K on 256 H100s, exit code 0."""
    run = _check(DSV3_128K, "--layout", "tp=1,cp=32,ep=32,pp=8,vpp=4")
    assert run.exit_code == 0, run.output
    for part in (
        "OK: this layout is legal and fits.",
        "tp 1 × cp 32 × dp 1 × pp 8 = 256 GPUs, vpp 4",
        "etp 1 × ep 32 × edp 1 × pp 8 = 256 GPUs",
        "rank 7",
        "attention core",
        "dp-floor",
        "gpu-count-wall",
    ):
        assert part in run.output


def test_illegal_layout_fails(tmp_path: Path) -> None:
    """Tests exit code 1 for a layout that breaks a rule, with the rule and the nearest values."""
    run = _check(small_file(tmp_path), "--layout", "tp=3")
    assert run.exit_code == 1
    assert "heads-tp" in run.output and "nearest legal: tp = 2 or 4" in run.output


def test_overfull_layout_fails(tmp_path: Path) -> None:
    """Tests exit code 1 for a legal layout that does not fit."""
    arguments = ("--set", "model=deepseek-v3", "--layout", "ep=8")
    run = _check(small_file(tmp_path), *arguments)
    assert run.exit_code == 1
    assert "Overfull: this layout is legal" in run.output
    words = " ".join(run.output.replace("│", " ").split())
    assert "`meshplan memory` shows what single changes would save, " in words
    assert "`meshplan diagnose` what would suffice." in words


def test_layout_of_the_file_serves(tmp_path: Path) -> None:
    """Tests that without --layout the pins of the scenario are judged."""
    run = _check(small_file(tmp_path, "layout: {tp: 4, ep: 4}\n"))
    assert run.exit_code == 0
    assert "tp 4 × cp 1 × dp 2 × pp 1 = 8 GPUs" in run.output


def test_json_goes_to_standard_output_alone(tmp_path: Path) -> None:
    """Tests that ``--json -`` prints JSON and nothing else, with the keys of the contract."""
    run = _check(small_file(tmp_path), "--layout", "tp=3", "--json", "-")
    data = json.loads(run.output)
    assert run.exit_code == 1
    assert (data["meshplan_result"], data["name"], data["status"]) == (1, "small", "illegal")
    assert {"layout", "memory", "time", "advisories", "assumed", "violations"} <= set(data)


def test_json_file_is_written_beside_the_report(tmp_path: Path) -> None:
    """Tests that a file gets the JSON while the terminal gets the report."""
    target = tmp_path / "out.json"
    run = _check(small_file(tmp_path), "--json", str(target))
    assert run.exit_code == 0
    assert "OK: this layout" in run.output
    assert json.loads(target.read_text("utf-8"))["status"] == "ok"


def test_quiet_prints_nothing(tmp_path: Path) -> None:
    """Tests that ``--quiet`` leaves the exit code and the file."""
    target = tmp_path / "out.json"
    run = _check(small_file(tmp_path), "--quiet", "--json", str(target))
    assert (run.exit_code, run.output) == (0, "")
    assert target.exists()


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        ("tp=0", "layout has tp = 0, but tp must be an integer from 1 to 1048576"),
        ("tpp=2", "unknown key 'tpp'"),
        ("", "it states nothing"),
        ("pipeline=EtX", "has 'X' where only"),
    ],
)
def test_bad_layouts_are_bad_input(tmp_path: Path, layout: str, message: str) -> None:
    """Tests exit code 2, one message on standard error, no traceback, nothing on output."""
    run = _check(small_file(tmp_path), "--layout", layout)
    assert run.exit_code == 2
    assert message in run.stderr and "Maybe " in run.stderr
    assert run.stdout == "" and "Traceback" not in run.stderr


def test_overrides_change_the_question(tmp_path: Path) -> None:
    """Tests ``--set``, also that a bad one is bad input."""
    file = small_file(tmp_path)
    assert "8,192 tokens" in _check(file, "--set", "workload.seq_len=8192").output
    run = _check(file, "--set", "workload.seq_len=-1")
    assert run.exit_code == 2
    assert "override 'workload.seq_len=-1'" in run.stderr


def test_activation_offload_is_shown(tmp_path: Path) -> None:
    """Tests text and JSON of check and memory, and that both say where it does nothing."""
    file = small_file(tmp_path, "options: {activation_offload: [core_attn]}\n")
    for command in ("check", "memory"):
        for recompute in ("none", "full"):
            layout = f"tp=2,ep=2,recompute={recompute}"
            run = CliRunner().invoke(application, [command, file, "--layout", layout])
            text = " ".join(run.stdout.split())
            moved = recompute == "none"
            assert ("activations inputs of core_attn on the host" in text) == moved
            assert ("recompute = full saves nothing of it" in text) == (recompute == "full")
            run = CliRunner().invoke(
                application, [command, file, "--layout", layout, "--json", "-"]
            )
            data = json.loads(run.stdout)
            assert data["activation_offload"] == (["core_attn"] if moved else [])
            ids = [one["id"] for one in data["advisories"]]
            assert ("idle-setting" in ids) == (recompute == "full")
