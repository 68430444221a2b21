"""``meshplan import topology``: topology files as a cluster that scenarios can name."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from meshplan.cli.part_output import findings_option

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshplan.scenarios.topology_files import TopologyFiles
    from meshplan.topologies.inventory import Finding
    from meshplan.topologies.readers.detect import Reading

_SOURCES = {
    "node": "each node is one",
    "block": "from the blocks",
    "comment": "from comments of the file",
    "leaf": "from the leaf switches",
    "id": "from ids of the fabric",
    "file": "from the cluster file",
}


@click.command(name="topology", short_help="Topology files, as a cluster.")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option("--node-type", metavar="NAME", help="Type of the nodes; `meshplan clusters` lists.")
@click.option(
    "--nvlink-domain",
    type=click.Choice(["auto", "node", "block", "comment", "leaf", "id"]),
    default="auto",
    help="Where the NVLink domains come from; by default the best that the files have.",
)
@click.option("--exclude", metavar="HOSTLIST", multiple=True, help="Nodes to leave out.")
@click.option(
    "--group",
    type=click.IntRange(min=1),
    metavar="N",
    help="Use only what whole groups of N GPUs fill in each NVLink domain; the rest stays idle.",
)
@click.option(
    "--gpus",
    type=click.IntRange(min=1),
    metavar="N",
    help="Use only N GPUs, the first in rank order; with --group a multiple of it.",
)
@click.option("--name", metavar="NAME", help="Name of the cluster; else from the first file.")
@findings_option("text")
@click.option(
    "--output",
    "--out",
    "-o",
    metavar="PATH",
    help="Write the cluster to a file, for `cluster: {topology: PATH}` in scenarios.",
)
def import_topology(
    files: tuple[str, ...],
    node_type: str | None,
    nvlink_domain: Any,
    exclude: tuple[str, ...],
    group: int | None,
    gpus: int | None,
    name: str | None,
    json_path: str | None,
    output: str | None,
) -> None:
    """Read files about one cluster, and print what was understood and found.

    FILEs describe the same nodes and are overlaid; `-` is standard input.  Nothing is
    repaired silently: each finding says what is odd and what was made of it.
    """
    from meshplan.cli.whole_file import DASH, keep_apart, output_file
    from meshplan.scenarios.errors import InputError, printable
    from meshplan.scenarios.topology_files import read_topology_files
    from meshplan.topologies.cluster_file import cluster_file

    target = output_file(output, "--output")
    findings = output_file(json_path, "--json")
    keep_apart([target, findings], {f"file {n}": file for n, file in enumerate(files, 1)})
    read = read_topology_files(
        files,
        node_type,
        name=name,
        nvlink_domain=nvlink_domain,
        exclude=exclude,
        group=group,
        gpus=gpus,
    )
    if target is not None and read.imported is None:
        raise InputError(
            "no file names the nodes of a cluster, so there is none to write",
            advice="add a topology.conf, the node labels, or ids of the NVLink fabric.",
        )
    data = json.dumps(_data(read), indent=2)
    # Names come from the files: no control character of them may reach the terminal.
    click.echo(printable(data if json_path == DASH else "\n".join(_lines(read))))
    if findings is not None:
        findings.write(f"{data}\n")
    if target is not None and read.imported is not None:
        target.write(cluster_file(read.imported.cluster))


def _findings(read: TopologyFiles) -> list[Finding]:
    if read.imported is not None:
        return list(read.imported.findings)
    return [finding for _, reading in read.readings for finding in reading.findings]


def _lines(read: TopologyFiles) -> list[str]:
    from meshplan.solver.report.words import counted

    lines = [f"{file}: {_summary(reading)}" for file, reading in read.readings]
    if read.imported is not None:
        cluster = read.imported.cluster
        source = _SOURCES[read.imported.domain_source]
        kind = cluster.node_type
        lines += [
            "",
            f"cluster {cluster.name}: {cluster.gpus:,} × {kind.gpu} in "
            f"{counted(cluster.nodes, 'node')} of {kind.name}",
            f"NVLink domains ({source}):",
            *_histogram(read.imported.histogram, kind.gpus_per_node),
        ]
        if cluster.leaf_domains:
            lines.append(f"leaf switches: {len(cluster.leaf_domains):,}")
    findings = _findings(read)
    if findings:
        lines += ["", counted(len(findings), "finding")]
        lines += [f" - {one.id}: {one}" for one in findings]
    return lines


def _histogram(histogram: Mapping[int, int], gpus_per_node: int) -> list[str]:
    from meshplan.solver.report.words import counted

    most = max(histogram.values())
    return [
        f"  {count:>6,} × {gpus:>3} GPUs ({counted(-(-gpus // gpus_per_node), 'node'):>8}) "
        + "█" * max(1, round(40 * count / most))
        for gpus, count in histogram.items()
    ]


def _summary(reading: Reading) -> str:
    """One line about what a file holds."""
    from meshplan.solver.report.words import counted
    from meshplan.topologies.inventory import Inventory, NodeReading

    if isinstance(reading, Inventory):
        parts = [counted(len(reading.nodes), "node")]
        if reading.blocks:
            planned = ",".join(str(size) for size in reading.block_sizes)
            parts.append(
                f"{counted(len(reading.blocks), 'block')}{planned and f' (sizes {planned})'}"
            )
        if reading.leaves:
            switches = f"{reading.switches:,} switch{'es' if reading.switches != 1 else ''}"
            parts.append(f"{switches}, {len(reading.leaves):,} of them leaves")
        if reading.ids:
            keys = {key for key in reading.ids.values() if key is not None}
            parts.append(f"{counted(len(keys), 'id')} of NVLink domains")
        return f"{reading.form}: {'; '.join(parts)}"
    if isinstance(reading, NodeReading):
        parts = [counted(reading.gpus, "GPU")]
        if reading.islands:
            sizes = sorted((len(island) for island in reading.islands), reverse=True)
            parts.append(f"NVLink islands of {', '.join(str(size) for size in sizes)}")
        if reading.rails:
            cards = {card for rail in reading.rails for card in rail}
            parts.append(counted(len(cards), "rail card"))
        return f"{reading.form}: {'; '.join(parts)}"
    hosts = {host for leaf in reading.leaves for host in leaf.hosts}
    return (
        f"{reading.form}: {len(reading.leaves):,} leaf switches, "
        f"{counted(reading.spines, 'spine')}, {counted(len(hosts), 'host')}"
    )


def _data(read: TopologyFiles) -> dict[str, Any]:
    data: dict[str, Any] = {
        "files": [
            {"file": file, "form": reading.form, "summary": _summary(reading)}
            for file, reading in read.readings
        ],
        "cluster": None,
        "findings": [
            {"id": one.id, "text": one.text, "file": one.file or None, "line": one.line}
            for one in _findings(read)
        ],
    }
    if read.imported is not None:
        cluster = read.imported.cluster
        data["cluster"] = {
            "name": cluster.name,
            "node_type": cluster.node_type.name,
            "gpus": cluster.gpus,
            "nodes": cluster.nodes,
            "domain_source": read.imported.domain_source,
            "histogram": [
                {"gpus": gpus, "domains": count} for gpus, count in read.imported.histogram.items()
            ],
            "domains": list(cluster.domains),
            "leaf_domains": list(cluster.leaf_domains),
            "oversubscription": cluster.oversubscription,
        }
    return data
