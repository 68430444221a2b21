"""Section on placement: which links groups cross, and which NVLink domains the stages take."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from meshplan.solver.report.html.content import Drawing, Section, Table, table

#: A figure of the domains has at most so many blocks; of more the tables tell.
_MOST_BLOCKS = 600
#: Kinds of groups, in words.
_GROUPS = {
    "tp": "tensor parallel",
    "cp": "context parallel",
    "ep": "expert parallel",
    "dp_cp": "gradients of attention (dp × cp)",
    "edp": "gradients of experts (edp)",
    "pp": "pipeline",
}


def placement_section(placement: dict[str, Any]) -> Section:
    """Groups and links, and the domains in rank order if the ranks are placed."""
    note = (
        "How many NVLink domains a group spans at least, how many of the groups lie inside one, "
        "and the slowest link that a group crosses, with its specified bandwidth in one direction."
    )
    ranks = placement["ranks"]
    blocks = [] if ranks is None else list(_blocks(ranks))
    return Section(
        "placement",
        "Placement by NVLink domain",
        note,
        drawings=(_drawing(ranks, blocks),) if 0 < len(blocks) <= _MOST_BLOCKS else (),
        tables=(_group_table(placement), *((_domain_table(ranks),) if ranks else ())),
    )


def _blocks(ranks: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What each stage takes of each domain, in rank order."""
    size = ranks["stage_gpus"]
    for run in ranks["domains"]:
        for place in range(run["count"]):
            start = run["first_rank"] + place * run["used"]
            end = start + run["used"]
            while start < end:
                stage = start // size
                stop = min(end, (stage + 1) * size)
                domain = run["first_domain"] + place
                yield {
                    "stage": stage,
                    "domain": domain,
                    "start": start - stage * size,
                    "end": stop - stage * size,
                    "gpus": f"{run['used']} of {run['gpus']} used",
                    "color": f"var(--s{1 + domain % 2})",
                }
                start = stop


def _drawing(ranks: dict[str, Any], blocks: list[dict[str, Any]]) -> Drawing:
    label = (
        "The GPUs of each pipeline rank in rank order. A block is an NVLink domain, with its "
        "number; one that stands in two rows is shared by two pipeline ranks."
    )
    if ranks["stage_borders"]:
        label += (
            f" {ranks['at_domain_borders']} of {ranks['stage_borders']} borders between pipeline "
            "ranks are borders of domains"
        )
        proved = ranks["at_domain_borders"] == ranks["at_domain_borders_bound"]
        label += "; no order of the domains has more." if proved else "."
    return Drawing("placement", label, blocks)


def _group_table(placement: dict[str, Any]) -> Table:
    rows = []
    for name, title in _GROUPS.items():
        one = placement[name]
        if one is None or one["size"] == 1:
            continue
        link = "–" if one["link_gbps"] is None else f"{one['link_gbps']:g}"
        inside = f"{one['inside']:,} of {one['groups']:,}"
        rows.append((title, str(one["size"]), str(one["domains"]), inside, one["tier"], link))
    heads = ("group", "ranks", "domains", "inside one domain", "slowest tier", "GB/s a GPU")
    return table("Links that groups cross", heads, rows, (0, 4), unfolded=True)


def _domain_table(ranks: dict[str, Any]) -> Table:
    rows = [
        (
            _span(run["first_domain"], run["first_domain"] + run["count"] - 1),
            f"{run['used']} of {run['gpus']}",
            f"{run['first_rank']:,}",
            _span(run["first_stage"], run["last_stage"]),
            "–" if run["leaf"] is None else str(run["leaf"]),
            run["nodes"] or "–",
        )
        for run in ranks["domains"]
    ]
    heads = ("domains", "GPUs used", "first rank", "pipeline ranks", "leaf switch", "nodes")
    return table("NVLink domains in rank order", heads, rows, (0, 4, 5))


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}–{last}"


__all__ = ["placement_section"]
