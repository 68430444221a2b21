"""``ibnetdiscover``: the physical leaves of an InfiniBand network and their real uplinks."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from meshplan.topologies.errors import TopologyFileError
from meshplan.topologies.inventory import Fabric, FabricLeaf, Finding, counted, some

_HEAD = re.compile(r"(Switch|Ca|Rt)\s+[0-9]+\s+\"([^\"]{1,60})\"\s*#\s*\"([^\"]*)\"")
_PORT = re.compile(
    r"\[[0-9]+\](?:\[ext [0-9]+\])?\s*(?:\([0-9a-f]+\))?\s*\"([^\"]{1,60})\"\[[0-9]+\]"
    r"(?:\[ext [0-9]+\])?(?:\([0-9a-f]+\))?\s*#\s*(.*)"
)
_RATE = re.compile(r"\b([0-9]{1,2})x(SDR|DDR|QDR|FDR10|FDR|EDR|HDR|NDR|XDR)\b")
#: Gb/s of one lane, nominal.
_LANE = {"SDR": 2.5, "DDR": 5, "QDR": 10, "FDR10": 10, "FDR": 14, "EDR": 25, "HDR": 50, "NDR": 100,
         "XDR": 200}  # fmt: skip
_HOST = re.compile(r"(\S+)\s+((?:HCA-|mlx\d+_|ibp?)\S+)\Z")
_MOST_SWITCHES = 100_000
#: What is read of a line; matching costs more than its length.
_LONGEST = 1000


@dataclass
class _Switch:
    name: str
    line: int
    down: dict[str, float] = field(default_factory=dict)
    cards: Counter[str] = field(default_factory=Counter)
    down_gbit: float = 0.0
    up_gbit: float = 0.0


def read_ibnetdiscover(text: str) -> Fabric:
    """Read the output of ``ibnetdiscover``.

    A switch with hosts below it is a leaf, another one a spine.  Aggregation nodes of switches are
    no hosts.

    Raises
    ------
    TopologyFileError
        With the line, if a port has no speed or stands outside a block, or there is no leaf.
    """
    switches: dict[str, _Switch] = {}
    current: _Switch | None = None
    inside = False
    unresolved = 0
    for number, raw in enumerate(text.split("\n"), 1):
        raw = raw[:_LONGEST]
        if head := _HEAD.match(raw):
            inside, current = True, None
            if head[1] == "Switch":
                if head[2] in switches or len(switches) >= _MOST_SWITCHES:
                    raise TopologyFileError(
                        f"the switch {head[2]!r} is there twice, or there are too many",
                        advice="give one output.",
                        line=number,
                    )
                current = switches[head[2]] = _Switch(_label(head[3], head[2]), number)
            continue
        if not raw.startswith("["):
            continue
        port = _PORT.match(raw)
        if port is None or not inside:
            raise TopologyFileError(
                f"the port {raw[:60]!r} is not understood",
                advice="give the output as ibnetdiscover printed it.",
                line=number,
            )
        if current is not None:
            unresolved += _port(current, port[1], port[2], number)
    return _fabric(list(switches.values()), unresolved)


def _port(switch: _Switch, peer: str, comment: str, line: int) -> int:
    """Add a port of a switch; 1 if it leads to a host whose name is not known."""
    rate = _RATE.search(comment)
    if rate is None:
        raise TopologyFileError(
            f"the port to {peer!r} has no speed such as 4xNDR",
            advice="give the output as ibnetdiscover printed it.",
            line=line,
        )
    gbit = int(rate[1]) * _LANE[rate[2]]
    if peer.startswith("S-"):
        switch.up_gbit += gbit
        return 0
    described = re.search(r"\"([^\"]*)\"", comment)
    text = described[1] if described else ""
    if "aggregation node" in text.lower():
        return 0
    switch.down_gbit += gbit
    host = _HOST.match(text)
    if host is None or host[1].lower() == "localhost":
        return 1
    switch.down[host[1]] = gbit
    switch.cards[host[2]] += 1
    return 0


def _fabric(switches: list[_Switch], unresolved: int) -> Fabric:
    leaves = [one for one in switches if one.down_gbit]
    spines = len(switches) - len(leaves)
    if not leaves:
        raise TopologyFileError(
            f"none of the {len(switches)} switches has a host below it",
            advice="give the output of ibnetdiscover of the network that the GPUs use.",
            line=switches[0].line if switches else 1,
        )
    findings: list[Finding] = []
    if unresolved:
        text = (
            f"{counted(unresolved, 'port leads', 'ports lead')}"
            f" to hosts without a name, which count as downlinks only"
        )
        findings.append(Finding("host-unresolved", text))
    cut = [one.name for one in leaves if not one.up_gbit] if len(leaves) > 1 else []
    if cut:
        text = (
            f"{counted(len(cut), 'leaf switch has', 'leaf switches have')} no uplink: {some(cut)}"
        )
        findings.append(Finding("leaf-without-uplink", text))
    most = max(one.up_gbit for one in leaves)
    fewer = [f"{one.name} ({one.up_gbit:g})" for one in leaves if 0 < one.up_gbit < most]
    if fewer:
        text = (
            f"{counted(len(fewer), 'leaf switch has', 'leaf switches have')} fewer Gb/s of uplinks"
        )
        findings.append(Finding("leaf-degraded", f"{text} than {most:g}: {some(fewer)}"))
    mixed = [one.name for one in leaves if len(one.cards) > 1]
    if mixed:
        text = (
            f"{counted(len(mixed), 'leaf switch holds', 'leaf switches hold')}"
            f" several cards of hosts"
        )
        findings.append(Finding("leaf-not-rail", f"{text}, so is no rail of one: {some(mixed)}"))
    return Fabric(
        "ibnetdiscover",
        tuple(
            FabricLeaf(
                one.name,
                tuple(one.down),
                one.cards.most_common(1)[0][0] if one.cards else "",
                one.down_gbit,
                one.up_gbit,
            )
            for one in leaves
        ),
        spines,
        tuple(findings),
    )


def _label(described: str, guid: str) -> str:
    """The name of a switch without the model that stands in front, or its guid."""
    name = described.split(";")[-1].split("/")[0].split(":")[0].strip()
    return name[:60] or guid
