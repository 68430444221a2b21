"""``meshplan rules`` and ``meshplan explain``: what a layout must obey, and why."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.console import RenderableType


@click.command()
def rules() -> None:
    """List all rules and advisories; `meshplan explain ID` says more."""
    from meshplan.cli.output import table_console
    from meshplan.constraints.advisories import ALL_ADVISORIES
    from meshplan.constraints.layout_rules import ALL_LAYOUT_RULES
    from meshplan.constraints.rules import ALL_RULES

    console = table_console()
    every = sorted(((r.family, r.id, r.formula) for r in (*ALL_RULES, *ALL_LAYOUT_RULES)),
                   key=lambda row: list(_families()).index(row[0]))  # fmt: skip
    for family, rows in groupby(every, key=lambda row: row[0]):
        console.print(_listing(family, [(name, formula) for _, name, formula in rows]))
    console.print(_listing("advice", [(one.id, one.why) for one in ALL_ADVISORIES]))
    click.echo(f"{len(every)} rules, {len(ALL_ADVISORIES)} advisories.")


def _families() -> dict[str, None]:
    """Families in the order of the catalogue."""
    from meshplan.constraints.layout_rules import ALL_LAYOUT_RULES
    from meshplan.constraints.rules import ALL_RULES

    return dict.fromkeys(one.family for one in (*ALL_RULES, *ALL_LAYOUT_RULES))


def _listing(title: str, rows: list[tuple[str, str]]) -> RenderableType:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, min_width=34)
    table.add_column(overflow="fold")
    for name, text in rows:
        table.add_row(Text(f"  {name}"), Text(text))
    return Group(Text(title, style="bold"), table, Text())


@click.command()
@click.argument("rule_id", metavar="ID")
def explain(rule_id: str) -> None:
    """Explain the rule or advisory ID: what it says, why, where it comes from, what to change."""
    from difflib import get_close_matches

    from meshplan.cli.output import table_console
    from meshplan.scenarios.checks import shown
    from meshplan.scenarios.errors import InputError

    found = list(_explanations(rule_id))
    if not found:
        near = get_close_matches(rule_id, _ids(), n=3, cutoff=0.5)
        raise InputError(
            f"there is no rule or advisory {shown(rule_id)}",
            advice=f"you mean {' or '.join(near)}." if near else "see `meshplan rules`.",
        )
    console = table_console()
    for title, rows in found:
        console.print(_listing(title, rows))


def _ids() -> list[str]:
    from meshplan.constraints.advisories import ALL_ADVISORIES
    from meshplan.constraints.layout_rules import ALL_LAYOUT_RULES
    from meshplan.constraints.rules import ALL_RULES

    return [one.id for one in (*ALL_RULES, *ALL_LAYOUT_RULES, *ALL_ADVISORIES)]


def _explanations(rule_id: str) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Title and rows of everything with that id; a rule and an advisory may share one."""
    from meshplan.constraints.advisories import ALL_ADVISORIES
    from meshplan.constraints.layout_rules import ALL_LAYOUT_RULES
    from meshplan.constraints.rules import ALL_RULES

    for one in (*ALL_RULES, *ALL_LAYOUT_RULES):
        if one.id != rule_id:
            continue
        rows = [("holds if", one.formula), ("why", one.why), ("source", one.source)]
        if fields := getattr(one, "fields", ()):
            rows.append(("to satisfy it", f"change {', '.join(fields)}"))
        if scope := getattr(one, "scope", ()):
            rows.append(("reads", ", ".join(scope)))
        yield f"rule {one.id} ({one.family})", rows
    for advice in ALL_ADVISORIES:
        if advice.id == rule_id:
            yield f"advisory {advice.id}", [("why", advice.why), ("source", advice.source)]
