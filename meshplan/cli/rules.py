"""``meshplan rules`` and ``meshplan explain``: what a layout must obey, and why."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from meshplan.cli.text_table import print_table

if TYPE_CHECKING:
    from meshplan.constraints.layout_rules import LayoutRule
    from meshplan.constraints.rule import Rule

#: Conflicts also name this one, which is no rule: it follows from the whole memory model.
_MEMORY = (
    "memory-capacity",
    "peak memory of each pipeline rank <= usable HBM * (1 - limits.memory_headroom)",
    "What does not fit ends with an out-of-memory error, often only after some steps. Weights, "
    "gradients, optimizer state, activations in flight, buffers and the CUDA context all count.",
    "meshplan.constraints.memory, whose terms name their sources",
    "change limits.memory_headroom, options.recompute, options.optimizer_offload, cluster.gpus "
    "or workload.seq_len",
)


@click.command()
def rules() -> None:
    """List all rules and advisories.

    `meshplan explain ID` says where one comes from.
    """
    from meshplan.constraints.advisories import ALL_ADVISORIES

    families: dict[str, list[tuple[str, str]]] = {}
    for one in _rules():
        families.setdefault(one.family, []).append((one.id, one.formula))
    for layout_rule in _layout_rules():
        row = (layout_rule.id, layout_rule.formula)
        families.setdefault(layout_rule.family, []).append(row)
    families["memory"] = [_MEMORY[:2]]
    for family, rows in families.items():
        print_table(rows, title=family)
    print_table([(advice.id, advice.why) for advice in ALL_ADVISORIES], title="advice")
    count = sum(len(rows) for rows in families.values())
    click.echo(f"{count} rules, {len(ALL_ADVISORIES)} advisories.")


@click.command()
@click.argument("rule_id", metavar="ID")
def explain(rule_id: str) -> None:
    """Explain a rule or advisory.

    What ID says, why, where it comes from, and which fields of a scenario can satisfy it.
    """
    from difflib import get_close_matches

    from meshplan.scenarios.checks import shown
    from meshplan.scenarios.errors import InputError

    entries = list(_entries())
    found = [entry for entry in entries if entry[0] == rule_id]
    if not found:
        near = get_close_matches(rule_id, dict.fromkeys(entry[0] for entry in entries), n=3)
        raise InputError(
            f"there is no rule or advisory {shown(rule_id)}",
            advice=f"you mean {' or '.join(near)}." if near else "see `meshplan rules`.",
        )
    for _, title, rows in found:
        print_table(rows, title=title)


def _rules() -> tuple[Rule, ...]:
    """Rules on decisions, and those on how the layers are split."""
    from meshplan.constraints.rules import ALL_RULES
    from meshplan.constraints.split_rules import SPLIT_RULES

    return (*ALL_RULES, *SPLIT_RULES)


def _layout_rules() -> list[LayoutRule]:
    """Rules on concrete slots that are not listed as rules on decisions already."""
    from meshplan.constraints.layout_rules import ALL_LAYOUT_RULES

    listed = {one.id for one in _rules()}
    return [one for one in ALL_LAYOUT_RULES if one.id not in listed]


def _entries() -> Iterator[tuple[str, str, list[tuple[str, str]]]]:
    """Id, title and rows of all that can be explained; rule and advisory may share an id."""
    from meshplan.constraints.advisories import ALL_ADVISORIES

    for one in _rules():
        rows = [("holds if", one.formula), ("why", one.why), ("source", one.source)]
        if one.fields:
            rows.append(("to satisfy it", f"change {' or '.join(one.fields)}"))
        rows.append(("reads", ", ".join(one.scope)))
        yield one.id, f"rule {one.id} ({one.family})", rows
    for layout_rule in _layout_rules():
        yield (
            layout_rule.id,
            f"rule {layout_rule.id} ({layout_rule.family})",
            [
                ("holds if", layout_rule.formula),
                ("why", layout_rule.why),
                ("source", layout_rule.source),
                ("to satisfy it", "change options.pipeline_layout"),
            ],
        )
    labels = ("holds if", "why", "source", "to satisfy it")
    yield _MEMORY[0], f"rule {_MEMORY[0]}", list(zip(labels, _MEMORY[1:], strict=True))
    for advice in ALL_ADVISORIES:
        rows = [("why", advice.why), ("source", advice.source)]
        yield advice.id, f"advisory {advice.id}", rows
