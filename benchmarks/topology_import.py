"""How long topology files of 10,000 nodes take to read, in what memory; and hostile ones.

It makes the files itself, reads each in a fresh process, and assembles what names nodes::

    python benchmarks/topology_import.py [--json PATH] [--nodes N]

``read`` is the CPU time of the reader, ``assemble`` that of making the cluster of it, ``peak`` the
most memory that the process held, interpreter and modules included (``VmHWM`` of Linux).  What a
hostile file is refused with stands in its row.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:  # run as a program
    sys.path.insert(0, str(ROOT))

from benchmarks.command_line import Results, dumps, exit_code, json_option  # noqa: E402

RACK = 18
UUID = "b78ed242-7b98-426f-b194-{:012x}"


def _racks(nodes: int) -> list[tuple[int, int]]:
    """First and last node of each rack."""
    return [(first, min(first + RACK, nodes + 1) - 1) for first in range(1, nodes + 1, RACK)]


def blocks_and_tree(nodes: int) -> str:
    """A topology.conf with a commented block and a leaf for each rack, under spines of 16."""
    racks = _racks(nodes)
    lines = []
    for index, (first, last) in enumerate(racks):
        lines += [f"# b{index}=nvl-{index}", f"BlockName=b{index} Nodes=n[{first}-{last}]"]
        lines += [f"SwitchName=l{index} Nodes=n[{first}-{last}]"]
    spines = -(-len(racks) // 16)
    for spine in range(spines):
        last = min(spine * 16 + 16, len(racks)) - 1
        lines.append(f"SwitchName=s{spine} Switches=l[{spine * 16}-{last}]")
    lines.append(f"SwitchName=top Switches=s[0-{spines - 1}]")
    return "\n".join([*lines, f"BlockSizes={RACK}", ""])


def one_line_a_node(nodes: int) -> str:
    """A topology.conf where each node is a block of its own, with odd names."""
    return "".join(f"BlockName=b{n} Nodes=host-{n * 7919 % 100_003}-x{n}\n" for n in range(nodes))


def topology_yaml(nodes: int) -> str:
    """A topology.yaml with a block for each rack."""
    lines = ["- topology: racks", "  block:", f"    block_sizes: [{RACK}]", "    blocks:"]
    lines += [
        f'      - {{block: b{index}, nodes: "n[{first}-{last}]"}}'
        for index, (first, last) in enumerate(_racks(nodes))
    ]
    return "\n".join(lines) + "\n"


def node_labels(nodes: int) -> str:
    """Output of kubectl get nodes -o json, with 40 labels a node."""
    items = []
    for n in range(nodes):
        labels = {f"example.com/label-{k}": f"value-{n}-{k}" for k in range(36)}
        labels |= {
            "nvidia.com/gpu.clique": UUID.format(n // RACK) + ".32766",
            "nvidia.com/gpu.count": "4",
            "nvidia.com/gpu.product": "NVIDIA-GB200",
            "network.topology.nvidia.com/leaf": f"leaf-{n // RACK}",
        }
        items.append({"metadata": {"name": f"n{n}", "labels": labels}})
    return json.dumps({"kind": "List", "items": items})


def fabric_ids(nodes: int) -> str:
    """Lines of host, UUID and clique."""
    return "".join(f"n{n},{UUID.format(n // RACK)},32766\n" for n in range(nodes))


def infiniband(nodes: int) -> str:
    """Output of ibnetdiscover with four rails and a leaf for each rack and rail."""
    lines = []
    for index, (first, last) in enumerate(_racks(nodes)):
        for rail in range(4):
            lines.append(f'Switch\t65 "S-{index:x}{rail}"\t\t# "MF0;leaf-{index}-{rail}:M/U1" p 0')
            lines += [
                f'[{port}]\t"H-{node:x}{rail}"[1](0)\t\t# "n{node} mlx5_{rail}" lid 1 4xNDR'
                for port, node in enumerate(range(first, last + 1), 1)
            ]
            lines += [
                f'[{20 + up}]\t"S-f{up}"[1]\t\t# "MF0;spine-{up}:M/U1" lid 2 4xNDR'
                for up in range(RACK)
            ]
    return "\n".join(lines) + "\n"


#: What must be refused, or read within the same bounds.
HOSTILE: dict[str, Callable[[], str]] = {
    "hostlist of 10^9": lambda: "BlockName=b Nodes=n[1-1000000000]\n",
    "hostlists of 10^6": lambda: "".join(
        f"BlockName=b{i} Nodes=n{i}x[1-250000]\n" for i in range(100)
    ),
    "brackets of brackets": lambda: "BlockName=b Nodes=n" + "[1-99]" * 100_000 + "\n",
    "switches × children": lambda: "SwitchName=s[1-9999] Nodes=n[1-9999]\n",
    "100,000 levels": lambda: "".join(
        f"SwitchName=s{i} Switches=s{i + 1}\n" for i in range(100_000)
    ) + "SwitchName=s100000 Nodes=n1\n",
    "cycle of 100,000": lambda: "".join(
        f"SwitchName=s{i} Switches=s{(i + 1) % 100_000}\n" for i in range(100_000)
    ),
    "one node 10^6 times": lambda: "SwitchName=s Nodes=" + ",".join(["n1"] * 1_000_000) + "\n",
    "YAML of brackets": lambda: "- topology: " + "[" * 10_000_000,
    "JSON of brackets": lambda: '{"items": ' + "[" * 10_000_000,
    "XML entities": lambda: "<!DOCTYPE system [<!ENTITY a '"
    + "a" * 10_000
    + "'>]><system>"
    + "&a;" * 100_000
    + "</system>",
    "XML of 10^6 tags": lambda: "<system>" + "a<cpu/>" * 1_000_000 + "</system>",
    "10^7 empty lines": lambda: "\n" * 10_000_000,
    "a line of 10^7": lambda: UUID.format(1) + ":" * 10_000_000,
}  # fmt: skip
LARGE: dict[str, Callable[[int], str]] = {
    "topology.conf, blocks and tree": blocks_and_tree,
    "topology.conf, a line a node": one_line_a_node,
    "topology.yaml": topology_yaml,
    "kubectl get nodes -o json": node_labels,
    "fabric ids": fabric_ids,
    "ibnetdiscover": infiniband,
}


def measure(path: str) -> dict[str, Any]:
    """Read the file at ``path`` and make a cluster of it, in this process."""
    from meshplan.topologies import ClusterError, node_type
    from meshplan.topologies.assembly import assemble
    from meshplan.topologies.inventory import Inventory
    from meshplan.topologies.readers.detect import read_topology_text

    text = Path(path).read_text("utf-8")
    row: dict[str, Any] = {"mib": round(len(text) / 2**20, 2), "assemble_s": None, "answer": "read"}
    start = time.process_time()
    try:
        reading = read_topology_text(text)
        row["read_s"] = time.process_time() - start
        if isinstance(reading, Inventory):
            start = time.process_time()
            made = assemble("c", [reading], node_type("gb200-nvl72"))
            row["assemble_s"] = time.process_time() - start
            row["answer"] = f"{made.cluster.nodes:,} nodes, {len(made.cluster.domains):,} domains"
    except ClusterError as error:
        row.setdefault("read_s", time.process_time() - start)
        row["answer"] = f"refused: {error.message[:60]}"
    # Not ru_maxrss: that begins with what the parent held.
    status = Path("/proc/self/status").read_text("utf-8")
    row["peak_mib"] = round(int(status.split("VmHWM:")[1].split()[0]) / 1024)
    return row


def _in_own_process(text: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        path.write_text(text, "utf-8")
        run = subprocess.run(
            [sys.executable, __file__, "--one", str(path)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
    if run.returncode:
        lines = run.stderr.strip().splitlines()
        return {"answer": f"FAILED: {lines[-1] if lines else run.returncode}", "mib": None,
                "read_s": None, "assemble_s": None, "peak_mib": None}  # fmt: skip
    row: dict[str, Any] = json.loads(run.stdout)
    return row


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as a Markdown table."""
    lines = [
        "| file | MiB | read s | assemble s | peak MiB | answer |",
        "|---|--:|--:|--:|--:|---|",
    ]
    for row in rows:
        read, made = row["read_s"], row["assemble_s"]
        lines.append(
            f"| {row['name']} | {row['mib']} | {'' if read is None else f'{read:.3f}'} | "
            f"{'' if made is None else f'{made:.3f}'} | {row['peak_mib']} | {row['answer']} |"
        )
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Measure all files; 1 if a reader failed other than by a refusal."""
    parser = argparse.ArgumentParser(description=__doc__)
    json_option(parser, "the rows")
    parser.add_argument("--nodes", type=int, default=10_000, metavar="N", help="nodes (10000)")
    parser.add_argument("--one", metavar="FILE", help="measure one file in this process, as JSON")
    options = parser.parse_args(arguments)
    if options.one:
        print(json.dumps(measure(options.one)))
        return 0
    return exit_code(lambda: _all(options.nodes, options.json))


def _all(nodes: int, path: str | None) -> int:
    results = Results({"--json": path})
    texts = [(name, make(nodes)) for name, make in LARGE.items()]
    texts += [(name, make()) for name, make in HOSTILE.items()]
    rows = [{"name": name, **_in_own_process(text)} for name, text in texts]
    with results.printing():
        print(table(rows))
    results.deliver("--json", lambda: dumps(rows))
    return int(any(row["answer"].startswith("FAILED") for row in rows))


if __name__ == "__main__":
    sys.exit(main())
