"""A placement as files that launchers read."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from meshplan.solver.placement.place import Placement

#: Columns of the rank map.
COLUMNS = (
    "rank", "domain", "leaf", "node", "gpu", "tp", "cp", "dp", "pp", "etp", "ep", "edp",
)  # fmt: skip


def hostfile(placement: Placement) -> str:
    """The node of each rank, one a line.

    As ``SLURM_HOSTFILE`` of ``srun --distribution=arbitrary``; MPI launchers read it, too.
    """
    return "".join(f"{name}\n" * ranks for name, ranks in placement.nodes())


def nodelist(placement: Placement) -> str:
    """The nodes in rank order, one a line; its number is ``torchrun --node_rank``."""
    return "".join(f"{name}\n" for name, _ in placement.nodes())


def rankmap(placement: Placement) -> str:
    """Place and coordinates of each rank as CSV; nodes without a name are numbered."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(COLUMNS)
    table.writerows(_rows(placement))
    return text.getvalue()


def _rows(placement: Placement) -> Iterator[tuple[object, ...]]:
    layout = placement.layout
    attention = (layout.tp, layout.cp, layout.dp, layout.pp)
    experts = (layout.etp, layout.ep, layout.edp)
    rank = 0
    for domain in placement.domains:
        leaf = domain.leaf if placement.leaves_known else ""
        for _ in domain.ranks:
            spot = placement.spot(rank)
            node = domain.nodes[spot.node] if domain.nodes else spot.node
            place = (rank, domain.index, leaf, node, spot.gpu)
            yield (*place, *_coordinates(rank, attention), *_coordinates(rank, experts))
            rank += 1


def _coordinates(rank: int, sizes: tuple[int, ...]) -> Iterator[int]:
    """Coordinates of a rank on a grid, the fastest axis first."""
    for size in sizes:
        rank, at = divmod(rank, size)
        yield at


__all__ = ["COLUMNS", "hostfile", "nodelist", "rankmap"]
