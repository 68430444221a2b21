"""Ids of the NVLink fabric as lines: CSV of ``nvidia-smi``, tables of nodes, ``host: uuid`` lines.

A domain is a UUID *and* a clique: all GB300 racks have clique 32766, and one UUID can hold several
cliques.  The all-zero UUID means no NVLink beyond the node, whatever the state says.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from meshplan.topologies.errors import TopologyFileError
from meshplan.topologies.inventory import Finding, Inventory, counted, some
from meshplan.topologies.readers.hostlist import MAX_LENGTH

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z", re.IGNORECASE)
_ABSENT = {"n/a", "[n/a]", "[not supported]", "not supported", ""}
_NODE = re.compile(r"[A-Za-z0-9_.:-]+\Z")
#: Longest line; matching costs more than its length.
_LONGEST = 1000
_COLUMNS = {
    "node": "node",
    "host": "node",
    "hostname": "node",
    "name": "node",
    "fabric.clusteruuid": "uuid",
    "clusteruuid": "uuid",
    "cluster_uuid": "uuid",
    "uuid": "uuid",
    "fabric.cliqueid": "clique",
    "cliqueid": "clique",
    "clique_id": "clique",
    "clique": "clique",
}


def is_zero(uuid: str) -> bool:
    """Whether a UUID has nothing but zeros: no NVLink beyond the node."""
    return not uuid.replace("-", "").strip("0")


def check_node(name: str, line: int | None) -> None:
    """Refuse a name that no node can have.

    Raises
    ------
    TopologyFileError
        If it is empty, too long, or has other characters than host names.
    """
    if not _NODE.match(name) or len(name) > MAX_LENGTH:
        raise TopologyFileError(
            f"{name[:60]!r} is no name of a node",
            advice="use letters, digits, '.', '_' and '-'.",
            line=line,
        )


def id_findings(pairs: Iterable[tuple[str, str]]) -> list[Finding]:
    """A finding for each clique that several UUIDs have: they are different domains."""
    by_clique: dict[str, set[str]] = {}
    for uuid, clique in pairs:
        by_clique.setdefault(clique, set()).add(uuid)
    return [
        Finding(
            "same-clique",
            f"clique {clique[:20]} occurs with {len(uuids)} UUIDs: each is a domain of its own",
        )
        for clique, uuids in sorted(by_clique.items())
        if len(uuids) > 1
    ]


def read_fabric_ids(text: str, name: str = "this-node") -> Inventory:
    """Read ids of the fabric, one line for each node or for each GPU.

    Lines without a host are the GPUs of one node, called ``name``.

    Raises
    ------
    TopologyFileError
        With the line, if one is malformed, or a node is in two domains.
    """
    order: tuple[str, ...] = ("node", "uuid", "clique")
    rows: dict[str, list[tuple[str | None, str]]] = {}
    first: dict[str, int] = {}
    unnamed = False
    for line, raw in enumerate(text.split("\n"), 1):
        row = raw.strip()
        if not row or row.startswith("#"):
            continue
        if len(row) > _LONGEST:
            raise _malformed(row, line)
        cells = [cell.strip().strip('"') for cell in re.split(r"[,;\t]", row)]
        if not rows and (header := _header(cells)):
            order = header
            continue
        node, uuid, clique = _row(row, cells, order, line)
        unnamed = unnamed or node is None
        own = node if node is not None else name
        check_node(own, line)
        first.setdefault(own, line)
        known = rows.setdefault(own, [])
        if known and known[0] != (uuid, clique):
            raise TopologyFileError(
                f"node {own!r} is in two domains, the other on line {first[own]}",
                advice="give the ids of one moment: they may change when the fabric restarts.",
                line=line,
            )
        known.append((uuid, clique))
    if not rows:
        raise TopologyFileError("the file has no ids", advice="check that it was saved.")
    ids: dict[str, str | None] = {}
    zero, absent = [], []
    for node, known in rows.items():
        uuid, clique = known[0]
        if uuid is None:
            absent.append(node)
        elif is_zero(uuid):
            zero.append(node)
        ids[node] = f"{uuid}.{clique}" if uuid is not None and not is_zero(uuid) else None
    findings = []
    if zero:
        text = f"{counted(len(zero), 'node has', 'nodes have')} the all-zero UUID"
        findings.append(
            Finding("zero-uuid", f"{text}, which means no NVLink beyond the node: {some(zero)}")
        )
    if absent:
        text = f"{counted(len(absent), 'node has', 'nodes have')} no fabric id: {some(absent)}"
        findings.append(Finding("no-fabric-id", text))
    pairs = {known[0] for known in rows.values()}
    findings += id_findings((uuid, clique) for uuid, clique in pairs if uuid and not is_zero(uuid))
    # One line a node says nothing of its GPUs; several are one for each GPU.
    gpus = {node: len(known) for node, known in rows.items() if len(known) > 1 or unnamed}
    return Inventory("NVLink fabric ids", tuple(rows), ids=ids, gpus=gpus, findings=tuple(findings))


def _header(cells: list[str]) -> tuple[str, ...] | None:
    order = tuple(_COLUMNS.get(cell.lower().split(" ")[0], "") for cell in cells)
    return order if "uuid" in order else None


def _row(
    row: str, cells: list[str], order: tuple[str, ...], line: int
) -> tuple[str | None, str | None, str]:
    """Host (None: not said), UUID (None: not said) and clique of a line."""
    node: str | None
    if len(cells) == 1 and (match := re.match(r"(\S+?)\s*:\s+(\S+)(?:\s+(\S+))?\s*\Z", row)):
        node, uuid, clique = match[1], match[2], match[3] or ""
    else:
        if len(cells) == 2 and order == ("node", "uuid", "clique") and not _is_node(cells):
            order = ("uuid", "clique")
        named = dict(zip(order, cells, strict=False))
        node, uuid, clique = named.get("node"), named.get("uuid", ""), named.get("clique", "")
    if not clique and "." in uuid:  # in one word, as the label of Kubernetes has it
        uuid, _, clique = uuid.partition(".")
    if uuid.lower() in _ABSENT:
        return node, None, ""
    if not _UUID.match(uuid) or not re.fullmatch(r"[0-9A-Za-z]{0,20}", clique):
        raise _malformed(row, line)
    return node, uuid.lower(), clique


def _is_node(cells: list[str]) -> bool:
    """Whether two cells are a host and a UUID, not a UUID and a clique."""
    return bool(_UUID.match(cells[1])) or not (_UUID.match(cells[0]) or cells[0].lower() in _ABSENT)


def _malformed(row: str, line: int) -> TopologyFileError:
    return TopologyFileError(
        f"{row[:60]!r} is not of the form host, UUID, clique",
        advice="write lines such as gpu-01,b78ed242-7b98-426f-b194-b76b8899f4ec,32766.",
        line=line,
    )
