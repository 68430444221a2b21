"""What ``meshplan place`` answers: where the ranks of a plan lie, and the files that say so."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshplan.scenarios.errors import InputError
from meshplan.solver.compare.stored import stored
from meshplan.solver.placement import files
from meshplan.solver.placement.place import Borders, Placement, place
from meshplan.solver.placement.slurm import node_sizes, task_options
from meshplan.solver.report.cluster import cluster_data
from meshplan.solver.report.data import RESULT_VERSION
from meshplan.solver.report.placement import placement_data
from meshplan.solver.report.summary import panel
from meshplan.solver.report.words import counted
from meshplan.solver.results import CheckReport, Plan

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

#: Rows of the table of domains, at most.
_MOST_ROWS = 40
_WIDTH = 100


@dataclass(frozen=True)
class PlacementReport:
    """Where the ranks of a layout lie.

    Attributes
    ----------
    name
        Of the scenario.
    placement
        Each rank's GPU.
    """

    name: str
    placement: Placement

    def hostfile(self) -> str:
        """The node of each rank, one a line: Slurm's ``SLURM_HOSTFILE``."""
        return files.hostfile(self.placement)

    def nodelist(self) -> str:
        """The nodes in rank order, one a line."""
        return files.nodelist(self.placement)

    def rankmap(self) -> str:
        """A table (CSV) with the place and the groups of each rank."""
        return files.rankmap(self.placement)

    def picture(self, form: str = "png") -> bytes:
        """The cluster with its stages and expert groups, as ``png`` or ``svg``."""
        from meshplan.solver.placement.picture import draw

        return draw(self.placement, self.name, form)

    def to_json(self) -> dict[str, Any]:
        """The placement as plain data; the keys are those of ``solve``."""
        problem, layout = self.placement.problem, self.placement.layout
        degrees = ("tp", "cp", "pp", "dp", "ep", "etp", "edp", "gpus")
        return {
            "meshplan_result": RESULT_VERSION,
            "name": self.name,
            "status": "placed",
            "layout": {name: getattr(layout, name) for name in degrees},
            "cluster": cluster_data(problem),
            "placement": placement_data(problem, layout),
        }

    def __str__(self) -> str:
        from rich.console import Console

        console = Console(file=io.StringIO(), width=_WIDTH, legacy_windows=False)
        with console.capture() as captured:
            self.render(console)
        return "\n".join(line.rstrip() for line in captured.get().splitlines()) + "\n"

    def render(self, console: Console) -> None:
        """Print the report on a rich console."""
        for section in self._sections():
            console.print(section, width=min(console.width, _WIDTH), highlight=False)

    def _sections(self) -> Iterator[RenderableType]:
        data = self.to_json()
        yield panel(self.name, "placed", self._verdict(data), self._rows(data))
        yield _groups_table(data["placement"])
        yield _domains_table(data["placement"]["ranks"]["domains"])

    def _verdict(self, data: dict[str, Any]) -> str:
        cluster, placed = data["cluster"], self.placement
        domains = f"{len(placed.domains):,} of {len(placed.domains) + len(placed.idle):,}"
        idle = f", {counted(cluster['idle'], 'GPU')} idle" if cluster["idle"] else ""
        return f"{counted(cluster['used'], 'rank')} in {domains} NVLink domains{idle}."

    def _rows(self, data: dict[str, Any]) -> Iterator[tuple[str, str]]:
        placed = self.placement
        node = placed.problem.node_type
        yield "order", f"{placed.order}; ranks go through one domain after the other"
        options = task_options(placed.cluster)
        if node.multi_node_nvlink:
            options.append(f"--segment={placed.segment_nodes}")
        yield "Slurm", " ".join(options)
        if len(set(node_sizes(placed.cluster))) > 1:
            yield "", "nodes hold unequal numbers of ranks: start them by --hostfile"
        if placed.layout.pp > 1:
            stages = f"{placed.layout.pp} of {counted(placed.stage_gpus, 'GPU')}"
            yield "stages", f"{stages}; {_borders_text(placed.domain_borders, 'NVLink domains')}"
            if placed.leaves_known:
                yield "", _borders_text(placed.leaf_borders, "leaf switches")
        aligned = "peers have the same GPU of their nodes"
        yield (
            "rails",
            f"aligned: {aligned}" if placed.rails_aligned else f"not aligned: not all {aligned}",
        )


def _borders_text(borders: Borders, what: str) -> str:
    if borders.at_borders == borders.stages:
        return f"every stage begins and ends with one of the {what}"
    text = f"{borders.at_borders:,} of {borders.stages:,} stage borders are borders of {what}"
    if borders.at_borders == borders.bound:
        return f"{text}; no order has more (proved)"
    return f"{text}; no order has more than {borders.bound}"


def _groups_table(placement: dict[str, Any]) -> RenderableType:
    rows = [
        (
            name,
            f"{one['size']:,}",
            f"{one['inside']:,} of {one['groups']:,}",
            one["tier"],
            str(one["link_gbps"]),
        )
        for name, one in placement.items()
        if name != "ranks" and one is not None and one["size"] > 1
    ]
    heads = ("groups", "ranks", "inside one domain", "widest link", "GB/s a GPU")
    return _table(heads, rows)


def _domains_table(runs: list[dict[str, Any]]) -> RenderableType:
    rows = []
    for run in runs[:_MOST_ROWS]:
        last = run["first_domain"] + run["count"] - 1
        domains = str(run["first_domain"]) + (f" to {last}" if run["count"] > 1 else "")
        stages = str(run["first_stage"])
        if run["last_stage"] > run["first_stage"]:
            stages += f" to {run['last_stage']}"
        used = f"{run['used']} of {run['gpus']}"
        nodes = run["nodes"] or ""
        rows.append((f"{run['first_rank']:,}", stages, domains, used, nodes[:60]))
    if len(runs) > _MOST_ROWS:
        rows.append(("…", "", f"{len(runs) - _MOST_ROWS} more rows", "", ""))
    return _table(("first rank", "stage", "domain", "GPUs", "nodes"), rows)


def _table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, title="", title_justify="left")
    for head in heads:
        table.add_column(Text(head, style="bold"))
    for row in rows:
        table.add_row(*(Text(text) for text in row))
    return table


def placement_report(result: Plan | CheckReport | str | Path) -> PlacementReport:
    """Where the ranks of a plan, of a checked layout, or of the JSON of either lie.

    Raises
    ------
    InputError
        If a file cannot be read or is no such result, or the layout is not legal.
    """
    report = stored(result).report
    if report.violations:
        raise InputError(
            f"the layout of {report.problem.name} breaks {report.violations[0].rule}: "
            f"{report.violations[0].text}",
            advice="place a plan of solve, or a layout that check finds legal.",
        )
    return PlacementReport(report.problem.name, place(report.problem, report.layout))


__all__ = ["PlacementReport", "placement_report"]
