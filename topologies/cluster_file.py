"""The cluster file that ``meshplan import topology`` writes and scenarios name."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

import yaml

from meshplan.topologies.borders import runs_of
from meshplan.topologies.cluster import MAX_GPUS, Cluster
from meshplan.topologies.errors import ClusterError, TopologyFileError, UnknownName
from meshplan.topologies.node_types import node_type
from meshplan.topologies.readers.hostlist import expand, fold
from meshplan.topologies.readers.yaml_values import (
    Value,
    list_of,
    mapping_of,
    read_values,
    shown,
    text_of,
    whole_of,
)

#: First key of a cluster file, and its version.
KEY = "meshplan_cluster"
_KEYS = (KEY, "name", "node_type", "domains", "leaves", "oversubscription", "nodes")


def cluster_file(cluster: Cluster) -> str:
    """``cluster`` as the text of a cluster file."""
    data: dict[str, object] = {
        KEY: 1,
        "name": cluster.name,
        "node_type": cluster.node_type.name,
        "oversubscription": cluster.oversubscription,
        "domains": [{"count": run.count, "gpus": run.size} for run in runs_of(cluster.domains)],
    }
    if cluster.leaf_domains:
        data["leaves"] = [
            {"count": sum(1 for _ in same), "domains": domains}
            for domains, same in groupby(cluster.leaf_domains)
        ]
    if cluster.node_names:
        data["nodes"] = fold(cluster.node_names)
    return yaml.safe_dump(data, sort_keys=False, default_flow_style=None, width=100)


def read_cluster_file(text: str) -> Cluster:
    """The cluster in the text of a cluster file.

    Raises
    ------
    TopologyFileError
        With the line, if it is malformed, a key is unknown or missing, or the numbers disagree.
    """
    document = read_values(text)
    keys = mapping_of(document, "the cluster", _KEYS)
    if whole_of(keys[KEY], KEY) != 1:
        raise TopologyFileError(
            f"{KEY} is {shown(keys[KEY])}, but this version reads 1",
            advice="write the file anew with meshplan import topology.",
            line=keys[KEY].line,
        )
    for key in ("node_type", "domains"):
        if key not in keys:
            raise TopologyFileError(f"{key} is missing", advice=f"add {key}.", line=document.line)
    kind_text = text_of(keys["node_type"], "node_type", document.line)
    try:
        kind = node_type(kind_text)
    except UnknownName as error:
        raise TopologyFileError(
            error.message, advice=error.advice, line=keys["node_type"].line
        ) from None
    domains = _runs(keys["domains"], "domains", "gpus", MAX_GPUS)
    leaves = _runs(keys["leaves"], "leaves", "domains", MAX_GPUS) if "leaves" in keys else ()
    names: tuple[str, ...] = ()
    if "nodes" in keys:
        nodes = keys["nodes"]
        names = expand(text_of(nodes, "nodes", document.line), nodes.line)
        if len(set(names)) < len(names):
            raise TopologyFileError(
                "nodes names a node twice", advice="name each node once.", line=nodes.line
            )
    try:
        return Cluster(
            text_of(keys.get("name"), "name", document.line),
            kind,
            tuple(domains),
            oversubscription=_ratio(keys.get("oversubscription")),
            leaf_domains=tuple(leaves),
            node_names=names,
        )
    except TopologyFileError:
        raise
    except ClusterError as error:
        raise TopologyFileError(
            error.message, advice=error.advice, line=keys["domains"].line
        ) from None


def _runs(value: Value, what: str, unit: str, most: int) -> Iterable[int]:
    numbers: list[int] = []
    for one in list_of(value, what):
        fields = mapping_of(one, f"an entry of {what}", ("count", unit))
        if unit not in fields:
            raise TopologyFileError(
                f"an entry of {what} has no {unit}", advice=f"add {unit}.", line=one.line
            )
        count = whole_of(fields["count"], "count") if "count" in fields else 1
        if len(numbers) + count > most:
            raise TopologyFileError(
                f"{what} has more than {most:,} entries", advice="check count.", line=one.line
            )
        numbers += [whole_of(fields[unit], unit)] * count
    return numbers


def _ratio(value: Value | None) -> float:
    if value is None:
        return 1.0
    text = text_of(value, "oversubscription", value.line)
    try:
        return float(text)
    except ValueError:
        raise TopologyFileError(
            f"oversubscription is {shown(value)}, but must be a number",
            advice="write 1.0 for a non-blocking network.",
            line=value.line,
        ) from None
