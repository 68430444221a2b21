"""``meshplan import topology``, and scenarios that name what it reads and writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from meshplan.cli.app import application
from meshplan.scenarios import InputError, loads, resolve_cluster
from meshplan.scenarios.loader import load
from tests.meshplan.results import ROOT

DATA = ROOT / "tests" / "topologies" / "data"
BLOCKS = str(DATA / "topograph_dra_12x8.conf")
TREE = str(DATA / "topograph_oci_sim_tree.conf")

SCENARIO = """\
meshplan: 1
name: imported
model: toy-moe
cluster: {topology: %s}
workload: {seq_len: 1024, global_batch_size: 384, precision: bf16}
"""


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(application, ["import", "topology", *arguments])


def test_files_become_a_cluster_that_scenarios_name(tmp_path: Path) -> None:
    """Tests the whole way: two files, the report, the cluster file, and a solved scenario."""
    out = tmp_path / "cluster.yaml"
    run = _run(BLOCKS, TREE, "--node-type", "gb200-nvl72", "--out", str(out))
    assert run.exit_code == 0, run.output
    assert "96 nodes; 12 blocks (sizes 8,16,32)" in run.stdout
    assert "96 nodes; 19 switches, 12 of them leaves" in run.stdout
    assert "384 × GB200 in 96 nodes" in run.stdout
    assert "12 ×  32 GPUs ( 8 nodes)" in run.stdout
    assert "leaf switches: 12" in run.stdout
    assert "bandwidth-from-type" in run.stdout
    scenario = tmp_path / "case.yaml"
    scenario.write_text(SCENARIO % "cluster.yaml", "utf-8")
    cluster = resolve_cluster(load(scenario))
    assert (cluster.domains, cluster.leaf_domains) == ((32,) * 12, (1,) * 12)
    solved = CliRunner().invoke(application, ["solve", str(scenario), "--json", "-"])
    assert solved.exit_code == 0, solved.output
    assert json.loads(solved.stdout)["layout"]["gpus"] == 384


def test_a_scenario_names_a_topology_file_itself(tmp_path: Path) -> None:
    """Tests that a topology.conf with a node type is a cluster, and notes tell findings."""
    cluster = resolve_cluster(loads(SCENARIO % f"{TREE}, node_type: h100-hgx"))
    assert cluster.gpus == 768
    assert any("oversubscription-unknown" in note for note in cluster.notes)
    with pytest.raises(InputError, match="say nothing about the GPUs of a node"):
        resolve_cluster(loads(SCENARIO % TREE))
    broken = tmp_path / "topology.conf"
    broken.write_text("BlockName=b Nodes=n1\nBlockName=b Nodes=n2\n", "utf-8")
    with pytest.raises(InputError, match=r"\(line 2\): the block 'b' is defined twice"):
        resolve_cluster(loads(SCENARIO % f"{broken}, node_type: h100-hgx"))


def test_a_cluster_file_keeps_its_node_type(tmp_path: Path) -> None:
    """Tests that another node type beside a cluster file is refused."""
    out = tmp_path / "cluster.yaml"
    assert _run(BLOCKS, "--node-type", "gb200-nvl72", "-o", str(out)).exit_code == 0
    with pytest.raises(InputError, match="'h100-hgx', but the cluster file has 'gb200-nvl72'"):
        resolve_cluster(loads(SCENARIO % f"{out}, node_type: h100-hgx"))


def test_a_cluster_file_is_cut_but_not_overlaid(tmp_path: Path) -> None:
    """Tests that --group and --gpus cut a cluster file, and that what it cannot take is refused."""
    out = tmp_path / "cluster.yaml"
    assert _run(BLOCKS, "--node-type", "gb200-nvl72", "-o", str(out)).exit_code == 0
    run = _run(str(out), "--group", "32", "--gpus", "256")
    assert "256 × GB200 in 64 nodes" in run.stdout
    assert "idle-gpus: 128 of 384 GPUs are left idle" in run.stdout
    for more in ([BLOCKS], ["--exclude", "srv1101"], ["--nvlink-domain", "node"]):
        run = _run(str(out), *more)
        assert run.exit_code == 2
        assert "a cluster file stands alone" in run.stderr
    run = _run(str(out), "--group", "64")
    assert run.exit_code == 2
    assert "no NVLink domain holds a group of 64 GPUs; the largest has 32" in run.stderr


def test_node_labels_from_standard_input() -> None:
    """Tests the pipe from kubectl; the cluster then has a plain name."""
    labels = {"nvidia.com/gpu.count": "8", "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    items = [{"metadata": {"name": f"n{n}", "labels": labels}} for n in range(3)]
    run = CliRunner().invoke(
        application,
        ["import", "topology", "-", "--node-type", "h100-hgx"],
        input=json.dumps({"items": items}),
    )
    assert run.exit_code == 0, run.output
    assert "cluster imported: 24 × H100 SXM in 3 nodes" in run.stdout


def test_json_holds_cluster_and_findings() -> None:
    """Tests the keys that tools read."""
    run = _run(str(DATA / "aws_pcluster_9_18_9.conf"), "--node-type", "gb200-nvl72", "--json")
    data = json.loads(run.stdout)
    assert data["cluster"]["domains"] == [36, 72, 36]
    assert data["cluster"]["histogram"] == [
        {"gpus": 72, "domains": 1},
        {"gpus": 36, "domains": 2},
    ]
    assert "unequal-domains" in [one["id"] for one in data["findings"]]


def test_bad_input_is_refused_plainly(tmp_path: Path) -> None:
    """Tests exit code 2 with file and line, and that nothing is overwritten."""
    bad = tmp_path / "topology.conf"
    bad.write_text("SwitchName=a Nodes=n[1-\n", "utf-8")
    run = _run(str(bad), "--node-type", "h100-hgx")
    assert run.exit_code == 2
    assert f"{bad}:1: the hostlist" in run.stderr
    run = _run(BLOCKS, "--node-type", "gb200-nvl72", "--out", BLOCKS)
    assert run.exit_code == 2
    assert "would be overwritten" in run.stderr
    run = _run(BLOCKS)
    assert run.exit_code == 2
    assert "Maybe add the node type" in run.stderr
    run = _run(BLOCKS, "--node-type", "h100-hgxx")
    assert run.exit_code == 2
    assert "h100-hgx" in run.stderr
    bad.write_text("just words\n", "utf-8")
    assert "the format of the file is not known" in _run(str(bad)).stderr


def test_one_of_a_thing_is_said_in_the_singular(tmp_path: Path) -> None:
    """Tests a cluster of one node under one switch, and a file with one block, commented out."""
    path = tmp_path / "t.conf"
    path.write_text("SwitchName=s Nodes=n1\n", "utf-8")
    run = _run(str(path), "--node-type", "h100-hgx")
    assert "8 × H100 SXM in 1 node of h100-hgx" in run.stdout
    assert "GPUs (  1 node) █" in run.stdout
    assert "1 switch, 1 of them leaves" in run.stdout
    path.write_text("# no racks\n#BlockName=a Nodes=n[1-4]\n", "utf-8")
    run = _run(str(path), "--node-type", "h100-hgx")
    assert (run.exit_code, f"{path}:2: no block" in run.stderr) == (2, True)
    assert "1 line is commented out" in run.stderr


def test_empty_files_are_called_empty(tmp_path: Path) -> None:
    """Tests that the message is about the file, not about formats."""
    path = tmp_path / "t.conf"
    path.write_text(" \n", "utf-8")
    run = _run(str(path))
    assert (run.exit_code, f"{path}:1: the file is empty" in run.stderr) == (2, True)


def test_files_about_a_node_alone_are_held_against_its_type() -> None:
    """Tests a healthy dump, one of another type, and a type that does not exist.

    Without a list of nodes there is no cluster, but the node can be compared all the same.
    """
    skeleton = str(DATA / "azure_ndv5-topo.xml")  # 8 GPUs
    assert _run(skeleton, "--node-type", "h100-hgx").exit_code == 0
    run = _run(skeleton, "--node-type", "gb200-nvl72")
    assert run.exit_code == 2
    assert f"{skeleton}: the NCCL topology XML shows 8 GPUs, a node of gb200-nvl72 has 4" in (
        run.stderr
    )
    run = _run(skeleton, "--node-type", "h100-hgxx")
    assert (run.exit_code, "h100-hgx" in run.stderr) == (2, True)


@pytest.mark.parametrize(("last", "better"), [(2, "36 (segment 18)"), (10, "48 (segment 16)")])
def test_poor_segments_get_a_better_number(last: int, better: str, tmp_path: Path) -> None:
    """Tests 38 and 46 nodes: twice a prime, so that no segment is larger than 2."""
    path = tmp_path / "t.conf"
    path.write_text(
        f"BlockName=a Nodes=a[1-18]\nBlockName=b Nodes=b[1-18]\nBlockName=c Nodes=c[1-{last}]\n",
        "utf-8",
    )
    run = _run(str(path), "--node-type", "gb200-nvl72")
    assert f"{36 + last} nodes divide into segments of 2 at most" in run.stdout
    assert better in run.stdout
