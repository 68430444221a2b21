"""What the readers of a node's inside share: islands of NVLink, and what is odd about a node."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from meshplan.topologies.inventory import Finding

#: Most GPUs of one node that a file may show.
MAX_NODE_GPUS = 64


def islands(gpus: int, links: Iterable[tuple[int, int]]) -> tuple[tuple[int, ...], ...]:
    """Connected components of the GPUs ``0 .. gpus - 1`` under ``links``, in order."""
    group = list(range(gpus))
    for one, other in links:
        low, high = sorted((group[one], group[other]))
        group = [low if member == high else member for member in group]
    return tuple(
        tuple(gpu for gpu in range(gpus) if group[gpu] == first) for first in sorted(set(group))
    )


def nvlink_findings(found: Sequence[Sequence[int]], nvlinks: Sequence[int]) -> list[Finding]:
    """Findings about GPUs that lost their NVLink, or have fewer links than the others."""
    findings = []
    largest = max((len(island) for island in found), default=0)
    lost = [gpu for island in found if len(island) == 1 for gpu in island]
    if lost and largest > 1:
        sizes = ", ".join(str(len(island)) for island in found)
        findings.append(
            Finding(
                "lost-nvlink",
                f"{_gpus(lost)} cannot reach another GPU over NVLink (islands of {sizes}): "
                "exchanges with them go over PCIe, many times slower",
            )
        )
    most = max(nvlinks, default=0)
    fewer = [gpu for gpu, count in enumerate(nvlinks) if count < most]
    if fewer:
        counts = ", ".join(str(nvlinks[gpu]) for gpu in fewer)
        findings.append(
            Finding("nvlink-unequal", f"fewer NVLinks than {most}: {counts} on {_gpus(fewer)}")
        )
    return findings


def rail_findings(near: Sequence[bool]) -> list[Finding]:
    """A finding about GPUs whose nearest network card is not on their own PCIe switch."""
    far = [gpu for gpu, is_near in enumerate(near) if not is_near]
    if not far:
        return []
    text = f"no network card is on the PCIe switch of {_gpus(far)}: no rail of their own"
    return [Finding("gpu-without-rail", text)]


def _gpus(gpus: Sequence[int]) -> str:
    return ("GPU " if len(gpus) == 1 else "GPUs ") + ", ".join(str(gpu) for gpu in gpus)
