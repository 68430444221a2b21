from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from meshplan.cli.app import application
from tests.meshplan.results import small_file

RACKS = """meshplan: 1
name: racks
model: toy-moe
cluster: {topology: racks.conf, node_type: gb200-nvl72}
workload: {seq_len: 4096, global_batch_size: 48}
layout: {ep: 4, dp: 16}
"""


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(application, list(arguments))


@pytest.fixture
def racks(tmp_path: Path) -> Path:
    """A scenario on two racks with 3 and 2 trays."""
    (tmp_path / "racks.conf").write_text("BlockName=a Nodes=a[1-3]\nBlockName=b Nodes=b[1-2]\n")
    file = tmp_path / "racks.yaml"
    file.write_text(RACKS)
    return file


def test_a_plan_is_placed_and_its_files_written(racks: Path) -> None:
    """Tests that solve uses 16 of 20 GPUs, and that place gives its nodes, ranks and picture."""
    plan, picture = str(racks.with_suffix(".json")), racks.with_suffix(".svg")
    run = _run("solve", str(racks), "--json", plan, "--picture", str(picture))
    assert run.exit_code == 0, run.output
    assert "16 of 20 used (80.0%)" in run.output
    assert picture.read_bytes().startswith(b"<?xml")
    files = {name: racks.parent / f"{name}.txt" for name in ("hostfile", "nodelist", "rankmap")}
    options = [word for name, path in files.items() for word in (f"--{name}", str(path))]
    run = _run("place", plan, *options)
    assert run.exit_code == 0, run.output
    assert "16 ranks in 2 of 2 NVLink domains, 4 GPUs idle." in run.output
    nodes = files["nodelist"].read_text().split()
    assert sorted(nodes) == ["a1", "a2", "b1", "b2"]
    assert files["hostfile"].read_text().split() == [node for node in nodes for _ in range(4)]
    assert len(files["rankmap"].read_text().splitlines()) == 17
    data = json.loads(_run("place", plan, "--json", "-").stdout)
    assert data["status"] == "placed" and data["placement"]["ranks"]["segment_nodes"] == 2
    assert data["placement"] == json.loads(Path(plan).read_text())["placement"]


def test_what_cannot_be_placed_is_refused(tmp_path: Path) -> None:
    """Tests names that no preset has, a picture of another format, and a plan as an output."""
    plan = str(tmp_path / "plan.json")
    scenario = small_file(tmp_path)
    assert _run("check", scenario, "--layout", "tp=1,ep=2", "--json", plan, "-q").exit_code == 0
    hosts = tmp_path / "hosts"
    run = _run("place", plan, "--hostfile", str(hosts))
    assert run.exit_code == 2 and "have no names" in run.stderr and not hosts.exists()
    run = _run("place", plan, "--picture", str(tmp_path / "a.pdf"))
    assert run.exit_code == 2 and "a picture is a .png or a .svg file" in run.stderr
    run = _run("place", plan, "--nodelist", plan)
    assert run.exit_code == 2 and "PLAN.json" in run.stderr
    run = _run("place", scenario)
    assert run.exit_code == 2 and "this is no JSON" in run.stderr
