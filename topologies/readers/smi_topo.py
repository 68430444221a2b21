"""``nvidia-smi topo -m``: NVLink islands of a node, and the network card next to each GPU."""

from __future__ import annotations

import re

from meshplan.topologies.errors import TopologyFileError
from meshplan.topologies.inventory import NodeReading
from meshplan.topologies.readers.node_graph import (
    MAX_NODE_GPUS,
    islands,
    nvlink_findings,
    rail_findings,
)

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
#: Columns; they run together where a box has more than ten network cards.
_COLUMN = re.compile(
    r"\s*(GPU[0-9]{1,3}|NIC[0-9]{1,3}?(?=NIC|\D|\Z)|[A-Za-z]+[0-9]*_[A-Za-z0-9_]+)"
)
_CELL = re.compile(r"\s*(X|NV([0-9]{1,3})|PIX|PXB|PHB|NODE|SYS)")
_LEGEND = re.compile(r"\s*(NIC[0-9]{1,3}):\s*(\S+)")
#: Near to far.
_NEAR = ("PIX", "PXB", "PHB", "NODE", "SYS")


def read_smi_topo(text: str) -> NodeReading:
    """Read the matrix of ``nvidia-smi topo -m``.

    Raises
    ------
    TopologyFileError
        With the line, if there is no matrix, rows or cells of GPUs are missing (a paste that was
        cut), a cell is no known class, or the matrix is not symmetric.
    """
    lines = _ANSI.sub("", text).split("\n")
    start = next(
        (n for n, line in enumerate(lines) if re.match(r"\s*GPU0\b(?!\s+X\b)", line)), None
    )
    if start is None:
        raise TopologyFileError(
            "there is no header that begins with GPU0", advice="give the whole output."
        )
    columns = _columns(lines[start])
    gpus = [column for column in columns if column.startswith("GPU")]
    if gpus != [f"GPU{index}" for index in range(len(gpus))] or len(gpus) > MAX_NODE_GPUS:
        raise TopologyFileError(
            f"the header has the GPUs {' '.join(gpus)[:60]}",
            advice=f"give all GPUs of the node, in order, at most {MAX_NODE_GPUS}.",
            line=start + 1,
        )
    rows: dict[str, list[str]] = {}
    at: dict[str, int] = {}
    cards: dict[str, str] = {}
    for number, line in enumerate(lines[start + 1 :], start + 2):
        if legend := _LEGEND.match(line):
            cards[legend[1]] = legend[2][:60]
            continue
        name = line.split(None, 1)[0] if line.strip() else ""
        if name in gpus:
            if name in rows:
                raise TopologyFileError(
                    f"the row {name} is there twice", advice="give one node.", line=number
                )
            rows[name] = _cells(line.strip()[len(name) :], columns, name, number)
            at[name] = number
    if missing := [gpu for gpu in gpus if gpu not in rows]:
        raise TopologyFileError(
            f"the row {missing[0]} is missing, so the matrix was cut",
            advice="give the whole output.",
            line=len(lines) if not rows else max(at.values()),
        )
    return _reading(columns, gpus, rows, at, cards)


def _reading(
    columns: list[str],
    gpus: list[str],
    rows: dict[str, list[str]],
    at: dict[str, int],
    cards: dict[str, str],
) -> NodeReading:
    count = len(gpus)
    matrix = [[rows[gpu][columns.index(other)] for other in gpus] for gpu in gpus]
    for one in range(count):
        for other in range(count):
            if (matrix[one][other] == "X") != (one == other):
                raise TopologyFileError(
                    f"{gpus[one]} to {gpus[other]} is {matrix[one][other]}",
                    advice="X stands for a GPU itself, and for nothing else.",
                    line=at[gpus[one]],
                )
            if matrix[one][other] != matrix[other][one]:
                raise TopologyFileError(
                    f"{gpus[one]} to {gpus[other]} is {matrix[one][other]}, but back it is "
                    f"{matrix[other][one]}",
                    advice="give the output as it was printed.",
                    line=at[gpus[max(one, other)]],
                )
    links = [
        (one, other)
        for one in range(count)
        for other in range(one)
        if matrix[one][other].startswith("NV")
    ]
    found = islands(count, links)
    nvlinks = tuple(
        max((int(cell[2:]) for cell in row if cell.startswith("NV")), default=0) for row in matrix
    )
    nics = [column for column in columns if not column.startswith("GPU")]
    rails, near = [], []
    for gpu in gpus if nics else ():
        distance = {nic: _NEAR.index(rows[gpu][columns.index(nic)]) for nic in nics}
        least = min(distance.values())
        rails.append(tuple(cards.get(nic, nic) for nic in nics if distance[nic] == least))
        near.append(least <= _NEAR.index("PXB"))
    return NodeReading(
        "nvidia-smi topo -m",
        count,
        found,
        nvlinks,
        tuple(rails),
        findings=(*nvlink_findings(found, nvlinks), *rail_findings(near)),
    )


def _columns(header: str) -> list[str]:
    """Names of the columns before those about CPUs."""
    header = header.split("CPU Affinity")[0].rstrip()
    columns: list[str] = []
    place = 0
    while match := _COLUMN.match(header, place):
        columns.append(match[1])
        place = match.end()
    return columns


def _cells(row: str, columns: list[str], name: str, line: int) -> list[str]:
    cells: list[str] = []
    place = 0
    for column in columns:
        match = _CELL.match(row, place)
        if match is None:
            rest = row[place:].split()
            said = f"is {rest[0][:20]!r}" if rest else "is missing, so the matrix was cut"
            raise TopologyFileError(
                f"{name} to {column} {said}",
                advice="give the whole output; the classes are X, NV#, PIX, PXB, PHB, NODE, SYS.",
                line=line,
            )
        if not column.startswith("GPU") and match[1].startswith(("NV", "X")):
            raise TopologyFileError(
                f"{name} to {column} is {match[1]}",
                advice="give the output as it was printed.",
                line=line,
            )
        cells.append(match[1])
        place = match.end()
    return cells
